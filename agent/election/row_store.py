"""The record as a row of a database that all wardens share, such as their journal's: for fleets without Kubernetes.

Not a lock held by a session: a frozen process would keep that as long as its kernel answers, and a server that restarts
would forget it at once, while its holder still acts. A row is taken only after it stood unchanged for the whole lease.
"""

import math

from sqlalchemy import Connection, Row, select, update
from sqlalchemy.exc import SQLAlchemyError

from agent.election.machine import Record, Saw
from agent.election.store import StoreSilentError
from agent.journal.dialect import WRITES, insert_once, make_engine
from agent.journal.schema import elections
from agent.journal.stored import resolve


class RowStore:
    """The row `name` of the table `elections`, which the journal's migrations make. `seconds`: what one request may take."""

    def __init__(self, url: str, name: str, seconds: float) -> None:
        resolved, self._shown = resolve(url, create=False)
        self._engine = make_engine(resolved, seconds)
        self._writer = self._engine.execution_options(**{WRITES: True})
        self._name = name

    @property
    def location(self) -> str:
        return f"election {self._name} in {self._shown}"

    def read(self, seconds: float) -> Saw:
        try:
            with self._engine.begin() as connection:
                self._limit(connection, seconds)
                row = connection.execute(select(elections).where(elections.c.name == self._name)).first()
        except SQLAlchemyError as error:
            raise self._silent(error) from error
        return Saw(None, "") if row is None else Saw(_record(row), str(row.version))

    def write(self, record: Record, version: str | None, seconds: float) -> str | None:
        values = {"holder": record.holder, "term": record.term, "renewals": record.renewals, "lease": record.lease}
        try:
            with self._writer.begin() as connection:
                self._limit(connection, seconds)
                if version is None:
                    return "1" if insert_once(connection, elections, {"name": self._name, "version": 1, **values}) else None
                known = (elections.c.name == self._name) & (elections.c.version == int(version))
                change = update(elections).where(known).values(version=int(version) + 1, **values)
                written = connection.execute(change.returning(elections.c.version)).scalar()
                return None if written is None else str(written)
        except SQLAlchemyError as error:
            raise self._silent(error) from error

    def close(self) -> None:
        self._engine.dispose()

    def _limit(self, connection: Connection, seconds: float) -> None:
        if connection.dialect.name == "postgresql":
            connection.exec_driver_sql(f"SET LOCAL statement_timeout = {math.ceil(seconds * 1000)}")

    def _silent(self, error: SQLAlchemyError) -> StoreSilentError:
        detail = " ".join(str(getattr(error, "orig", None) or error).split())
        return StoreSilentError(f"{self.location} does not answer: {detail}")


def _record(row: Row[tuple[str, str, int, int, int, int]]) -> Record:
    return Record(row.holder, row.term, row.renewals, row.lease)
