"""A live fleet recorded while two faults are made, and replayed: the same two incidents that its own warden opened."""

import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import replay_command
import requests
from command_line_fleet import free_range

from agent import status
from agent.journal.stored import open_journal
from agent.local_fleet import LocalFleet, Plan, wait_until
from runbooks.runbook import Autonomy
from serving.clock import SystemClock
from serving.engines.readiness import answers

CLOCK = SystemClock()
FAULTS = {"engine-hang": ("sim-0", "engine.hung"), "api-hang": ("sim-1", "engine.api_hung")}


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[LocalFleet]:
    """Three simulated engines at work behind a door, watched by a warden that only recommends."""
    running = LocalFleet(tmp_path / "state", CLOCK)
    plan = Plan(engines=3, rps=6.0, base_port=free_range(), autonomy=Autonomy.RECOMMEND)
    running.lay_out(plan)
    try:
        for name in running.engines.names():
            running.engines.start(name)
        until(
            lambda: all(answers(f"{running.engines.spec(name).url}/health") for name in running.engines.names()), "engines"
        )
        for service in ("door", "load", "warden"):
            running.start(service)
        yield running
    finally:
        for _ in running.stop():
            pass


def until(true: Callable[[], bool], what: str, seconds: float = 90.0) -> None:
    assert wait_until(true, CLOCK, seconds), f"not within {seconds:.0f} s: {what}"


def at_work(fleet: LocalFleet) -> bool:
    page = status.read(fleet.directory)
    return page is not None and len(page.engines) == 3 and all(row.steps_per_s for row in page.engines)


def looked(fleet: LocalFleet) -> float:
    """When the warden last looked at the fleet, in Unix seconds."""
    page = status.read(fleet.directory)
    return page.at if page is not None else 0.0


def incidents(fleet: LocalFleet) -> set[tuple[str, str]]:
    """Cause and entity of all that the live warden opened so far."""
    with contextlib.closing(open_journal(fleet.directory / "journal.sqlite", create=False)) as journal:
        return {(incident.cause, str(incident.entity)) for incident in journal.incidents()}


@contextlib.contextmanager
def broken(fleet: LocalFleet, fault: str, engine: str) -> Iterator[None]:
    url = f"{fleet.engines.spec(engine).url}/sim/faults"
    requests.post(url, json={"fault": fault}, timeout=10).raise_for_status()
    try:
        yield
    finally:
        requests.delete(f"{url}/{fault}", timeout=10).raise_for_status()


@contextlib.contextmanager
def recorder(fleet: LocalFleet, folder: Path) -> Iterator["subprocess.Popen[str]"]:
    """The command that records the fleet into `folder`, from the moment at which it really does."""
    command = [sys.executable, replay_command.__file__, "record", folder, "--fleet", fleet.fleet_file, "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("recording 3 engines")
        yield process
    finally:
        process.kill()
        process.communicate()


def test_a_recording_of_two_faults_replays_to_the_two_incidents_of_the_live_warden(
    fleet: LocalFleet, tmp_path: Path
) -> None:
    folder = tmp_path / "case"
    with recorder(fleet, folder) as process:
        until(lambda: at_work(fleet), "engines at work")
        for fault, (engine, cause) in FAULTS.items():
            with broken(fleet, fault, engine):
                until(lambda told=(cause, f"engine/{engine}"): told in incidents(fleet), cause)
                seen = looked(fleet)  # two looks more: the recorder looks at other moments than the warden
                until(lambda seen=seen: looked(fleet) >= seen + 4.0, "the warden goes on looking")
        process.send_signal(signal.SIGINT)
        written, troubles = process.communicate(timeout=60)
    assert process.returncode == 0, troubles
    told = json.loads(written)
    assert (told["engines"], told["vllm"], told["source"]) == (3, ["0.32.0"], "scrape")
    replayed = replay_command.run("replay", folder, "--config", fleet.warden_file, "--json")
    found = {(row["cause"], row["entity"]) for row in json.loads(replayed.stdout)["rows"]}
    assert found == incidents(fleet) == {(cause, f"engine/{engine}") for engine, cause in FAULTS.values()}
