"""How alike the two sides have to be: the table of bounds, and what each row of it measures.

A row is about a change: the level in a fault over the level before it (or after it over before it), on the fleet in virtual
time against the recording. A bound is a factor (1.5: between 1/1.5 and 1.5 times the recorded change) or, where the model
is known to differ, the range that the difference lies in, which then does not hold 1.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import yaml
from numpy.typing import NDArray
from played import Part
from pydantic import BaseModel, ConfigDict, Field, model_validator
from shapes import FACTS, PHASES, SIGNALS, Side

Floats = NDArray[np.float64]
TABLE = Path(__file__).parent / "bounds.yaml"
HEALTHY = "baseline"

Factor = Annotated[float, Field(ge=1.0)]
Span = tuple[float, float]


class Bound(BaseModel):
    """A row: bounds of the change in a fault and after it; `of` the targets or the others; why it is as wide as it is."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    signal: str
    of: str = Field(default="target", pattern="^(target|peers)$")
    during: Factor | Span | None = Field(default=None, alias="in")
    after: Factor | Span | None = None
    why: str = ""

    @model_validator(mode="after")
    def _says_why_it_differs(self) -> "Bound":
        if self.signal not in SIGNALS:
            raise ValueError(f"there is no signal {self.signal!r} (known: {', '.join(SIGNALS)})")
        for span in (self.during, self.after):
            if isinstance(span, tuple) and (span[0] <= 1.0 <= span[1] or not self.why):
                raise ValueError(f"{self.signal}: the range {span} of a known difference holds 1, or nothing says why")
        return self


class OfPart(BaseModel):
    """What is asked of one part: facts that have to hold on its targets on both sides, and bounds of changes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    why: str
    facts: tuple[str, ...] = ()
    bounds: tuple[Bound, ...] = ()

    @model_validator(mode="after")
    def _knows_its_facts(self) -> "OfPart":
        unknown = sorted(set(self.facts) - set(FACTS))
        if unknown:
            raise ValueError(f"there is no fact {unknown[0]!r} (known: {', '.join(FACTS)})")
        return self


class Level(BaseModel):
    """A bound of the level itself in the healthy part."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    bound: Factor | Span
    why: str


class Bounds(BaseModel):
    """The whole table. `floors`: below them a level counts as that, so that nothing is compared with next to nothing."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    floors: Mapping[str, float]
    levels: Mapping[str, Level]
    parts: Mapping[str, Mapping[str, OfPart]]


@dataclass(frozen=True, slots=True)
class Row:
    """One comparison: `recorded` and `virtual` levels or changes, their `ratio`, and the range it has to lie in."""

    recording: str
    part: str
    signal: str
    of: str
    what: str
    recorded: float
    virtual: float
    low: float
    high: float
    why: str

    @property
    def ratio(self) -> float:
        """Virtual over recorded."""
        return self.virtual / self.recorded

    @property
    def holds(self) -> bool:
        """Whether the ratio is in its range."""
        return self.low <= self.ratio <= self.high

    @property
    def differs(self) -> bool:
        """Whether this is a known difference."""
        return not self.low <= 1.0 <= self.high


def load_bounds(path: Path = TABLE) -> Bounds:
    """The table. Raises pydantic's ValidationError, which names the row."""
    return Bounds.model_validate(yaml.safe_load(path.read_text()))


def compared(name: str, bounds: Bounds, real: Side, virtual: Side) -> Iterator[Row]:
    """Every row of the table that is about the recording `name`."""
    for part in real.shapes:
        if part.fault == HEALTHY:
            yield from _levels(name, bounds, part, real, virtual)
        of_part = bounds.parts.get(name, {}).get(part.fault)
        for bound in of_part.bounds if of_part else ():
            yield from _changes(name, bounds, part, bound, real, virtual)


def facts(name: str, bounds: Bounds, side: Side) -> Iterator[tuple[str, str, bool]]:
    """Part, fact and whether it holds on all of the part's targets on one side."""
    for part, told in side.facts.items():
        of_part = bounds.parts.get(name, {}).get(part.fault)
        for fact in of_part.facts if of_part else ():
            yield part.fault, fact, bool(told[fact][part.rows(len(told[fact]))].all())


def _levels(name: str, bounds: Bounds, part: Part, real: Side, virtual: Side) -> Iterator[Row]:
    during = PHASES.index("in")
    for signal, level in bounds.levels.items():
        one, other = (float(side.shapes[part][signal][:, during].mean()) for side in (real, virtual))
        yield Row(name, part.fault, signal, "all", "level", one, other, *_span(level.bound), level.why)


def _changes(name: str, bounds: Bounds, part: Part, bound: Bound, real: Side, virtual: Side) -> Iterator[Row]:
    for what, limit in (("in", bound.during), ("after", bound.after)):
        if limit is not None:
            one, other = (_change(side, part, bound, bounds.floors[bound.signal], what) for side in (real, virtual))
            yield Row(name, part.fault, bound.signal, bound.of, what, one, other, *_span(limit), bound.why)


def _change(side: Side, part: Part, bound: Bound, floor: float, what: str) -> float:
    levels = side.shapes[part][bound.signal]
    targets = part.rows(len(levels))
    rows = targets if bound.of == "target" else [row for row in range(len(levels)) if row not in targets]
    shown = np.fmax(np.nan_to_num(levels[rows].mean(axis=0)), floor)  # what is not measured has come to nothing
    return float(shown[PHASES.index(what)] / shown[PHASES.index("before")])


def _span(bound: Any) -> Span:
    return (1.0 / bound, bound) if isinstance(bound, float) else bound
