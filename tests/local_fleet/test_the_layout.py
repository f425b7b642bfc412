"""What `up` writes before it starts anything, and what it leaves alone."""

from pathlib import Path

import pytest
from command_line_fleet import Fleet, free_range

from agent.local_fleet import LocalFleet, Plan
from serving.clock import SystemClock
from serving.fleet.fleet_file import FleetFile


@pytest.fixture
def laid(tmp_path: Path) -> LocalFleet:
    return LocalFleet(tmp_path, SystemClock())


def test_a_second_up_refuses_and_leaves_the_running_fleet_alone(fleet: Fleet) -> None:
    before = LocalFleet(fleet.directory, SystemClock()).running()
    second = fleet.run("up", "--detach", "--engines", "2", "--base-port", str(free_range()))
    assert second.returncode == 1
    assert "a local fleet runs already" in second.stdout
    assert LocalFleet(fleet.directory, SystemClock()).running() == before != []


def test_a_later_plan_keeps_nothing_of_an_earlier_one(laid: LocalFleet) -> None:
    laid.lay_out(Plan(engines=3, base_port=free_range()))
    assert laid.services.names() == ("door", "load", "warden")

    laid.lay_out(Plan(engines=2, base_port=free_range(), rps=0))

    assert laid.services.names() == ("door", "warden")
    assert laid.engines.names() == ("sim-0", "sim-1")
    assert [engine.name for engine in FleetFile.read(laid.fleet_file).engines] == ["sim-0", "sim-1"]
