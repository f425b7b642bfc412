"""Story: one incident told from its events, as data; how it looks is each sink's own affair.

The sentences come from agent.report.wording. The same events make the same story.
"""

from collections.abc import Iterator, Sequence
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
    """What was done, oldest first: operations with how they came out, attempts, people's answers, the end."""
    withdrawn = {event.key: event.says for event in events if isinstance(event, Withdrawn)}
    operations = [*map(_operation, incident.operations)]
    operations += [
        Deed(o.intended_at, wording.past(o.action), f"withdrawn: {withdrawn.get(o.key, '')}") for o in incident.withdrawn
    ]
    return tuple(sorted([*operations, *_transitions(events)], key=lambda deed: deed.at))


def _operation(operation: Operation) -> Deed:
    return Deed(operation.intended_at, wording.past(operation.action), wording.outcome(operation))


def _transitions(events: Sequence[IncidentEvent]) -> Iterator[Deed]:
    for event in events:
        match event:
            case Ended():
                yield Deed(event.at, wording.ended(event))
            case AttemptStarted() | RollbackStarted() | VerificationStarted() | Closed():
                yield Deed(event.at, wording.transition(event))
            case ApprovalAsked() | ApprovalAnswered():
                yield Deed(event.at, wording.transition(event))
