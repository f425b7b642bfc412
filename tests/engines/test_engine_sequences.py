"""Whatever the order of operations, an engine has at most one process, and a key restarts it at most once."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from serving.clock import SystemClock
from serving.engines import local, processes
from serving.engines.engine_process import EngineStatus
from serving.engines.local import LocalEngines

STEPS = st.one_of(
    st.tuples(st.just("restart"), st.sampled_from(["k0", "k1", "k2"])),
    st.tuples(st.sampled_from(["start", "stop", "die", "kill_orphans"]), st.just("")),
)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(STEPS, min_size=2, max_size=8))
def test_any_order_of_operations_keeps_one_process_and_counts_each_key_once(
    steps: list[tuple[str, str]], program: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "EARLY_EXIT_S", 0.0)
    with tempfile.TemporaryDirectory() as folder:
        engines = LocalEngines(Path(folder), SystemClock())
        engines.add(program("one"))
        try:
            walk(engines, steps)
        finally:
            engines.stop("one", grace_s=0)


def walk(engines: LocalEngines, steps: list[tuple[str, str]]) -> None:
    running, keys = False, set()
    for step, key in steps:
        before = engines.state("one")
        running = take(engines, step, key, running=running, known=key in keys)
        if step == "restart":
            assert (engines.state("one").pid == before.pid) is (key in keys)
            keys.add(key)
        state = engines.state("one")
        alive = processes.with_environment({"FLEETWARDEN_ENGINE": "one", "FLEETWARDEN_STATE": str(engines.directory)})
        assert [process.pid for process in alive] == ([state.pid] if running else [])
        assert (state.status is EngineStatus.RUNNING) is running
        assert state.restarts == len(keys)
        assert engines.orphans("one") == ()


def take(engines: LocalEngines, step: str, key: str, *, running: bool, known: bool) -> bool:
    """Do one step; whether the engine should run after it."""
    if step == "start":
        engines.start("one")
        return True
    if step == "restart":
        engines.restart("one", key, grace_s=0)
        return running or not known
    if step == "kill_orphans":
        engines.kill_orphans("one")
        return running
    if step == "stop":
        engines.stop("one", grace_s=0)
    else:
        processes.end(engines.processes("one")["api"], 0, SystemClock())
    return False
