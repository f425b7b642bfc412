"""Drills on a live fleet of simulated engines, started and steered by the command line as a person would."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from command_line_fleet import Fleet, free_range


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path_factory.mktemp("drilled"))
    started = fleet.run("up", "--detach", "--engines", "3", "--rps", "6", "--base-port", str(free_range()))
    try:
        assert started.returncode == 0, started.stdout + started.stderr
        fleet.until(lambda: len(fleet.told("status")["engines"]) == 3, 60, "a first table of the fleet")
        yield fleet
    finally:
        fleet.run("down")


def test_being_told_to_stop_in_the_middle_leaves_nothing_broken(fleet: Fleet) -> None:
    command = [sys.executable, "-m", "agent.cli", "drill", "run", "engine-hang", "--state-dir", str(fleet.directory)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert any("breaking" in line for line in running.stdout)  # reads on until it comes, or to the end
        running.send_signal(signal.SIGTERM)  # Ctrl-C goes the same way; a test in the background inherits it ignored
        said, error = running.communicate(timeout=120)
    assert running.returncode == 3, said + error
    assert "Traceback" not in error
    assert fleet.told("fault", "list")["active"] == []
    (card,) = fleet.told("drill", "history")
    assert (card["verdict"], card["undone"]) == ("interrupted", True)


def test_a_killed_engine_is_found_repaired_and_scored(fleet: Fleet) -> None:
    done = fleet.run("drill", "run", "engine-kill", "--json", timeout=600.0)
    card = json.loads(done.stdout)
    assert (done.returncode, card["verdict"]) == (0, "passed"), done.stdout + done.stderr
    (row,) = card["incidents"]
    assert (row["cause"], row["first_action"], row["met"]) == ("engine.dead", "door.drain", True)
    assert row["detected_after"] < row["isolated_after"] < row["recovered_after"]
    assert card["undone"]
    assert fleet.told("drill", "history")[-1] == card
    last = {each["name"]: each["last"] for each in fleet.told("drill", "list")["drills"]}
    assert last["engine-kill"]["run"] == card["run"]
    journal = json.loads(fleet.run("drill", "export", "engine-kill", "--run", card["run"]).stdout)
    assert (journal["status"], journal["deviated"]) == ("completed", False)


def test_what_is_no_drill_is_exit_code_2(fleet: Fleet) -> None:
    done = fleet.run("drill", "run", "engine-kil")
    assert done.returncode == 2
    assert "did you mean engine-kill" in done.stderr
