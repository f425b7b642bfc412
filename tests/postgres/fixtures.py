"""The server as a fixture: one for all tests of a session; each test has a database of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:  # the driver is an extra, which most tests do without
    from postgres.server import PostgresServer


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A running PostgresServer; the test is skipped where its programs are missing."""
    pytest.importorskip("psycopg", reason="the extra `postgres` is not installed")
    from postgres.server import NoPostgresError, running_server  # noqa: PLC0415 - see above

    try:
        with running_server() as server:
            yield server
    except NoPostgresError as missing:
        pytest.skip(str(missing))


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> str:
    """The URL of a new, empty database."""
    return postgres_server.url(postgres_server.new_database())
