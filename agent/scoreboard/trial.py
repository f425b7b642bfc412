"""Trials: what is made in one, and what came of it. Plain frozen records that a process can hand to another."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

SECONDS_PER_YEAR = 365.25 * 86_400.0
Data = Literal["simulated"]
DATA: Data = "simulated"
"""Where every figure of a trial comes from: a fleet in virtual time, never a live or a recorded one."""


class TrialKind(StrEnum):
    """What is made in a trial: faults, which are to be repaired, or what is none, about which nothing is to be done."""

    FAULT = "fault"
    PAIR = "pair"
    DECOY = "decoy"
    DECOY_PAIR = "decoy_pair"
    HEALTHY = "healthy"

    @property
    def faulty(self) -> bool:
        """Whether something is really broken in it."""
        return self in {TrialKind.FAULT, TrialKind.PAIR}

    @property
    def deceives(self) -> bool:
        """Whether something in it only looks broken."""
        return self in {TrialKind.DECOY, TrialKind.DECOY_PAIR}


@dataclass(frozen=True, slots=True)
class FleetSize:
    """The fleet that a trial runs on: so many engines of one GPU or more, `rps` requests a second for each, from `seed`.

    `warm_up` is how many virtual seconds it has lived before any trial begins.
    """

    engines: int
    models: int
    tp: int
    rps: float
    experts: int
    seed: int
    warm_up: float


@dataclass(frozen=True, slots=True)
class FaultSpec:
    """One fault or decoy to make.

    `at` and `lasts` in seconds, `at` from the trial's beginning; after `lasts` it is undone if nobody cured it. `aim`, from
    0 up to 1, says which of the things that it can happen to, `hits` to how many of them at once. `parameters` are those of
    the fault in the fleet's catalogue.
    """

    name: str
    at: float
    lasts: float
    aim: float
    onset: str = "sudden"
    hits: int = 1
    parameters: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class TrialSpec:
    """One trial, complete: the same spec gives the same result. For `after` seconds it is watched when all is over."""

    number: int
    kind: TrialKind
    seed: int
    fleet: FleetSize
    faults: tuple[FaultSpec, ...]
    lasts: float
    after: float


@dataclass(frozen=True, slots=True)
class FaultResult:
    """What became of one fault. Times in seconds from its beginning; None: it did not happen.

    `cause` is that of the first diagnosis with enough evidence, `first_action` the first verb that changed anything, with
    its target. `right_action` is also true where nothing should be done and nothing was. `cured`: it was gone before the
    trial undid it.
    """

    name: str
    target: str
    onset: str
    parameters: tuple[tuple[str, float], ...]
    detected_after: float | None
    cause: str | None
    right_cause: bool
    first_action: str | None
    right_action: bool
    isolated_after: float | None
    recovered_after: float | None
    cured: bool

    @property
    def detected(self) -> bool:
        """Whether anything about it was diagnosed with enough evidence."""
        return self.detected_after is not None


@dataclass(frozen=True, slots=True)
class TrialResult:
    """What came of one trial.

    `false_incidents` are written `cause on entity`, actions `verb on target`. `destructive_actions` are those on anything
    that was not faulty, or of a kind that the fault does not call for; each is one of `false_actions` too. `failed` and `ok`
    count requests of users. `error` says why a trial could not be run to its end; then nothing else is to be trusted.
    """

    number: int
    kind: TrialKind
    names: tuple[str, ...]
    faults: tuple[FaultResult, ...]
    false_incidents: tuple[str, ...]
    false_actions: tuple[str, ...]
    destructive_actions: tuple[str, ...]
    ok: float
    failed: float
    virtual_seconds: float
    gpu_years: float
    cpu_seconds: float
    steps: int
    error: str = ""
