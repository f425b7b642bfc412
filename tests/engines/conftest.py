"""Cheap real processes as engines: a sleeping interpreter, with a stubborn child when asked for."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from serving.clock import SystemClock
from serving.engines.local import LocalEngines
from serving.engines.specs import EngineKind, EngineSpec

SLEEPER = "import time\nwhile True: time.sleep(60)"
# A leader with a child in its group that ignores SIGTERM, as an engine core that is busy may. It says so once it does.
FAMILY = """
import subprocess, sys, time
subprocess.Popen([sys.executable, "-S", "-c", '''
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("child ready", flush=True)
while True: time.sleep(60)
'''])
while True: time.sleep(60)
"""


@pytest.fixture
def local_engines(tmp_path: Path) -> Iterator[LocalEngines]:
    engines = LocalEngines(tmp_path / "state", SystemClock())
    yield engines
    for name in engines.names():
        engines.stop(name, grace_s=0)


@pytest.fixture
def program() -> Callable[..., EngineSpec]:
    def make(name: str = "one", script: str = SLEEPER, port: int = 9) -> EngineSpec:
        command = (sys.executable, "-S", "-c", script)
        return EngineSpec(name=name, kind=EngineKind.PROGRAM, command=command, port=port, model="none")

    return make


@pytest.fixture
def sleeper(local_engines: LocalEngines, program: Callable[..., EngineSpec]) -> str:
    local_engines.add(program("sleeper"))
    return "sleeper"


@pytest.fixture
def family(local_engines: LocalEngines, program: Callable[..., EngineSpec], until: Callable[..., None]) -> str:
    """A running engine of two processes, the child deaf to SIGTERM."""
    local_engines.add(program("family", FAMILY))
    local_engines.start("family")
    until(lambda: "child ready" in local_engines.log("family").read_text())
    return "family"


@pytest.fixture
def until() -> Callable[..., None]:
    def wait(condition: Callable[[], object], timeout_s: float = 20.0) -> None:
        clock = SystemClock()
        deadline = clock.monotonic() + timeout_s
        while not condition():
            assert clock.monotonic() < deadline, "the condition did not come true in time"
            clock.sleep(0.02)

    return wait
