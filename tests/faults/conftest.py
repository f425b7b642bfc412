"""A state directory with one sleeping program as an engine, and one simulated engine when asked for."""

import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from serving.clock import SystemClock
from serving.engines.local import LocalEngines
from serving.engines.readiness import answers
from serving.engines.specs import EngineKind, EngineSpec, simulated_engine
from serving.faults.faults import Faults

SLEEPER = "import time\nwhile True: time.sleep(60)"


def wait_until(condition: Callable[[], object], timeout_s: float = 30.0) -> None:
    clock = SystemClock()
    deadline = clock.monotonic() + timeout_s
    while not condition():
        assert clock.monotonic() < deadline, "the condition did not come true in time"
        clock.sleep(0.02)


@pytest.fixture
def until() -> Callable[..., None]:
    return wait_until


@pytest.fixture
def engines(tmp_path: Path) -> Iterator[LocalEngines]:
    engines = LocalEngines(tmp_path, SystemClock())
    command = (sys.executable, "-S", "-c", SLEEPER)
    engines.add(EngineSpec(name="one", kind=EngineKind.PROGRAM, command=command, port=9, model="none"))
    engines.start("one")
    yield engines
    Faults(tmp_path, engines, SystemClock()).clear("all")
    for name in engines.names():
        engines.stop(name, grace_s=0)


@pytest.fixture
def faults(tmp_path: Path, engines: LocalEngines) -> Faults:
    return Faults(tmp_path, engines, SystemClock())


@pytest.fixture(scope="module")
def simulated_fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalEngines]:
    """One simulated engine, sim-0, for all tests of a module: it takes seconds to start."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    engines = LocalEngines(tmp_path_factory.mktemp("simulated"), SystemClock())
    engines.add(simulated_engine("sim-0", port, extra=("--startup-seconds", "0")))
    yield engines
    engines.stop("sim-0", grace_s=0)


@pytest.fixture
def sim_engines(simulated_fleet: LocalEngines) -> Iterator[LocalEngines]:
    """The same, answering and unharmed at the start of each test."""
    simulated_fleet.start("sim-0")
    wait_until(lambda: answers(f"{simulated_fleet.spec('sim-0').url}/health"))
    yield simulated_fleet
    Faults(simulated_fleet.directory, simulated_fleet, SystemClock()).clear("all")


@pytest.fixture
def sim_faults(sim_engines: LocalEngines) -> Faults:
    return Faults(sim_engines.directory, sim_engines, SystemClock())
