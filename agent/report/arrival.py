"""How a sink that is new to a journal finds its place: it is told what is going on, not the history of the fleet."""

from agent.incident import Ended
from agent.journal.port import Entry, Note
from agent.report.notice import EventLog, Manner, Sink

NEWCOMER = 600.0  # seconds: what was over earlier than this before the sink came is history


def place_of(sink: Sink, incident: str) -> str:
    """The name under which is kept how far a sink that hears stories was told of `incident`."""
    return f"{sink.name}:{incident}"


def arrive(log: EventLog, sink: Sink, now: float) -> None:
    """Give `sink` its first place in `log`, once: a sink that came and was never reached since keeps what waits for it."""
    came = f"{sink.name}#came"
    if log.cursor(came):
        return
    entries = log.events()
    if sink.manner is Manner.STORIES:
        _pass_over_finished(log, sink, entries, now - NEWCOMER)
    else:
        log.set_cursor(sink.name, max((entry.seq for entry in entries if entry.event.at < now - NEWCOMER), default=0))
    log.set_cursor(came, 1)


def _pass_over_finished(log: EventLog, sink: Sink, entries: tuple[Entry, ...], before: float) -> None:
    """Mark the incidents that ended before `before` as told; begin at the first entry of the oldest of the others."""
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    finished: set[str] = set()
    for entry in entries:
        if not isinstance(entry.event, Note):
            name = entry.event.incident
            first.setdefault(name, entry.seq)
            last[name] = entry.seq
            if isinstance(entry.event, Ended) and entry.event.at < before:
                finished.add(name)
    end = entries[-1].seq if entries else 0
    begin = min((seq for name, seq in first.items() if name not in finished), default=end + 1) - 1
    for name in finished:
        if last[name] > begin:
            log.set_cursor(place_of(sink, name), last[name])
    log.set_cursor(sink.name, begin)
