"""Requests given one by one instead of drawn: when each came, for which engine, how long, and when its client leaves."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from serving.virtual.queues import Requests

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(slots=True)
class GivenRequests:
    """A list of requests in the order they came, each straight to its engine and counted by the door.

    `leaves`: Unix seconds at which the client of each gives up, whatever it has got by then; +inf for one that waits.
    `refused`: those that the engine's API answers as the client's mistake, so that its core never sees them.
    Raises ValueError when the requests are not in order of time or the columns differ in length.
    """

    requests: Requests
    leaves: Floats
    refused: Bools
    _next: int = field(default=0, init=False)
    _leaving: Requests = field(init=False)
    _leaves: Floats = field(init=False)
    _left: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        count = len(self.requests.arrived)
        if len(self.leaves) != count or len(self.refused) != count:
            raise ValueError(f"{count} requests with {len(self.leaves)} leaves and {len(self.refused)} refused")
        if (np.diff(self.requests.arrived) < 0).any():
            raise ValueError("given requests have to be in the order in which they came")
        order = np.argsort(np.where(self.refused, np.inf, self.leaves), kind="stable")
        requests = self.requests
        self._leaving = Requests(*(getattr(requests, name)[order] for name in ("rows", "arrived", "prompt", "output")))
        self._leaves = np.where(self.refused, np.inf, self.leaves)[order]

    def arriving(self, until: float) -> tuple[Requests, Bools]:
        """Those that come before `until` and have not come yet, and which of them are refused."""
        end = max(self._next, int(np.searchsorted(self.requests.arrived, until)))
        some = slice(self._next, end)
        self._next = end
        return self.requests.part(some), self.refused[some]

    def leaving(self, until: float) -> Requests:
        """Those whose clients give up before `until` and were not told yet, answered or not."""
        end = max(self._left, int(np.searchsorted(self._leaves, until)))
        some = slice(self._left, end)
        self._left = end
        return self._leaving.part(some)
