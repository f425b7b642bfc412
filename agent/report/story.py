"""Story: one incident told from its events, as data; how it looks is each sink's own affair.

The sentences come from agent.report.wording. The same events make the same story.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from actuators.action import OutcomeStatus
from agent.incident import (
    ApprovalAnswered,
    ApprovalAsked,
    AttemptStarted,
    Closed,
    Ended,
    Incident,
    IncidentEvent,
    Intended,
    Opened,
    Operation,
    Rediagnosed,
    RollbackStarted,
    VerificationStarted,
    Withdrawn,
)
from agent.report import wording
from agent.report.outlook import NEEDS_PERSON, Outlook, outlook
from serving.fleet.entity import Entity

# What takes an entity out of service, and what puts it back.
_TAKES_OUT = {"door.drain": "door.undrain", "engine.pause": "engine.resume"}


@dataclass(frozen=True, slots=True)
class Deed:
    """One thing that was done, with its time (Unix seconds) and, for an operation, how it came out."""

    at: float
    text: str
    outcome: str = ""


@dataclass(frozen=True, slots=True)
class Story:
    """Everything a person wants to know of an incident. Texts are plain, but for commands in backticks.

    `since` is when the symptoms began, `noticed_at` when the incident was opened, `open_until` when a request for approval
    expires (Unix seconds). `served` says whether users are served well again, `todo` what a person should do now.
    """

    incident: str
    outlook: Outlook
    headline: str
    what: str
    since: float
    noticed_at: float
    ended_at: float | None
    why: tuple[str, ...]
    doubts: tuple[str, ...]
    ruled_out: tuple[str, ...]
    done: tuple[Deed, ...]
    served: str
    cost: str
    todo: tuple[str, ...]
    open_until: float | None = None

    @property
    def needs_person(self) -> bool:
        """Whether somebody has to do something now."""
        return self.outlook in NEEDS_PERSON


def story(incident: Incident, events: Sequence[IncidentEvent], advice: str = "") -> Story:
    """The story of `incident`, whose `events` are given oldest first.

    `advice` is what its runbook says to a person when the warden cannot go on.
    """
    view = outlook(incident)
    asked = incident.approval.expires_at if view is Outlook.ASKS and incident.approval is not None else None
    earlier = [event.diagnosis for event in events if isinstance(event, Opened | Rediagnosed)]
    return Story(
        incident=incident.id,
        outlook=view,
        headline=wording.headline(incident, view),
        what=wording.what(incident.cause),
        since=min(incident.diagnosis.since, incident.opened_at),
        noticed_at=incident.opened_at,
        ended_at=incident.ended_at,
        why=wording.why(incident.diagnosis),
        doubts=wording.doubts(incident.diagnosis),
        ruled_out=wording.ruled_out(incident.diagnosis, earlier),
        done=deeds(incident, events),
        served=wording.served(incident),
        cost=incident.cost,
        todo=wording.todo(incident, view, out_of_service(incident), advice),
        open_until=asked,
    )


def out_of_service(incident: Incident) -> tuple[Entity, ...]:
    """What the warden took out of service in this incident and did not put back, as far as is known."""
    out: dict[tuple[str, Entity], None] = {}
    backs = {back: take for take, back in _TAKES_OUT.items()}
    for operation in incident.operations:
        action = operation.action
        happened = operation.outcome is None or operation.outcome.status is not OutcomeStatus.FAILED
        if wording.rehearsed(operation) or not happened:
            continue
        if action.verb in _TAKES_OUT:
            out[action.verb, action.target] = None
        elif action.verb in backs and not operation.pending:
            out.pop((backs[action.verb], action.target), None)
    return tuple(dict.fromkeys(target for _, target in out))


def deeds(incident: Incident, events: Sequence[IncidentEvent]) -> tuple[Deed, ...]:
    """What was done, in the order of the record: operations with how they came out, attempts, people's answers, the end."""
    operations = {operation.key: operation for operation in incident.operations}
    withdrawn = {event.key: event.says for event in events if isinstance(event, Withdrawn)}
    return tuple(deed for event in events if (deed := _deed(event, operations, withdrawn)) is not None)


def _deed(event: IncidentEvent, operations: Mapping[str, Operation], withdrawn: Mapping[str, str]) -> Deed | None:
    match event:
        case Intended(key=key) if key in operations:
            return Deed(event.at, wording.past(event.action), wording.outcome(operations[key]))
        case Intended():
            return Deed(event.at, wording.past(event.action), f"withdrawn: {wording.clause(withdrawn.get(event.key, ''))}")
        case Ended():
            return Deed(event.at, wording.ended(event))
        case AttemptStarted() | RollbackStarted() | VerificationStarted() | ApprovalAsked() | ApprovalAnswered() | Closed():
            return Deed(event.at, wording.transition(event))
    return None
