"""The one place that knows which database it is: connections, upserts, and what a database's errors mean.

PostgreSQL ends what hangs: a statement or a wait for a lock that takes too long, and a transaction whose process was frozen
in the middle and would keep all others from writing.

SQLite runs in WAL mode, so that commands read while the warden writes, with synchronous=FULL, so that an intent is on the
disk before the world is touched. A writing transaction takes the write lock when it begins, never half way.
"""

import math
from collections.abc import Callable, Mapping
from sqlite3 import Connection as SqliteConnection
from typing import Any

from sqlalchemy import Connection, Engine, Table, create_engine, event
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError

from agent.journal.port import DamagedError, JournalError

WRITES = "journal_writes"  # the execution option of a connection that is going to write

IDLE_SHARE = 0.5  # of the patience for which others wait
_PREPARING = 0x666C6565  # any number of our own: PostgreSQL's advisory locks have no names

_MEANINGS: tuple[tuple[str, type[JournalError], str], ...] = (
    (
        "SQLITE_BUSY",
        JournalError,
        "is locked by another process for too long: find who holds it (fuser {file}) and try again",
    ),
    ("SQLITE_READONLY_DBMOVED", JournalError, "was moved or deleted while it was open: put it back, or restart the warden"),
    (
        "SQLITE_READONLY",
        JournalError,
        "cannot be written: check who owns it and its folder, and whether the disk is read-only",
    ),
    ("SQLITE_CANTOPEN", JournalError, "cannot be opened: check that its folder exists and who may write there"),
    ("SQLITE_FULL", JournalError, "cannot grow, the disk is full: free some space and try again"),
    ("SQLITE_NOTADB", DamagedError, "is not an SQLite database: move it aside, or restore it from a backup"),
    (
        "SQLITE_CORRUPT",
        DamagedError,
        "is damaged: copy it aside, then restore a backup or save what is readable (sqlite3 {file} .recover)",
    ),
    ("SQLITE_IOERR", JournalError, "cannot be read or written, the disk reports an error: check the disk"),
)


def make_engine(url: URL, patience: float) -> Engine:
    """An engine whose transactions begin as the journal needs it. `patience`: seconds to wait for a lock."""
    if url.get_backend_name() == "postgresql":
        engine = create_engine(url, connect_args=_patient(patience), pool_pre_ping=True)
        event.listen(engine, "connect", _limit(patience))
        return engine
    if url.get_backend_name() != "sqlite":
        return create_engine(url)
    engine = create_engine(url, connect_args={"timeout": patience})
    event.listen(engine, "connect", _prepare)
    event.listen(engine, "begin", _begin)
    return engine


def _patient(patience: float) -> dict[str, int]:
    """How long to wait for a server that does not answer; https://www.postgresql.org/docs/current/libpq-connect.html."""
    return {
        "connect_timeout": max(2, math.ceil(patience)),  # s
        "tcp_user_timeout": math.ceil(patience * 1000),  # ms that sent bytes may stay unacknowledged
        "keepalives_idle": max(1, math.ceil(patience / 2)),  # s
        "keepalives_interval": max(1, math.ceil(patience / 6)),  # s
        "keepalives_count": 3,
    }


def _limit(patience: float) -> Callable[[Any, object], None]:
    """Let the server end what takes longer; an idle transaction earlier, so that who waits for its lock still gets it."""
    limits = {
        "statement_timeout": patience,
        "lock_timeout": patience,
        "idle_in_transaction_session_timeout": patience * IDLE_SHARE,
    }

    def limit(connection: Any, _record: object) -> None:
        with connection.cursor() as cursor:
            for name, seconds in limits.items():
                cursor.execute(f"SET {name} = {math.ceil(seconds * 1000)}")
        connection.commit()

    return limit


def alone(connection: Connection) -> None:
    """Let no other process prepare the tables until this transaction ends."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_PREPARING})")


def _prepare(connection: SqliteConnection, _record: object) -> None:
    connection.isolation_level = None  # the driver must not begin transactions of its own
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")


def _begin(connection: Connection) -> None:
    writes = connection.get_execution_options().get(WRITES, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def check_whole(connection: Connection, location: str) -> None:
    """Raise DamagedError when the database finds itself damaged."""
    if connection.dialect.name != "sqlite":
        return
    found = connection.exec_driver_sql("PRAGMA quick_check(1)").scalar_one()
    if found != "ok":
        raise DamagedError(_sentence("SQLITE_CORRUPT", location, str(found)))


def insert_once(connection: Connection, table: Table, values: Mapping[str, object]) -> bool:
    """Insert a row unless its primary key is there already; True when it was inserted."""
    keys = list(table.primary_key.columns)
    statement = _insert(connection, table).values(values).on_conflict_do_nothing(index_elements=keys).returning(*keys)
    return connection.execute(statement).first() is not None


def upsert(connection: Connection, table: Table, values: Mapping[str, object], *, only_up: str | None = None) -> None:
    """Insert a row or replace the one with its primary key; with `only_up`, only when that column grows."""
    keys = list(table.primary_key.columns)
    statement = _insert(connection, table).values(values)
    grows = None if only_up is None else table.c[only_up] < statement.excluded[only_up]
    changed = {name: statement.excluded[name] for name in values if name not in table.primary_key.columns}
    connection.execute(statement.on_conflict_do_update(index_elements=keys, set_=changed, where=grows))


def _insert(connection: Connection, table: Table) -> Any:
    return (sqlite if connection.dialect.name == "sqlite" else postgresql).insert(table)


def translate(error: DBAPIError, location: str) -> JournalError:
    """The same error in the journal's words: which file, what is wrong, what to do."""
    if hasattr(error.orig, "sqlstate"):
        return JournalError(_said_by_postgresql(error.orig, location))
    name = getattr(error.orig, "sqlite_errorname", "")
    kind = next((kind for start, kind, _ in _MEANINGS if name.startswith(start)), JournalError)
    return kind(_sentence(name, location, str(error.orig)))


def _said_by_postgresql(error: Any, location: str) -> str:
    """https://www.postgresql.org/docs/current/errcodes-appendix.html. No state: the server was not reached, or went away."""
    state, detail = error.sqlstate or "", " ".join(str(error).split())
    if state in {"55P03", "57014"}:
        return f"the journal {location} is busy for too long: another process holds it ({detail}); nothing was written"
    if not state or state.startswith(("08", "57P", "25P03")):
        return (
            f"the journal {location} does not answer: check that the server runs and can be reached ({detail}); "
            "whether the last write came through is looked up before anything is repeated"
        )
    if state.startswith(("28", "3D", "42501")):
        return f"the journal {location} lets nobody in: check user, password, database and rights ({detail})"
    return f"the journal {location} cannot be used: is it a journal at all? ({detail}); nothing was written"


def _sentence(name: str, location: str, detail: str) -> str:
    text = next((text for start, _, text in _MEANINGS if name.startswith(start)), "cannot be used: is it a journal at all?")
    return f"the journal {location} {text.format(file=location)} ({detail}); nothing was written"
