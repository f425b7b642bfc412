"""What may be written to a journal, as pure functions shared by all of them."""

from agent.incident import ApprovalAnswered, Incident, IncidentEvent, Intended, apply
from agent.journal.port import Answer, DeposedError, Note, OutOfOrderError, Switch


def after(incident: Incident | None, event: IncidentEvent) -> Incident:
    """The incident once `event` is written. Raises OutOfOrderError when it may not be."""
    try:
        return apply(incident, event)
    except ValueError as error:
        raise OutOfOrderError(f"{error}; nothing was written") from error


def answer(
    incident: Incident | None, name: str, *, approved: bool, by: str, now: float
) -> tuple[Answer, ApprovalAnswered | None]:
    """What becomes of a person's answer, and the event to write when it counts."""
    if incident is None:
        return Answer.NO_SUCH_INCIDENT, None
    if incident.ended:
        return Answer.ENDED, None
    if incident.approval is None:
        return Answer.NOT_ASKED, None
    if incident.approval.approved is not None:
        return Answer.ALREADY_ANSWERED, None
    if now >= incident.approval.expires_at:
        return Answer.EXPIRED, None
    return Answer.ACCEPTED, ApprovalAnswered(name, now, approved=approved, by=by)


def switch_note(switch: Switch) -> Note:
    """The note that tells of a turned switch."""
    turned = "on" if switch.on else "off"
    because = f": {switch.why}" if switch.why else ""
    return Note(
        switch.at, f"switch.{turned}", f"{switch.by} turned {switch.name} {turned}{because}", {"switch": switch.name}
    )


def over_at(incident: Incident) -> float | None:
    """Since when an incident is over for good: ended, and no longer standing for its cause."""
    if incident.standing or incident.ended_at is None:
        return None
    return max(incident.ended_at, incident.closed_at or incident.ended_at)


def not_over(incident: Incident, at: float) -> bool:
    """Whether an incident was not over for good at that time, or not before it."""
    over = over_at(incident)
    return over is None or over >= at


def incident_of(event: IncidentEvent | Note) -> str | None:
    """The incident that an entry is about; None for a note."""
    return None if isinstance(event, Note) else event.incident


def may_begin(term: int, holder: str, latest: int, latest_holder: str) -> None:
    """Raise DeposedError unless `term` may begin: it is later than `latest`, or the same one of the same holder."""
    if term < latest or (term == latest and holder != latest_holder):
        raise DeposedError(
            f"term {term} of {holder} cannot begin: {latest_holder or 'another warden'} began term {latest}", latest
        )


def may_write(term: int | None, latest: int, holder: str) -> None:
    """Raise DeposedError when a later term than `term` has begun. None: no warden writes, but a person."""
    if term is not None and term < latest:
        raise DeposedError(f"{holder} writes in term {latest}, which ended term {term}; nothing was written", latest)


def key_taken(event: Intended, owner: str) -> str:
    """Why an intent is refused."""
    return f"operation key {event.key!r} was used already, in incident {owner!r}; nothing was written"
