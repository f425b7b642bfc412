"""Incident: one cause's life, as the fold of its journal events.

`apply` is pure: the same events give the same incident, which is how a restarted warden knows where it stood.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from actuators.action import Action, Outcome
from agent.decision.decision import Decision
from agent.diagnosis.diagnosis import Diagnosis
from serving.fleet.entity import Entity


class IncidentState(StrEnum):
    """Open: deciding. Acting: a runbook is under way. The last three are ends; an escalated one waits for a person."""

    OPEN = "open"
    ACTING = "acting"
    VERIFYING = "verifying"
    ROLLING_BACK = "rolling_back"
    RESOLVED = "resolved"
    ESCALATED = "escalated"
    SUPPRESSED = "suppressed"


ENDED = frozenset({IncidentState.RESOLVED, IncidentState.ESCALATED, IncidentState.SUPPRESSED})


class Ending(StrEnum):
    """Why an incident ended. Healed: its symptoms went before anything was done."""

    REPAIRED = "repaired"
    HEALED = "healed"
    RULED_OUT = "ruled_out"
    MERGED = "merged"  # another incident's cause explains it
    GAVE_UP = "gave_up"
    REJECTED = "rejected"


@dataclass(frozen=True, slots=True)
class Operation:
    """One action of an incident, from intent to outcome. `key` is unique for incident, attempt and step.

    `outcome` is None while only the intent is written: after a crash such an operation is looked up, never repeated.
    """

    key: str
    step: str
    attempt: int
    action: Action
    intended_at: float
    finished_at: float | None = None
    outcome: Outcome | None = None


# Events: one dataclass per transition. Every one carries the incident's id and the time it was written.


@dataclass(frozen=True, slots=True)
class Opened:
    """A cause was diagnosed that no open incident covers."""

    incident: str
    at: float
    diagnosis: Diagnosis


@dataclass(frozen=True, slots=True)
class Rediagnosed:
    """The likeliest cause of an open incident, or its evidence, changed before anything was done."""

    incident: str
    at: float
    diagnosis: Diagnosis


@dataclass(frozen=True, slots=True)
class Decided:
    """A decision that differs from the one before it. Repeats are not written."""

    incident: str
    at: float
    decision: Decision


@dataclass(frozen=True, slots=True)
class AttemptStarted:
    """A run of the runbook was reserved, before its first action: attempts are counted even when the warden dies."""

    incident: str
    at: float
    attempt: int
    runbook: str


@dataclass(frozen=True, slots=True)
class Intended:
    """An action is about to be done. Written, and on disk, before the world is touched."""

    incident: str
    at: float
    key: str
    step: str
    attempt: int
    action: Action


@dataclass(frozen=True, slots=True)
class Finished:
    """What became of an intended action."""

    incident: str
    at: float
    key: str
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class StepPassed:
    """A step is over and the next one is due: its outcome was as expected and its `until` came true (or was let go)."""

    incident: str
    at: float
    step: str
    says: str


@dataclass(frozen=True, slots=True)
class RollbackStarted:
    """The runbook failed; what was done and can be undone is being undone."""

    incident: str
    at: float
    says: str


@dataclass(frozen=True, slots=True)
class VerificationStarted:
    """All steps are done; now users must be served well again."""

    incident: str
    at: float


@dataclass(frozen=True, slots=True)
class ApprovalAsked:
    """A person is asked to allow the next attempt."""

    incident: str
    at: float
    expires_at: float
    says: str


@dataclass(frozen=True, slots=True)
class ApprovalAnswered:
    """A person answered. `by` is who, as far as known."""

    incident: str
    at: float
    approved: bool
    by: str


@dataclass(frozen=True, slots=True)
class Ended:
    """The incident is over. `cost` says what it cost users, in words, from the front door's counts."""

    incident: str
    at: float
    state: IncidentState
    ending: Ending
    says: str
    cost: str = ""


IncidentEvent = (
    Opened
    | Rediagnosed
    | Decided
    | AttemptStarted
    | Intended
    | Finished
    | StepPassed
    | RollbackStarted
    | VerificationStarted
    | ApprovalAsked
    | ApprovalAnswered
    | Ended
)


@dataclass(frozen=True, slots=True)
class Approval:
    """The newest request for a person's consent. `approved` is None until answered."""

    asked_at: float
    expires_at: float
    approved: bool | None = None
    by: str = ""


@dataclass(frozen=True, slots=True)
class Incident:
    """Where one incident stands.

    `attempt` is 0 before the first run of the runbook. `passed` are the steps of the present attempt that are over, in
    order; the next step is the first of the runbook that is not among them. `step_since` is when the present step (or
    verification) began. `operations` are all of the incident's, oldest first.
    """

    id: str
    diagnosis: Diagnosis
    opened_at: float
    state: IncidentState = IncidentState.OPEN
    attempt: int = 0
    runbook: str | None = None
    passed: tuple[str, ...] = ()
    step_since: float | None = None
    operations: tuple[Operation, ...] = ()
    decision: Decision | None = None
    approval: Approval | None = None
    ended_at: float | None = None
    ending: Ending | None = None
    says: str = ""
    cost: str = ""

    @property
    def cause(self) -> str:
        return self.diagnosis.cause

    @property
    def entity(self) -> Entity:
        return self.diagnosis.entity

    @property
    def pending(self) -> Operation | None:
        """The operation whose intent is written and whose outcome is not, if any."""
        return next((operation for operation in self.operations if operation.outcome is None), None)


def apply(incident: Incident | None, event: IncidentEvent) -> Incident:
    """The incident after `event`. Raises ValueError when the event cannot follow (a damaged journal)."""
    raise NotImplementedError


def fold(events: Iterable[IncidentEvent]) -> Incident:
    """The incident after all its events, oldest first. Raises ValueError when there are none."""
    raise NotImplementedError
