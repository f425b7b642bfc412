"""A journal in memory: the same rules, nothing kept. For tests and rehearsals."""

from collections.abc import Mapping
from threading import RLock

from agent.incident import Incident, IncidentEvent, Intended
from agent.journal import rules
from agent.journal.port import Answer, Entry, KeyTakenError, Note, Switch


class MemoryJournal:
    """A Journal that is gone with its process."""

    def __init__(self) -> None:
        self._lock = RLock()
        self._last = 0
        self._entries: list[Entry] = []
        self._incidents: dict[str, Incident] = {}
        self._keys: dict[str, str] = {}
        self._switches: dict[str, Switch] = {}
        self._cursors: dict[str, int] = {}
        self._slots: dict[str, int] = {}
        self._term: int | None = None
        self._latest = (0, "")

    @property
    def location(self) -> str:
        return "memory"

    def begin_term(self, term: int, holder: str, at: float) -> None:  # noqa: ARG002 - nobody looks up when
        with self._lock:
            rules.may_begin(term, holder, *self._latest)
            self._term, self._latest = term, (term, holder)

    def latest_term(self) -> int:
        return self._latest[0]

    def append(self, event: IncidentEvent) -> int:
        with self._lock:
            after = rules.after(self._incidents.get(event.incident), event)
            if isinstance(event, Intended):
                if event.key in self._keys:
                    raise KeyTakenError(rules.key_taken(event, self._keys[event.key]))
                self._keys[event.key] = event.incident
            self._incidents[event.incident] = after
            return self._write(event)

    def note(self, note: Note) -> int:
        with self._lock:
            return self._write(note)

    def events(self, since: int = 0, incident: str | None = None, limit: int | None = None) -> tuple[Entry, ...]:
        with self._lock:
            later = (entry for entry in self._entries if entry.seq > since)
            found = [entry for entry in later if incident is None or rules.incident_of(entry.event) == incident]
            return tuple(found[:limit])

    def incidents(self, *, open_only: bool = False, since: float | None = None) -> tuple[Incident, ...]:
        with self._lock:
            found = [incident for incident in self._incidents.values() if not (open_only and incident.ended)]
            return tuple(incident for incident in found if since is None or rules.not_over(incident, since))

    def standing(self) -> tuple[Incident, ...]:
        with self._lock:
            return tuple(incident for incident in self._incidents.values() if incident.standing)

    def incident(self, incident: str) -> Incident | None:
        with self._lock:
            return self._incidents.get(incident)

    def switch(self, name: str) -> Switch:
        with self._lock:
            return self._switches.get(name, Switch(name))

    def set_switch(self, name: str, *, on: bool, by: str, at: float, why: str = "") -> Switch:
        with self._lock:
            switch = self._switches[name] = Switch(name, on, by, at, why)
            self._write(rules.switch_note(switch))
            return switch

    def cursor(self, sink: str) -> int:
        with self._lock:
            return self._cursors.get(sink, 0)

    def set_cursor(self, sink: str, seq: int) -> None:
        with self._lock:
            self._cursors[sink] = max(seq, self._cursors.get(sink, 0))

    def engine_slots(self) -> dict[str, int]:
        with self._lock:
            return dict(self._slots)

    def keep_engine_slots(self, numbers: Mapping[str, int]) -> None:
        with self._lock:
            self._slots = dict(numbers)

    def approve(self, incident: str, by: str, now: float) -> Answer:
        return self._answer(incident, approved=True, by=by, now=now)

    def reject(self, incident: str, by: str, now: float) -> Answer:
        return self._answer(incident, approved=False, by=by, now=now)

    def prune(self, before: float) -> int:
        with self._lock:
            ends = {name: rules.over_at(incident) for name, incident in self._incidents.items()}
            gone = {name for name, at in ends.items() if at is not None and at < before}
            self._incidents = {name: incident for name, incident in self._incidents.items() if name not in gone}
            self._keys = {key: name for key, name in self._keys.items() if name not in gone}
            self._entries = [entry for entry in self._entries if not self._stale(entry, gone, before)]
            return len(gone)

    def close(self) -> None:
        """Nothing is held."""

    def _write(self, event: IncidentEvent | Note) -> int:
        self._last += 1
        self._entries.append(Entry(self._last, event, self._term))
        return self._last

    def _answer(self, incident: str, *, approved: bool, by: str, now: float) -> Answer:
        with self._lock:
            known = self._incidents.get(incident)
            result, event = rules.answer(known, incident, approved=approved, by=by, now=now)
            if event is not None:
                self.append(event)
            return result

    @staticmethod
    def _stale(entry: Entry, gone: set[str], before: float) -> bool:
        if isinstance(entry.event, Note):
            return entry.event.at < before
        return entry.event.incident in gone
