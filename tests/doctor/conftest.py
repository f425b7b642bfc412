"""A set-up in order for each test, and a way to run commands."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pytest_httpserver import HTTPServer
from typer.testing import CliRunner
from whole_set_up import SetUp


@pytest.fixture(scope="session")
def servers() -> Iterator[list[HTTPServer]]:
    """Four servers for the whole session: to stop one takes half a second."""
    four = [HTTPServer() for _ in range(4)]
    yield four
    for server in four:
        if server.is_running():
            server.stop()


@pytest.fixture
def set_up(tmp_path: Path, servers: list[HTTPServer]) -> SetUp:
    for server in servers:
        server.clear()
        if not server.is_running():
            server.start()
    free = iter(servers)
    return SetUp(tmp_path, lambda: next(free))


@pytest.fixture
def runner() -> CliRunner:
    return CliRunner()
