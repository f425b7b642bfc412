"""`fleetwarden fault`: what an operator types, sees and gets as exit code."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from agent.cli.fault import app
from serving.engines import processes
from serving.engines.local import LocalEngines
from serving.faults.faults import Faults

COMMAND = [sys.executable, "-c", "from agent.cli.fault import app; app(prog_name='fleetwarden fault')"]


Fault = Callable[..., Result]


@pytest.fixture
def fault(tmp_path: Path) -> Fault:
    def run(*arguments: str) -> Result:
        return CliRunner().invoke(app, [*arguments, "--state-dir", str(tmp_path)])

    return run


def is_stopped(engines: LocalEngines) -> bool:
    return processes.is_stopped(engines.processes("one")["api"][0])


def test_a_hang_returns_at_once_says_how_to_clear_it_and_is_cleared_so(
    engines: LocalEngines, faults: Faults, fault: Fault
) -> None:
    said = fault("inject", "api-hang", "one")
    (active,) = faults.active()
    assert said.exit_code == 0
    assert f"fleetwarden fault clear {active.injection.id}" in said.stdout
    assert is_stopped(engines)
    assert fault("clear", active.injection.id).exit_code == 0
    assert not is_stopped(engines)


def test_for_seconds_stays_and_undoes(engines: LocalEngines, faults: Faults, fault: Fault) -> None:
    said = fault("inject", "api-hang", "one", "--for", "0.5")
    assert said.exit_code == 0
    assert "undone" in said.stdout
    assert not is_stopped(engines)
    assert faults.active() == ()


def test_ctrl_c_undoes_what_stays(engines: LocalEngines, faults: Faults, tmp_path: Path, until: Callable[..., None]) -> None:
    command = [*COMMAND, "inject", "slow-worker", "one", "--state-dir", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as staying:
        until(lambda: "undoes it" in staying.stdout.readline())
        staying.send_signal(signal.SIGINT)
        assert staying.wait(30) == 0
        assert "Traceback" not in staying.stderr.read()
    assert faults.active() == ()
    assert not is_stopped(engines)


def test_detached_it_stays_at_work_until_cleared(faults: Faults, fault: Fault) -> None:
    row = json.loads(fault("inject", "slow-worker", "one", "--detach", "-p", "share=0.5", "--json").stdout)
    assert (row["fault"], row["target"], row["parameters"]["share"], row["over"]) == ("slow-worker", "one", 0.5, False)
    assert [each.injection.id for each in faults.active()] == [row["id"]]
    cleared = json.loads(fault("clear", "all", "--json").stdout)
    assert [(each["id"], each["ok"]) for each in cleared] == [(row["id"], True)]


def test_the_list_shows_every_fault_and_those_at_work(faults: Faults, fault: Fault) -> None:
    injection = faults.inject("api-hang", "one")
    listed = json.loads(fault("list", "--json").stdout)
    assert {each["name"] for each in listed["faults"]} == set(faults.catalogue())
    assert [(each["id"], each["over"]) for each in listed["active"]] == [(injection.id, False)]
    assert injection.id in fault("list").stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("inject", "engine-hung", "one"), "did you mean engine-hang"),
        (("inject", "api-hang", "two"), "engines: one"),
        (("inject", "slow-worker", "one", "-p", "share=2"), "from 0.05 to 0.95"),
        (("inject", "slow-worker", "one", "-p", "share"), "NAME=NUMBER"),
        (("inject", "api-hang", "one", "--for", "3", "--detach"), "give one of them"),
        (("clear", "nothing-123456"), "at work: none"),
    ],
)
def test_bad_usage_is_a_sentence_and_exit_code_2(
    engines: LocalEngines, fault: Fault, arguments: tuple[str, ...], said: str
) -> None:
    done = fault(*arguments)
    assert done.exit_code == 2
    assert said in done.stderr
    assert done.exception is None or isinstance(done.exception, SystemExit)
    assert not is_stopped(engines)


def test_a_fault_on_a_stopped_engine_is_exit_code_1(engines: LocalEngines, fault: Fault) -> None:
    engines.stop("one", grace_s=0)
    done = fault("inject", "api-hang", "one")
    assert done.exit_code == 1
    assert "not running" in done.stderr
