"""A journal in a database: SQLite in a file by default."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any

from sqlalchemy import Connection, Engine, Select, delete, insert, select, update
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from agent.incident import Incident, IncidentEvent, Intended, Opened, apply
from agent.journal import rules, versions
from agent.journal.codec import decode, encode
from agent.journal.dialect import WRITES, alone, check_whole, insert_once, make_engine, translate, upsert
from agent.journal.port import Answer, DamagedError, Entry, JournalError, KeyTakenError, Note, Switch
from agent.journal.schema import cursors, engine_slots, entries, incidents, operation_keys, switches, writer

_REMEMBERED = 1_000  # incidents kept folded in memory, so that a step of the loop reads only what is new


def open_journal(location: Path | str, *, create: bool = True, patience: float = 10.0) -> "StoredJournal":
    """Open the journal in a file, or at a database URL (`dialect://...`).

    The warden opens with `create`: a missing journal is made, an older one is brought up to date. Commands that only look
    or answer open without it. `patience`: seconds to wait while another process writes. Raises JournalError with what to
    do when it is missing, locked, damaged, not a journal, or of a newer version; it is then left as it was.
    """
    url, shown = resolve(location, create=create)
    try:
        engine = make_engine(url, patience)
    except (SQLAlchemyError, ImportError) as error:
        raise JournalError(
            f"{shown} cannot be opened as a journal: {error}; PostgreSQL needs the extra `fleetwarden[postgres]`"
        ) from error
    journal = StoredJournal(engine, shown)
    try:
        journal.prepare(create=create)
    except BaseException:
        engine.dispose()
        raise
    return journal


def resolve(location: Path | str, *, create: bool) -> tuple[URL, str]:
    """The URL of a journal's database, and how it is shown, without its password. Raises JournalError."""
    if isinstance(location, str) and "://" in location:
        try:
            url = make_url(location)
        except SQLAlchemyError as error:
            raise JournalError(
                f"the journal's URL cannot be read: write dialect://user:password@host/name ({error})"
            ) from error
        if url.get_backend_name() == "sqlite" and url.database and not url.query:
            return resolve(Path(url.database), create=create)
        return url, url.render_as_string(hide_password=True)
    path = Path(location).absolute()
    if create:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise JournalError(f"the folder of the journal {path} cannot be made: {error}; choose another one") from error
    elif not path.exists():
        raise JournalError(f"there is no journal at {path}: no warden ever ran with this state directory; check its name")
    return URL.create("sqlite", database=str(path)), str(path)


class StoredJournal:
    """A Journal over SQLAlchemy. Open one with `open_journal`."""

    def __init__(self, engine: Engine, location: str) -> None:
        self._engine = engine
        self._writer = engine.execution_options(**{WRITES: True})
        self._location = location
        self._lock = Lock()
        self._term: int | None = None
        self._folded: dict[str, tuple[int, Incident]] = {}  # used lately, with the last entry folded into each

    @property
    def location(self) -> str:
        return self._location

    def prepare(self, *, create: bool) -> None:
        """Check the store; with `create`, bring its tables up to date."""
        if not create:
            with self._read() as connection:
                versions.require_up_to_date(connection, self._location)
            return
        with self._translated(), self._writer.begin() as connection:
            alone(connection)
            check_whole(connection, self._location)
            versions.bring_up_to_date(connection, self._location)

    def begin_term(self, term: int, holder: str, at: float) -> None:
        with self._translated(), self._writer.begin() as connection:
            latest = connection.execute(select(writer).with_for_update()).one()
            rules.may_begin(term, holder, latest.term, latest.holder)
            connection.execute(update(writer).values(term=term, holder=holder, since=at))
        self._term = term

    def latest_term(self) -> int:
        with self._read() as connection:
            return int(connection.execute(select(writer.c.term)).scalar_one())

    def append(self, event: IncidentEvent) -> int:
        with self._write() as connection:
            seq, after = self._append(connection, event, self._term)
        self._keep(seq, after)
        return seq

    def note(self, note: Note) -> int:
        with self._write() as connection:
            return self._insert(connection, note, self._term)

    def events(self, since: int = 0, incident: str | None = None, limit: int | None = None) -> tuple[Entry, ...]:
        query = select(entries.c.seq, entries.c.body, entries.c.term).where(entries.c.seq > since)
        query = query.order_by(entries.c.seq).limit(limit)
        if incident is not None:
            query = query.where(entries.c.incident == incident)
        with self._read() as connection:
            return tuple(Entry(seq, self._decode(seq, body), term) for seq, body, term in connection.execute(query))

    def incidents(self, *, open_only: bool = False, since: float | None = None) -> tuple[Incident, ...]:
        query = select(incidents.c.id).order_by(incidents.c.opened_seq)
        if open_only:
            query = query.where(~incidents.c.ended)
        if since is not None:
            query = query.where(incidents.c.over_at.is_(None) | (incidents.c.over_at >= since))
        return self._fold_all(query)

    def standing(self) -> tuple[Incident, ...]:
        return self._fold_all(select(incidents.c.id).where(incidents.c.standing).order_by(incidents.c.opened_seq))

    def incident(self, incident: str) -> Incident | None:
        with self._read() as connection:
            return self._fold(connection, incident)

    def switch(self, name: str) -> Switch:
        with self._read() as connection:
            row = connection.execute(select(switches).where(switches.c.name == name)).first()
        return Switch(name) if row is None else Switch(row.name, row.is_on, row.turned_by, row.turned_at, row.why)

    def set_switch(self, name: str, *, on: bool, by: str, at: float, why: str = "") -> Switch:
        switch = Switch(name, on, by, at, why)
        with self._write() as connection:
            values = {"name": name, "is_on": on, "turned_by": by, "turned_at": at, "why": why}
            upsert(connection, switches, values)
            self._insert(connection, rules.switch_note(switch), self._term)
        return switch

    def cursor(self, sink: str) -> int:
        with self._read() as connection:
            return connection.execute(select(cursors.c.seq).where(cursors.c.sink == sink)).scalar() or 0

    def set_cursor(self, sink: str, seq: int) -> None:
        with self._write() as connection:
            upsert(connection, cursors, {"sink": sink, "seq": seq}, only_up="seq")

    def engine_slots(self) -> dict[str, int]:
        with self._read() as connection:
            return _slots(connection)

    def keep_engine_slots(self, numbers: Mapping[str, int]) -> None:
        with self._write() as connection:
            kept = _slots(connection)
            changed = kept.keys() - {pod for pod, number in numbers.items() if kept.get(pod) == number}
            for pod in changed:
                connection.execute(delete(engine_slots).where(engine_slots.c.pod == pod))
            added = [{"pod": pod, "number": number} for pod, number in numbers.items() if kept.get(pod) != number]
            if added:
                connection.execute(insert(engine_slots), added)

    def approve(self, incident: str, by: str, now: float) -> Answer:
        return self._answer(incident, approved=True, by=by, now=now)

    def reject(self, incident: str, by: str, now: float) -> Answer:
        return self._answer(incident, approved=False, by=by, now=now)

    def prune(self, before: float) -> int:
        over = ~incidents.c.standing & (incidents.c.over_at < before)
        with self._write() as connection:
            gone = select(incidents.c.id).where(over)
            connection.execute(delete(entries).where(entries.c.incident.in_(gone)))
            connection.execute(delete(operation_keys).where(operation_keys.c.incident.in_(gone)))
            connection.execute(delete(entries).where(entries.c.incident.is_(None), entries.c.at < before))
            return connection.execute(delete(incidents).where(over)).rowcount

    def close(self) -> None:
        self._engine.dispose()

    @contextmanager
    def _read(self) -> Iterator[Connection]:
        with self._translated(), self._engine.begin() as connection:
            yield connection

    @contextmanager
    def _write(self, *, fenced: bool = True) -> Iterator[Connection]:
        """A writing transaction, one at a time in the whole journal; refused when our term is over, if `fenced`."""
        with self._translated(), self._writer.begin() as connection:
            latest = connection.execute(select(writer.c.term, writer.c.holder).with_for_update()).one()
            if fenced:
                rules.may_write(self._term, latest.term, latest.holder)
            yield connection

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except DBAPIError as error:
            raise translate(error, self._location) from error
        except SQLAlchemyError as error:
            raise JournalError(f"the journal {self._location} cannot be used: {error}; nothing was written") from error

    def _append(self, connection: Connection, event: IncidentEvent, term: int | None) -> tuple[int, Incident]:
        after = rules.after(self._fold(connection, event.incident, for_update=True), event)
        if isinstance(event, Intended) and not insert_once(
            connection, operation_keys, {"key": event.key, "incident": event.incident}
        ):
            owner = select(operation_keys.c.incident).where(operation_keys.c.key == event.key)
            raise KeyTakenError(rules.key_taken(event, connection.execute(owner).scalar_one()))
        seq = self._insert(connection, event, term)
        stands = {"ended": after.ended, "standing": after.standing, "over_at": rules.over_at(after)}
        if isinstance(event, Opened):
            connection.execute(insert(incidents).values(id=event.incident, opened_seq=seq, **stands))
        else:
            connection.execute(update(incidents).where(incidents.c.id == event.incident).values(**stands))
        return seq, after

    def _insert(self, connection: Connection, event: IncidentEvent | Note, term: int | None) -> int:
        kind, body = encode(event)
        values = {"at": event.at, "incident": rules.incident_of(event), "type": kind, "body": body, "term": term}
        return int(connection.execute(insert(entries).values(values).returning(entries.c.seq)).scalar_one())

    def _answer(self, incident: str, *, approved: bool, by: str, now: float) -> Answer:
        with self._write(fenced=False) as connection:  # a person's word counts, whichever warden heard it
            known = self._fold(connection, incident, for_update=True)
            result, event = rules.answer(known, incident, approved=approved, by=by, now=now)
            if event is None:
                return result
            seq, after = self._append(connection, event, None)
        self._keep(seq, after)
        return result

    def _fold_all(self, query: Select[Any]) -> tuple[Incident, ...]:
        with self._read() as connection:
            found = [self._fold(connection, name) for (name,) in connection.execute(query).all()]
        return tuple(incident for incident in found if incident is not None)

    def _fold(self, connection: Connection, name: str, *, for_update: bool = False) -> Incident | None:
        """The incident as committed, reading only what came since it was folded last."""
        known = select(incidents.c.id).where(incidents.c.id == name)
        if connection.execute(known.with_for_update() if for_update else known).first() is None:
            return None
        with self._lock:
            seq, incident = self._folded.get(name, (0, None))
        query = select(entries.c.seq, entries.c.body).where(entries.c.incident == name, entries.c.seq > seq)
        for seq, body in connection.execute(query.order_by(entries.c.seq)):
            incident = self._apply(incident, seq, body)
        if incident is not None:
            self._keep(seq, incident)
        return incident

    def _apply(self, incident: Incident | None, seq: int, body: str) -> Incident:
        event = self._decode(seq, body)
        if isinstance(event, Note):
            raise DamagedError(f"entry {seq} of the journal {self._location} is a note that names an incident")
        try:
            return apply(incident, event)
        except ValueError as error:
            raise DamagedError(f"entry {seq} of the journal {self._location} makes no sense: {error}") from error

    def _decode(self, seq: int, body: str) -> IncidentEvent | Note:
        return decode(body, f"entry {seq} of the journal {self._location}")

    def _keep(self, seq: int, incident: Incident) -> None:
        with self._lock:
            if seq < self._folded.get(incident.id, (0, incident))[0]:
                return
            self._folded.pop(incident.id, None)
            self._folded[incident.id] = (seq, incident)  # the dict keeps the order of use
            if len(self._folded) > _REMEMBERED:
                self._folded.pop(next(iter(self._folded)))


def _slots(connection: Connection) -> dict[str, int]:
    return {row.pod: row.number for row in connection.execute(select(engine_slots))}
