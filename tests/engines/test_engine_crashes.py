"""A restart cut off by SIGKILL of its doer, at every point where the world or the record has just changed."""

import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from serving.engines import local, processes
from serving.engines.engine_process import EngineStatus, KeyState
from serving.engines.local import LocalEngines
from serving.engines.processes import ProcessMark

# For each number N on its input, a fork of this runs one restart and kills itself at point N. Points lie before and after
# every write, signal round and spawn. It answers whether the restart was cut off.
DOOMED = """
import os, signal, sys
from pathlib import Path
from serving.clock import SystemClock
from serving.engines import local, processes
local.EARLY_EXIT_S = 0.02
last = points = 0
def point():
    global points
    points += 1
    if points == last:
        os.kill(os.getpid(), signal.SIGKILL)
def guarded(doing):
    def done(*args, **kwargs):
        point()
        result = doing(*args, **kwargs)
        point()
        return result
    return done
for module, name in ((local, "write_record"), (local, "spawn"), (processes, "end"), (processes, "wait_gone")):
    setattr(module, name, guarded(getattr(module, name)))
for line in sys.stdin:
    last = int(line)
    child = os.fork()
    if child == 0:
        local.LocalEngines(Path(sys.argv[1]), SystemClock()).restart(sys.argv[2], "the-key", 0)
        os._exit(0)
    print(os.waitpid(child, 0)[1] == signal.SIGKILL, flush=True)
"""
MOST_POINTS = 40


@pytest.fixture
def restart_until_point(
    local_engines: LocalEngines, sleeper: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[int], bool]]:
    """Whether a restart of the sleeper was cut off at this point (false: it has no such point)."""
    monkeypatch.setattr(local, "EARLY_EXIT_S", 0.02)
    command = [sys.executable, "-c", DOOMED, str(local_engines.directory), sleeper]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as forker:

        def ask(point: int) -> bool:
            forker.stdin.write(f"{point}\n")
            forker.stdin.flush()
            answer = forker.stdout.readline().strip()
            assert answer in ("True", "False")
            return answer == "True"

        yield ask
        forker.stdin.close()


def leaders(engines: LocalEngines, name: str) -> frozenset[ProcessMark]:
    return processes.with_environment({"FLEETWARDEN_ENGINE": name, "FLEETWARDEN_STATE": str(engines.directory)})


def test_a_restart_cut_off_anywhere_is_told_truly_and_finished_once(
    local_engines: LocalEngines, sleeper: str, restart_until_point: Callable[[int], bool]
) -> None:
    spec = local_engines.spec(sleeper)
    seen: set[KeyState] = set()
    for point in range(1, MOST_POINTS):
        local_engines.stop(sleeper, grace_s=0)
        local_engines.remove(sleeper)
        local_engines.add(spec)
        first = local_engines.start(sleeper).pid
        cut_off = restart_until_point(point)
        told, after = local_engines.key_state(sleeper, "the-key"), local_engines.state(sleeper)
        seen.add(told)
        started = {process.pid for process in leaders(local_engines, sleeper)} - {first}
        assert told is (KeyState.DONE if started else told)
        assert told is not KeyState.DONE or after.pid in started
        again = local_engines.restart(sleeper, "the-key", grace_s=0)
        assert again.pid == after.pid if told is KeyState.DONE else again.pid not in started | {first}
        assert [process.pid for process in leaders(local_engines, sleeper)] == [again.pid]
        assert (again.status, again.restarts, again.operation) == (EngineStatus.RUNNING, 1, "the-key")
        if not cut_off:
            break
    else:
        pytest.fail("the restart never ran to its end")
    assert seen == {KeyState.NEVER, KeyState.CUT_OFF, KeyState.DONE}


def test_stopping_after_a_cut_off_start_leaves_no_process(
    local_engines: LocalEngines, sleeper: str, restart_until_point: Callable[[int], bool]
) -> None:
    point = next(point for point in range(1, MOST_POINTS) if restart_until_point(point) and leaders(local_engines, sleeper))
    assert point > 1
    local_engines.stop(sleeper, grace_s=0)
    assert not leaders(local_engines, sleeper)
    assert local_engines.state(sleeper).status is EngineStatus.EXITED
