"""The truth about a recording: which faults were made, when, on what, and by what name each should be found.

Does not belong here: judging (agent.replay.judge).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib import resources

from pydantic import BaseModel, ConfigDict, Field

from serving.faults.catalogue import catalogue
from serving.fleet.entity import EntityKind
from serving.telemetry.recording import Happening
from serving.yaml_file import parse_strict

EVERYWHERE = "all"
START, END = "start", "end"


class Expected(BaseModel):
    """What one kind of fault should be called, and whether its target is at fault itself."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    causes: tuple[str, ...] = ()
    on: EntityKind | None = None
    within: float | None = Field(None, gt=0)
    optional: bool = False
    sick: bool = False


class _Truth(BaseModel):
    """truth.yaml."""

    model_config = ConfigDict(extra="forbid")

    faults: dict[str, Expected]


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault that was made. Times in Unix seconds. Without `expected.causes` nobody knows what it should be called."""

    kind: str
    target: str
    start: float
    end: float
    expected: Expected

    @property
    def on(self) -> EntityKind:
        """The kind of entity that it should be found on."""
        fallback = EntityKind.MODEL if self.target == EVERYWHERE else EntityKind.ENGINE
        return self.expected.on or fallback


def faults_in(happenings: Iterable[Happening], ended: float) -> tuple[Fault, ...]:
    """The faults that were made, in order of their starts. One without an end lasted until `ended`."""
    told = tuple(happenings)
    faults = []
    for start in told:
        if start.phase != START or start.benign:
            continue
        same = (h for h in told if h.phase == END and (h.fault, h.target) == (start.fault, start.target))
        end = min((h.at for h in same if h.at > start.at), default=max(ended, start.at))
        faults.append(Fault(start.fault, start.target, start.at, end, expected_of(start)))
    return tuple(sorted(faults, key=lambda fault: fault.start))


def expected_of(start: Happening) -> Expected:
    """What a fault should be called: as its own label says, else by the table, else by the fault catalogue."""
    kind = start.fault.replace("-", "_")
    known = _table().get(kind, Expected())
    if start.causes:
        return known.model_copy(update={"causes": start.causes})
    if known.causes:
        return known
    made = catalogue().get(kind.replace("_", "-"))
    return known.model_copy(update={"causes": made.causes}) if made else known


@cache
def _table() -> dict[str, Expected]:
    text = resources.files("agent.replay").joinpath("truth.yaml").read_text("utf-8")
    return parse_strict(text, _Truth, "agent/replay/truth.yaml").faults
