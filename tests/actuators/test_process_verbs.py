"""process.restart and process.kill_orphans on real, cheap processes."""

import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actuators.action import Action, OutcomeStatus
from actuators.process import BACKOFF_BASE_S, BACKOFF_CAP_S, BACKOFF_FORGET_S, ProcessActuator, earliest_restart
from serving.clock import FakeClock, SystemClock
from serving.engines import local, processes
from serving.engines.engine_process import EngineStatus
from serving.engines.ledger import Deed, Intent
from serving.engines.local import LocalEngines
from serving.engines.specs import EngineKind, EngineSpec
from serving.fleet.entity import Entity, EntityKind

SLEEPER = "import time\nwhile True: time.sleep(60)"
CHILD = f"import subprocess, sys\nsubprocess.Popen([sys.executable, '-S', '-c', {SLEEPER!r}])\nprint('up', flush=True)\n"
WITH_CHILD = CHILD + SLEEPER
RESTART = Action("process.restart", Entity.engine("one"), {"grace_s": 0})
KILL_ORPHANS = Action("process.kill_orphans", Entity.engine("one"))


def spec(name: str = "one", script: str = SLEEPER) -> EngineSpec:
    return EngineSpec(name=name, kind=EngineKind.PROGRAM, command=(sys.executable, "-S", "-c", script), port=9, model="none")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def engines(tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalEngines]:
    monkeypatch.setattr(local, "EARLY_EXIT_S", 0.05)
    engines = LocalEngines(tmp_path, clock)
    engines.add(spec())
    yield engines
    engines.stop("one", grace_s=0)


@pytest.fixture
def actuator(engines: LocalEngines, clock: FakeClock) -> ProcessActuator:
    return ProcessActuator(engines, clock)


@pytest.fixture
def until() -> Callable[[Callable[[], object]], None]:
    def wait(condition: Callable[[], object]) -> None:
        real = SystemClock()
        deadline = real.monotonic() + 20
        while not condition():
            assert real.monotonic() < deadline, "the condition did not come true in time"
            real.sleep(0.02)

    return wait


def test_the_verbs_say_what_they_take_and_what_they_cost(actuator: ProcessActuator) -> None:
    restart = actuator.verbs["process.restart"]
    assert restart.parameters == {"grace_s": (float, 1.0)}
    assert restart.takes_capacity
    assert restart.covers == {"process.kill_orphans"}
    assert set(actuator.verbs) == {"process.restart", "process.kill_orphans"}


def test_a_restart_names_the_old_and_the_new_process(engines: LocalEngines, actuator: ProcessActuator) -> None:
    old = engines.start("one").pid
    outcome = actuator.apply(RESTART, "k1")
    new = engines.state("one").pid
    assert outcome.status is OutcomeStatus.DONE
    assert (outcome.before["pid"], outcome.after["pid"], outcome.after["restarts"]) == (old, new, 1)
    assert new != old


def test_the_same_key_restarts_once_and_is_looked_up_as_done(engines: LocalEngines, actuator: ProcessActuator) -> None:
    engines.start("one")
    actuator.apply(RESTART, "k1")
    state = engines.state("one")
    assert actuator.apply(RESTART, "k1").status is OutcomeStatus.DONE
    assert actuator.look_up(RESTART, "k1").status is OutcomeStatus.DONE
    assert engines.state("one") == state


def test_a_restart_that_never_began_is_looked_up_as_failed(engines: LocalEngines, actuator: ProcessActuator) -> None:
    engines.start("one")
    outcome = actuator.look_up(RESTART, "k9")
    assert (outcome.status, outcome.permanent) == (OutcomeStatus.FAILED, False)
    assert "never happened" in outcome.detail


def test_a_restart_that_was_cut_off_is_looked_up_as_failed_and_finished_by_the_same_key(
    engines: LocalEngines, actuator: ProcessActuator
) -> None:
    engines.start("one")
    engines._store("one", engines._record("one").with_intent(Intent(key="k1", deed=Deed.RESTART, at=1.0)))
    processes.end(engines.processes("one")["api"], 0, SystemClock())
    outcome = actuator.look_up(RESTART, "k1")
    assert outcome.status is OutcomeStatus.FAILED
    assert "cut off" in outcome.detail
    assert actuator.apply(RESTART, "k1").status is OutcomeStatus.DONE
    assert engines.state("one").status is EngineStatus.RUNNING


def test_an_operation_under_way_is_unknown_not_repeated(engines: LocalEngines, actuator: ProcessActuator) -> None:
    state = engines.start("one")
    holder = "import fcntl, sys\nfile = open(sys.argv[1], 'w')\nfcntl.flock(file, fcntl.LOCK_EX)\n"
    holder += "print('held', flush=True)\ninput()"
    command = [sys.executable, "-S", "-c", holder, str(engines.folder("one") / "lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"held\n"
        assert actuator.look_up(RESTART, "k1").status is OutcomeStatus.UNKNOWN
        assert actuator.apply(RESTART, "k1").status is OutcomeStatus.UNKNOWN
        assert actuator.rehearse(RESTART).status is OutcomeStatus.FAILED
        other.communicate(b"\n")
    assert engines.state("one") == state


def test_a_second_restart_too_soon_is_refused_until_the_stated_time(
    engines: LocalEngines, actuator: ProcessActuator, clock: FakeClock
) -> None:
    engines.start("one")
    actuator.apply(RESTART, "k1")
    refused = actuator.apply(RESTART, "k2")
    assert (refused.status, refused.permanent) == (OutcomeStatus.FAILED, False)
    assert "10 s from now" in refused.detail
    assert actuator.rehearse(RESTART).detail == refused.detail
    clock.advance(BACKOFF_BASE_S)
    assert actuator.apply(RESTART, "k2").status is OutcomeStatus.DONE
    clock.advance(BACKOFF_BASE_S)
    assert "10 s from now" in actuator.apply(RESTART, "k3").detail  # twice the first delay


def test_a_rehearsal_shows_from_and_to_and_changes_nothing(engines: LocalEngines, actuator: ProcessActuator) -> None:
    state = engines.start("one")
    outcome = actuator.rehearse(RESTART)
    assert outcome.status is OutcomeStatus.DONE
    assert (outcome.before["pid"], outcome.after["pid"]) == (state.pid, "new")
    assert engines.state("one") == state


@pytest.mark.parametrize(
    ("action", "said"),
    [
        (Action("process.restart", Entity.engine("two")), "no engine 'two'.*one"),
        (Action("process.restart", Entity(EntityKind.NODE, "one")), "node/one"),
        (Action("process.restart", Entity.engine("one"), {"grace": 1}), "grace_s"),
        (Action("process.reboot", Entity.engine("one")), r"process\.restart"),
    ],
)
def test_what_cannot_work_fails_for_good_with_its_reason(actuator: ProcessActuator, action: Action, said: str) -> None:
    for outcome in (actuator.apply(action, "k1"), actuator.rehearse(action), actuator.look_up(action, "k1")):
        assert (outcome.status, outcome.permanent) == (OutcomeStatus.FAILED, True)
        assert re.search(said, outcome.detail)


def test_a_program_that_cannot_start_fails_with_its_log_and_the_key_remembers(
    engines: LocalEngines, actuator: ProcessActuator
) -> None:
    engines.add(spec(script="import nothing_of_that_name"))
    for outcome in (actuator.apply(RESTART, "k1"), actuator.apply(RESTART, "k1"), actuator.look_up(RESTART, "k1")):
        assert outcome.status is OutcomeStatus.FAILED
        assert "nothing_of_that_name" in outcome.detail
    assert len(engines.operations("one")) == 1


def test_a_damaged_record_is_a_failure_for_good_and_starts_nothing(engines: LocalEngines, actuator: ProcessActuator) -> None:
    file = engines.folder("one") / "state.json"
    file.write_text("{")
    outcome = actuator.apply(RESTART, "k1")
    assert (outcome.status, outcome.permanent) == (OutcomeStatus.FAILED, True)
    assert "state.json" in outcome.detail
    file.unlink()


def test_what_a_person_stopped_is_not_started_again(engines: LocalEngines, actuator: ProcessActuator) -> None:
    engines.start("one")
    engines.stop("one", grace_s=0)
    for outcome in (actuator.apply(RESTART, "k1"), actuator.rehearse(RESTART)):
        assert outcome.status is OutcomeStatus.FAILED
        assert "person" in outcome.detail
    engines.start("one")
    assert actuator.apply(RESTART, "k1").status is OutcomeStatus.DONE


def test_orphans_are_killed_once_and_a_living_engine_keeps_its_children(
    engines: LocalEngines, actuator: ProcessActuator, until: Callable[[Callable[[], object]], None]
) -> None:
    engines.add(spec(script=WITH_CHILD))
    engines.start("one")
    until(lambda: "up" in engines.log("one").read_text())
    (head,) = engines.processes("one")["api"]
    (child,) = processes.group_members(head.pid) - {head}
    assert actuator.apply(KILL_ORPHANS, "k1").before["orphans"] == 0
    assert processes.is_alive(child)
    processes.end([head], 0, SystemClock())
    assert actuator.rehearse(KILL_ORPHANS).before["orphans"] == 1
    assert actuator.look_up(KILL_ORPHANS, "k1").status is OutcomeStatus.FAILED
    assert actuator.apply(KILL_ORPHANS, "k1").before["orphans"] == 1
    assert not processes.is_alive(child)
    assert actuator.look_up(KILL_ORPHANS, "k1").status is OutcomeStatus.DONE


@given(
    ages=st.lists(st.floats(0, 2 * BACKOFF_FORGET_S), max_size=12),
    future=st.lists(st.floats(1, 1e6), max_size=2),
)
def test_the_delay_is_bounded_and_the_clock_set_back_never_blocks(ages: list[float], future: list[float]) -> None:
    now = 1_800_000_000.0
    restarts = sorted(now - age for age in ages)
    at = earliest_restart([*restarts, *(now + ahead for ahead in future)], now)
    assert at == earliest_restart(restarts, now)
    assert at <= now + BACKOFF_CAP_S
    if restarts and now - restarts[-1] < BACKOFF_BASE_S:
        assert at > now
    if not restarts or now - restarts[-1] >= BACKOFF_CAP_S:
        assert at <= now


@settings(max_examples=8, deadline=None)
@given(keys=st.lists(st.sampled_from(["a", "b", "c"]), min_size=2, max_size=6))
def test_each_key_changes_the_process_at_most_once(keys: list[str]) -> None:
    clock = FakeClock()
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(local, "EARLY_EXIT_S", 0.0)
        engines = LocalEngines(Path(folder), clock)
        engines.add(spec())
        actuator = ProcessActuator(engines, clock)
        try:
            for key in keys:
                clock.advance(BACKOFF_CAP_S)
                assert actuator.apply(RESTART, key).status is OutcomeStatus.DONE
            assert engines.state("one").restarts == len(set(keys))
        finally:
            engines.stop("one", grace_s=0)
