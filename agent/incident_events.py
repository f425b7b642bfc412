"""The events of an incident's life: one dataclass a transition, as they are written to the journal.

Beside them, the parts that an incident is put together from. Does not belong here: what an event does to an incident
(agent.incident), how it is stored (agent.journal).
"""

from dataclasses import dataclass
from enum import StrEnum

from actuators.action import Action, Outcome, OutcomeStatus
from agent.decision.decision import Decision
from agent.diagnosis.diagnosis import Diagnosis


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
    HANDED_OVER = "handed_over"  # the runbook did its part, the rest is a person's
    REJECTED = "rejected"


@dataclass(frozen=True, slots=True)
class Operation:
    """One action of an incident, from intent to outcome. `key` is unique in the whole journal.

    `outcome` is None while only the intent is written: after a crash such an operation is looked up, never repeated.
    """

    key: str
    step: str
    attempt: int
    action: Action
    intended_at: float
    finished_at: float | None = None
    outcome: Outcome | None = None

    @property
    def pending(self) -> bool:
        """Nobody knows yet what became of it."""
        return self.outcome is None or self.outcome.status is OutcomeStatus.UNKNOWN


@dataclass(frozen=True, slots=True)
class Approval:
    """The newest request for a person's consent. `approved` is None until answered."""

    asked_at: float
    expires_at: float
    approved: bool | None = None
    by: str = ""


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
class SymptomsGone:
    """The cause is no longer diagnosed, while its target can be seen. Written once, when it begins."""

    incident: str
    at: float


@dataclass(frozen=True, slots=True)
class SymptomsBack:
    """The cause is diagnosed again after it was gone, or may be: its target cannot be seen any more."""

    incident: str
    at: float


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
class Withdrawn:
    """An intended action never touched the world, and is known not to have: the step is due again, under a new key."""

    incident: str
    at: float
    key: str
    says: str


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


@dataclass(frozen=True, slots=True)
class Closed:
    """An incident that ended with its cause still there stands for that cause no more: the next one opens a new incident."""

    incident: str
    at: float
    says: str


IncidentEvent = (
    Opened
    | Rediagnosed
    | SymptomsGone
    | SymptomsBack
    | Decided
    | AttemptStarted
    | Intended
    | Finished
    | Withdrawn
    | StepPassed
    | RollbackStarted
    | VerificationStarted
    | ApprovalAsked
    | ApprovalAnswered
    | Ended
    | Closed
)
