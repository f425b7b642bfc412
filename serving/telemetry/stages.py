"""Stage statistics: where finished requests spent their time, per engine, taken from trace spans.

Traces hold finished requests only, so a hung engine looks healthy here: always read them beside in-flight counts.
"""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class Stage(StrEnum):
    """A part of a request's life inside an engine."""

    QUEUE = "queue"
    PREFILL = "prefill"
    DECODE = "decode"
    TRANSFER = "transfer"


@dataclass(frozen=True, slots=True, eq=False)
class StageStatistics:
    """Requests whose span ended in the last `seconds` before the window's now. All arrays have shape (engines,).

    `mean` and `p95` are in seconds, by stage; NaN where no finished request says. `in_flight` are the requests that the
    front door still waits for, the other half of the truth; NaN where no door reports.
    """

    seconds: float
    finished: Floats
    mean: dict[Stage, Floats]
    p95: dict[Stage, Floats]
    in_flight: Floats
