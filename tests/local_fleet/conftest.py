"""One running fleet for all tests of this folder: starting it takes longer than each of them."""

from collections.abc import Iterator

import pytest
from command_line_fleet import Fleet, free_range


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path_factory.mktemp("fleet"))
    started = fleet.run("up", "--detach", "--engines", "4", "--rps", "8", "--base-port", str(free_range()))
    try:
        assert started.returncode == 0, started.stdout + started.stderr
        yield fleet
    finally:
        fleet.run("down")
