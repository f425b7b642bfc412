"""Faults by signals on a real process: made, seen, taken back, also by somebody else and after a crash."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from serving.engines import processes
from serving.engines.engine_process import EngineStatus
from serving.engines.local import LocalEngines
from serving.engines.processes import ProcessMark
from serving.faults.catalogue import FaultError, FaultUsageError
from serving.faults.faults import Faults

Until = Callable[..., None]

# Injects a fault into engine `one` and dies by SIGKILL, or stays in the `with` block until a signal ends it.
INJECTOR = """
import os, signal, sys, time
from pathlib import Path
from serving.clock import SystemClock
from serving.engines.local import LocalEngines
from serving.faults.faults import Faults
clock, directory = SystemClock(), Path(sys.argv[1])
faults = Faults(directory, LocalEngines(directory, clock), clock)
if sys.argv[3] == "die":
    faults.inject(sys.argv[2], "one")
    os.kill(os.getpid(), signal.SIGKILL)
with faults.held(sys.argv[2], "one"):
    print("held", flush=True)
    while True:
        time.sleep(60)
"""


def leader(engines: LocalEngines) -> ProcessMark:
    return engines.processes("one")["api"][0]


def test_a_hang_stops_the_process_and_clearing_continues_it(engines: LocalEngines, faults: Faults, until: Until) -> None:
    injection = faults.inject("api-hang", "one")
    until(lambda: processes.is_stopped(leader(engines)))
    assert [(each.injection, each.over) for each in faults.active()] == [(injection, False)]
    (cleared,) = faults.clear(injection.id)
    assert cleared.ok
    until(lambda: not processes.is_stopped(leader(engines)))
    assert faults.active() == ()


def test_the_injection_is_on_record_before_the_process_is_touched(
    faults: Faults, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    send = processes.send

    def watched(process: ProcessMark, number: signal.Signals) -> bool:
        seen.append(len(list((tmp_path / "faults").glob("*.json"))))
        return send(process, number)

    monkeypatch.setattr(processes, "send", watched)
    faults.inject("api-hang", "one")
    assert seen == [1]


@pytest.mark.parametrize("fault", ["api-hang", "slow-worker"])
def test_another_process_clears_what_a_killed_injector_left(
    engines: LocalEngines, faults: Faults, tmp_path: Path, fault: str, until: Until
) -> None:
    done = subprocess.run([sys.executable, "-c", INJECTOR, str(tmp_path), fault, "die"], check=False)
    assert done.returncode == -signal.SIGKILL
    until(lambda: processes.is_stopped(leader(engines)))
    (cleared,) = faults.clear("one")
    assert cleared.ok
    assert not processes.with_environment({"FLEETWARDEN_FAULT": cleared.injection.id})
    until(lambda: not processes.is_stopped(leader(engines)))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_held_fault_is_undone_when_its_holder_is_told_to_end(
    engines: LocalEngines, faults: Faults, tmp_path: Path, number: signal.Signals, until: Until
) -> None:
    command = [sys.executable, "-c", INJECTOR, str(tmp_path), "api-hang", "hold"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as holder:
        assert holder.stdout.readline() == b"held\n"
        assert processes.is_stopped(leader(engines))
        holder.send_signal(number)
        holder.wait(20)
    until(lambda: not processes.is_stopped(leader(engines)))
    assert faults.active() == ()


def test_clearing_after_a_restart_leaves_the_new_process_alone(engines: LocalEngines, faults: Faults, until: Until) -> None:
    injection = faults.inject("api-hang", "one")
    engines.restart("one", grace_s=0)
    processes.send(leader(engines), signal.SIGSTOP)  # somebody else's affair: the undo must not continue it
    until(lambda: processes.is_stopped(leader(engines)))
    assert [each.over for each in faults.active()] == [True]
    (cleared,) = faults.clear(injection.id)
    assert cleared.ok
    assert "gone" in cleared.detail
    assert processes.is_stopped(leader(engines))


def test_a_slow_worker_stands_still_part_of_the_time_and_runs_on_afterwards(
    engines: LocalEngines, faults: Faults, until: Until
) -> None:
    faults.inject("slow-worker", "one", share=0.5, slice_ms=20)
    seen: set[bool] = set()
    until(lambda: seen.add(processes.is_stopped(leader(engines))) or len(seen) == 2)
    faults.clear("slow-worker")
    assert not processes.is_stopped(leader(engines))


def test_slices_end_by_themselves_when_their_record_is_gone(
    engines: LocalEngines, faults: Faults, tmp_path: Path, until: Until
) -> None:
    injection = faults.inject("slow-worker", "one")
    (tmp_path / "faults" / f"{injection.id}.json").unlink()
    until(lambda: not processes.with_environment({"FLEETWARDEN_FAULT": injection.id}))
    assert not processes.is_stopped(leader(engines))


def test_clearing_a_kill_starts_the_engine_again_once(engines: LocalEngines, faults: Faults, until: Until) -> None:
    injection = faults.inject("api-kill", "one")
    until(lambda: engines.state("one").status is EngineStatus.EXITED)
    assert [each.over for each in faults.active()] == [False]
    assert faults.clear(injection.id)[0].ok
    assert engines.state("one").status is EngineStatus.RUNNING


def test_clearing_a_kill_that_was_repaired_changes_nothing(engines: LocalEngines, faults: Faults) -> None:
    injection = faults.inject("api-kill", "one")
    repaired = engines.restart("one", grace_s=0)
    assert [each.over for each in faults.active()] == [True]
    assert faults.clear(injection.id)[0].ok
    assert engines.state("one") == repaired


def test_clearing_a_kill_does_not_start_what_was_stopped_on_purpose(engines: LocalEngines, faults: Faults) -> None:
    injection = faults.inject("api-kill", "one")
    engines.stop("one", grace_s=0)
    assert faults.clear(injection.id)[0].ok
    assert engines.state("one").status is EngineStatus.EXITED


def test_the_same_fault_twice_or_two_that_stop_the_same_process_are_refused(faults: Faults) -> None:
    first = faults.inject("api-hang", "one")
    for second in ("api-hang", "slow-worker"):
        with pytest.raises(FaultError, match=f"fault clear {first.id}"):
            faults.inject(second, "one")
    assert len(faults.active()) == 1


def test_a_fault_that_is_over_makes_room_for_the_next(engines: LocalEngines, faults: Faults) -> None:
    faults.inject("api-hang", "one")
    engines.restart("one", grace_s=0)
    second = faults.inject("api-hang", "one")
    assert [each.injection.id for each in faults.active()] == [second.id]


def test_what_does_not_exist_is_refused_with_what_does(engines: LocalEngines, faults: Faults) -> None:
    with pytest.raises(FaultUsageError, match="engines: one"):
        faults.inject("api-hang", "two")
    with pytest.raises(FaultUsageError, match="faults: engine-hang"):
        faults.inject("api-hanging-around", "one")
    with pytest.raises(FaultUsageError, match="needs an engine; engines: one"):
        faults.inject("api-hang", "door")
    with pytest.raises(FaultUsageError, match="at work: none"):
        faults.clear("api-hang-123456")
    assert faults.clear("all") == ()
    assert engines.state("one").status is EngineStatus.RUNNING


def test_an_engine_that_does_not_run_cannot_be_broken(engines: LocalEngines, faults: Faults) -> None:
    engines.stop("one", grace_s=0)
    with pytest.raises(FaultError, match="not running"):
        faults.inject("api-hang", "one")
    assert faults.active() == ()


def test_a_fault_whose_target_dies_at_the_last_moment_leaves_no_record(
    engines: LocalEngines, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "send", lambda *_: False)
    with pytest.raises(FaultError, match="ended too soon"):
        faults.inject("api-hang", "one")
    assert faults.active() == ()
    assert os.getpgid(engines.state("one").pid)
