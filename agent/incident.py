"""Incident: one cause's life, as the fold of its journal events.

`apply` is pure: the same events give the same incident, which is how a restarted warden knows where it stood. It is also
strict: what cannot follow is refused, so a journal never holds a history that makes no sense.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import singledispatch

from agent.decision.decision import Decision
from agent.diagnosis.diagnosis import Diagnosis
from agent.incident_events import (
    ENDED,
    Approval,
    ApprovalAnswered,
    ApprovalAsked,
    AttemptStarted,
    Closed,
    Decided,
    Ended,
    Ending,
    Finished,
    IncidentEvent,
    IncidentState,
    Intended,
    Opened,
    Operation,
    Rediagnosed,
    RollbackStarted,
    StepPassed,
    SymptomsBack,
    SymptomsGone,
    VerificationStarted,
    Withdrawn,
)
from serving.fleet.entity import Entity

__all__ = [
    "ENDED",
    "Approval",
    "ApprovalAnswered",
    "ApprovalAsked",
    "AttemptStarted",
    "Closed",
    "Decided",
    "Ended",
    "Ending",
    "Finished",
    "Incident",
    "IncidentEvent",
    "IncidentState",
    "Intended",
    "Opened",
    "Operation",
    "Rediagnosed",
    "RollbackStarted",
    "StepPassed",
    "SymptomsBack",
    "SymptomsGone",
    "VerificationStarted",
    "Withdrawn",
    "apply",
    "fold",
]

_REPAIRING = (IncidentState.ACTING, IncidentState.ROLLING_BACK)


@dataclass(frozen=True, slots=True)
class Incident:
    """Where one incident stands.

    `attempt` is 0 before the first run of the runbook. `passed` are the steps of the present attempt that are over, in
    order; the next step is the first of the runbook that is not among them. `step_since` is when the present step (or
    rollback, or verification) began. `operations` are all of the incident's, oldest first; `withdrawn` are those that
    never touched the world. `gone_since` is when its cause was last no longer diagnosed, None while it is. `closed_at` is
    when an incident that ended unrepaired stopped standing for its cause.
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
    withdrawn: tuple[Operation, ...] = ()
    gone_since: float | None = None
    closed_at: float | None = None

    @property
    def cause(self) -> str:
        return self.diagnosis.cause

    @property
    def entity(self) -> Entity:
        return self.diagnosis.entity

    @property
    def pending(self) -> Operation | None:
        """The operation of which nobody knows yet what became: no outcome is written, or an unknown one."""
        return next((operation for operation in self.operations if operation.pending), None)

    @property
    def ended(self) -> bool:
        return self.state in ENDED

    @property
    def standing(self) -> bool:
        """It still stands for its cause: no new incident opens for the same cause on the same entity."""
        return self.closed_at is None and self.state is not IncidentState.RESOLVED


def apply(incident: Incident | None, event: IncidentEvent) -> Incident:
    """The incident after `event`. Raises ValueError, naming both, when the event cannot follow (a damaged journal)."""
    if isinstance(event, Opened):
        if incident is not None:
            raise _refusal(incident, event, "it is open already")
        return Incident(id=event.incident, diagnosis=event.diagnosis, opened_at=event.at)
    if incident is None:
        raise ValueError(f"{type(event).__name__} cannot be the first event of incident {event.incident!r}")
    if incident.id != event.incident:
        raise _refusal(incident, event, f"the event belongs to incident {event.incident!r}")
    return _after(event, incident)


def fold(events: Iterable[IncidentEvent]) -> Incident:
    """The incident after all its events, oldest first. Raises ValueError when there are none or one cannot follow."""
    incident: Incident | None = None
    for event in events:
        incident = apply(incident, event)
    if incident is None:
        raise ValueError("an incident has at least one event; there are none")
    return incident


def _refusal(incident: Incident, event: IncidentEvent, why: str) -> ValueError:
    return ValueError(f"{type(event).__name__} cannot follow in incident {incident.id!r} ({incident.state}): {why}")


def _require(incident: Incident, event: IncidentEvent, *conditions: tuple[bool, str]) -> None:
    for holds, otherwise in conditions:
        if not holds:
            raise _refusal(incident, event, otherwise)


def _not_ended(incident: Incident) -> tuple[bool, str]:
    return not incident.ended, "it has ended"


def _in(incident: Incident, *states: IncidentState) -> tuple[bool, str]:
    return incident.state in states, f"it must be {' or '.join(states)}"


def _settled(incident: Incident) -> tuple[bool, str]:
    pending = incident.pending
    return pending is None, f"the outcome of operation {pending.key if pending else ''!r} is not known"


@singledispatch
def _after(event: IncidentEvent, incident: Incident) -> Incident:
    raise _refusal(incident, event, "it is not an event of an incident")


@_after.register
def _rediagnosed(event: Rediagnosed, incident: Incident) -> Incident:
    same = event.diagnosis.entity == incident.entity
    _require(
        incident,
        event,
        _in(incident, IncidentState.OPEN),
        (incident.attempt == 0, "something was done already"),
        (same, f"it is about {incident.entity}, not {event.diagnosis.entity}"),
    )
    return replace(incident, diagnosis=event.diagnosis, gone_since=None)


@_after.register
def _symptoms_gone(event: SymptomsGone, incident: Incident) -> Incident:
    standing, missed = incident.standing, incident.gone_since is None
    _require(incident, event, (standing, "it is over"), (missed, "its symptoms are gone already"))
    return replace(incident, gone_since=event.at)


@_after.register
def _symptoms_back(event: SymptomsBack, incident: Incident) -> Incident:
    standing, gone = incident.standing, incident.gone_since is not None
    _require(incident, event, (standing, "it is over"), (gone, "its symptoms were not gone"))
    return replace(incident, gone_since=None)


@_after.register
def _decided(event: Decided, incident: Incident) -> Incident:
    _require(incident, event, _not_ended(incident))
    return replace(incident, decision=event.decision)


@_after.register
def _attempt_started(event: AttemptStarted, incident: Incident) -> Incident:
    next_one = incident.attempt + 1
    _require(
        incident,
        event,
        _in(incident, IncidentState.OPEN, IncidentState.ROLLING_BACK),
        _settled(incident),
        (event.attempt == next_one, f"attempt {next_one} comes next, not {event.attempt}"),
    )
    return replace(
        incident,
        state=IncidentState.ACTING,
        attempt=event.attempt,
        runbook=event.runbook,
        passed=(),
        step_since=event.at,
        gone_since=None,
    )


@_after.register
def _intended(event: Intended, incident: Incident) -> Incident:
    keys = {operation.key for operation in (*incident.operations, *incident.withdrawn)}
    probe = incident.state is IncidentState.OPEN and incident.attempt == 0
    _require(
        incident,
        event,
        (probe or incident.state in _REPAIRING, "no attempt is under way"),
        _settled(incident),
        (event.attempt == incident.attempt, f"attempt {incident.attempt} is under way, not {event.attempt}"),
        (event.key not in keys, f"operation key {event.key!r} was used already"),
        (event.step not in incident.passed, f"step {event.step!r} is over"),
    )
    operation = Operation(event.key, event.step, event.attempt, event.action, intended_at=event.at)
    return replace(incident, operations=(*incident.operations, operation), step_since=event.at)


@_after.register
def _finished(event: Finished, incident: Incident) -> Incident:
    _require_pending(incident, event, event.key)
    finished = tuple(
        replace(operation, finished_at=event.at, outcome=event.outcome) if operation.key == event.key else operation
        for operation in incident.operations
    )
    return replace(incident, operations=finished)


@_after.register
def _withdrawn(event: Withdrawn, incident: Incident) -> Incident:
    _require_pending(incident, event, event.key)
    kept = tuple(operation for operation in incident.operations if operation.key != event.key)
    void = tuple(replace(operation, finished_at=event.at) for operation in incident.operations if operation.key == event.key)
    return replace(incident, operations=kept, withdrawn=incident.withdrawn + void)


def _require_pending(incident: Incident, event: Finished | Withdrawn, key: str) -> None:
    """An escalated incident still takes the outcome of an operation that was unknown when it ended."""
    waiting = incident.pending is not None and incident.pending.key == key
    known = not incident.ended or incident.state is IncidentState.ESCALATED
    _require(incident, event, (known, "it has ended"), (waiting, f"operation {key!r} does not wait for its outcome"))


@_after.register
def _step_passed(event: StepPassed, incident: Incident) -> Incident:
    again = event.step not in incident.passed, f"step {event.step!r} is over already"
    _require(incident, event, _in(incident, *_REPAIRING), _settled(incident), again)
    return replace(incident, passed=(*incident.passed, event.step), step_since=event.at)


@_after.register
def _rollback_started(event: RollbackStarted, incident: Incident) -> Incident:
    _require(incident, event, _in(incident, IncidentState.ACTING, IncidentState.VERIFYING), _settled(incident))
    return replace(incident, state=IncidentState.ROLLING_BACK, step_since=event.at)


@_after.register
def _verification_started(event: VerificationStarted, incident: Incident) -> Incident:
    _require(incident, event, _in(incident, IncidentState.ACTING), _settled(incident))
    return replace(incident, state=IncidentState.VERIFYING, step_since=event.at)


@_after.register
def _approval_asked(event: ApprovalAsked, incident: Incident) -> Incident:
    lasts = event.expires_at > event.at, "the request expires before it is made"
    _require(incident, event, _not_ended(incident), _settled(incident), lasts)
    return replace(incident, approval=Approval(asked_at=event.at, expires_at=event.expires_at))


@_after.register
def _approval_answered(event: ApprovalAnswered, incident: Incident) -> Incident:
    approval = incident.approval
    if approval is None or approval.approved is not None:
        raise _refusal(incident, event, "no request for approval waits for an answer")
    _require(incident, event, _not_ended(incident), (event.at < approval.expires_at, "the request for approval has expired"))
    return replace(incident, approval=replace(approval, approved=event.approved, by=event.by))


@_after.register
def _ended(event: Ended, incident: Incident) -> Incident:
    escalated = event.state is IncidentState.ESCALATED
    _require(
        incident,
        event,
        _not_ended(incident),
        (event.state in ENDED, f"{event.state} is no end"),
        (escalated or incident.pending is None, "an operation whose outcome is not known can only be escalated"),
    )
    return replace(
        incident,
        state=event.state,
        ended_at=event.at,
        ending=event.ending,
        says=event.says,
        cost=event.cost,
        gone_since=None,
    )


@_after.register
def _closed(event: Closed, incident: Incident) -> Incident:
    _require(incident, event, (incident.ended, "it has not ended"), (incident.standing, "it stands for its cause no more"))
    return replace(incident, closed_at=event.at)
