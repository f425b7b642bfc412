"""A drill that is killed with SIGKILL at each of its moments leaves nothing broken once the next command has begun."""

import multiprocessing
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import killed_drill
import pytest

from agent.drill.card import Verdict
from agent.drill.local import LocalDrillFleet
from agent.drill.recovery import recover
from agent.drill.store import DrillStore
from serving.clock import SystemClock
from serving.engines import processes
from serving.engines.local import LocalEngines
from serving.engines.specs import EngineKind, EngineSpec
from serving.faults.faults import Faults

DEADLINE_S = 120.0  # generous: only a hang ends here
MOMENTS = ("after begin", "before inject", "after inject", "before undo", "after undo", "before end")


@pytest.fixture
def engines(tmp_path: Path) -> Iterator[LocalEngines]:
    engines = LocalEngines(tmp_path, SystemClock())
    command = (sys.executable, "-S", "-c", "import time\nwhile True: time.sleep(60)")
    engines.add(EngineSpec(name="one", kind=EngineKind.PROGRAM, command=command, port=9, model="none"))
    engines.start("one")
    yield engines
    Faults(tmp_path, engines, SystemClock()).clear("all")
    engines.stop("one", grace_s=0)


def killed_at(moment: str, directory: Path) -> None:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["agent.drill.runner", "agent.drill.local", "agent.cli.runbook"])
    ours, theirs = context.Pipe()
    process = context.Process(target=killed_drill.live, args=(directory, theirs))
    process.start()
    theirs.close()
    try:
        while True:
            assert ours.poll(DEADLINE_S), "the drill hangs"
            where = str(ours.recv())
            assert where != "done", f"{moment} never came"
            if where == moment:
                assert process.pid is not None
                os.kill(process.pid, signal.SIGKILL)
                return
            ours.send("go on")
    finally:
        process.join(DEADLINE_S)
        process.close()
        ours.close()


@pytest.mark.parametrize("moment", MOMENTS)
def test_nothing_stays_broken_after_a_kill(engines: LocalEngines, tmp_path: Path, moment: str) -> None:
    killed_at(moment, tmp_path)
    mark = engines.processes("one")["api"][0]
    assert processes.is_stopped(mark) == (moment in {"after inject", "before undo"})
    store, fleet = DrillStore(tmp_path), LocalDrillFleet(tmp_path, SystemClock())
    assert store.under_way() is not None
    with store.lock():  # its holder is dead, so the lock is free
        card = recover(fleet, store, lambda _line: None)
    assert card is not None
    assert (card.verdict, card.undone) == (Verdict.INTERRUPTED, True)
    assert not processes.is_stopped(mark)
    assert Faults(tmp_path, engines, SystemClock()).active() == ()
    assert store.under_way() is None
    assert [each.run for each in store.history()[0]][-1] == card.run
    with store.lock():
        assert recover(fleet, store, lambda _line: None) is None
