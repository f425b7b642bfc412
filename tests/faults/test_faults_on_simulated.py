"""The same names on a simulated engine, by its own control routes."""

from collections.abc import Callable

import pytest
import requests

from serving.engines import processes
from serving.engines.engine_process import EngineStatus
from serving.engines.local import LocalEngines
from serving.engines.readiness import answers
from serving.faults import means
from serving.faults.faults import Faults

REVERSIBLE = ["engine-hang", "worker-hang", "api-hang", "slow-worker", "gc-stall"]


def at_work(engines: LocalEngines) -> list[str]:
    listing = requests.get(f"{engines.spec('sim-0').url}/sim/faults", timeout=5).json()
    return [each["fault"] for each in listing["active"]]


def test_every_reversible_fault_and_its_undo_leave_the_engine_as_it_was(
    sim_engines: LocalEngines, sim_faults: Faults
) -> None:
    before = sim_engines.state("sim-0")
    for name in REVERSIBLE:
        injection = sim_faults.inject(name, "sim-0")
        assert at_work(sim_engines) == [name]
        assert sim_faults.clear(injection.id)[0].ok
        assert at_work(sim_engines) == []
    assert sim_engines.state("sim-0") == before
    assert answers(f"{sim_engines.spec('sim-0').url}/health")


def test_a_slow_worker_is_slower_by_the_same_factor_as_a_real_one(sim_engines: LocalEngines, sim_faults: Faults) -> None:
    sim_faults.inject("slow-worker", "sim-0", share=0.75)
    (active,) = requests.get(f"{sim_engines.spec('sim-0').url}/sim/faults", timeout=5).json()["active"]
    assert active["factor"] == pytest.approx(4.0)


def test_a_restart_ends_the_fault_and_clearing_it_then_is_no_error(sim_engines: LocalEngines, sim_faults: Faults) -> None:
    injection = sim_faults.inject("engine-hang", "sim-0")
    sim_engines.restart("sim-0", grace_s=0)
    (cleared,) = sim_faults.clear(injection.id)
    assert cleared.ok
    assert "gone" in cleared.detail


@pytest.mark.parametrize("name", ["engine-kill", "api-kill"])
def test_a_killed_engine_goes_down_and_its_undo_brings_it_back(
    sim_engines: LocalEngines, sim_faults: Faults, name: str, until: Callable[..., None]
) -> None:
    injection = sim_faults.inject(name, "sim-0")
    until(lambda: sim_engines.state("sim-0").status is EngineStatus.EXITED)
    assert sim_faults.clear(injection.id)[0].ok
    until(lambda: answers(f"{sim_engines.spec('sim-0').url}/health"))


def test_an_undo_the_engine_does_not_answer_stays_on_record(
    sim_engines: LocalEngines, sim_faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    injection = sim_faults.inject("engine-hang", "sim-0")
    monkeypatch.setattr(means, "SIMULATOR_TIMEOUT_S", 0.5)
    (process,) = sim_engines.processes("sim-0")["api"]
    processes.send(process, processes.signal.SIGSTOP)
    (cleared,) = sim_faults.clear("all")
    assert not cleared.ok
    assert [each.injection.id for each in sim_faults.active()] == [injection.id]
    processes.send(process, processes.signal.SIGCONT)
    assert sim_faults.clear(injection.id)[0].ok
