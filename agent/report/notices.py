"""Making notices of what the journal holds. Pure: the same entries make the same notice, with the same id."""

from collections.abc import Callable, Sequence

from agent.incident import Incident, IncidentEvent, fold
from agent.journal.port import Entry, Note
from agent.report import wording
from agent.report.notice import Notice, NoticeKind
from agent.report.story import story as told

_KINDS = {kind.value.replace("_", ""): kind for kind in NoticeKind}


def kind_of(event: IncidentEvent | Note) -> NoticeKind:
    """The kind of the notice that tells `event`: the event's own name. Raises KeyError for an event without one."""
    return _KINDS[type(event).__name__.lower()]


def events_of(entries: Sequence[Entry]) -> list[IncidentEvent]:
    """The events of an incident's entries."""
    return [entry.event for entry in entries if not isinstance(entry.event, Note)]


def transition(entry: Entry, history: Sequence[Entry], advise: Callable[[Incident], str]) -> Notice:
    """The notice of one entry. `history` are its incident's entries up to it, itself included; empty for a note."""
    event = entry.event
    if isinstance(event, Note) or not history:
        return Notice(f"note/{entry.seq}", entry.seq, event.at, NoticeKind.NOTE, wording.transition(event), event=event)
    events = events_of(history)
    incident = fold(events)
    return Notice(
        id=f"{incident.id}/{entry.seq}",
        seq=entry.seq,
        at=event.at,
        kind=kind_of(event),
        headline=wording.transition(event, incident),
        incident=incident,
        story=told(incident, events, advise(incident)),
        event=event,
    )


def story(entries: Sequence[Entry], kind: NoticeKind, advise: Callable[[Incident], str]) -> Notice:
    """The notice that tells an incident's whole story so far, or in a FOLLOW_UP how it came out."""
    events = events_of(entries)
    incident = fold(events)
    tale = told(incident, events, advise(incident))
    last = entries[-1]
    return Notice(f"{incident.id}/{last.seq}/{kind}", last.seq, last.event.at, kind, tale.headline, incident, tale)
