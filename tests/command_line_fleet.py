"""A whole local fleet of simulated engines, started and steered by the command line as a person would."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent.local_fleet import Plan, is_free
from serving.clock import SystemClock

CLOCK = SystemClock()


class Fleet:
    """`fleetwarden` over one state directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def run(self, *arguments: str, timeout: float = 120.0) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "agent.cli", *arguments, "--state-dir", str(self.directory)]
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)

    def told(self, *arguments: str) -> Any:
        """What a command prints as JSON."""
        return json.loads(self.run(*arguments, "--json").stdout)

    def until(self, true: Callable[[], bool], seconds: float, what: str) -> None:
        """Ask until `true`, or fail with the logs of the fleet."""
        end = CLOCK.monotonic() + seconds
        while not true():
            if CLOCK.monotonic() > end:
                log = (self.directory / "services/engines/warden/log").read_text()[-4000:]
                pytest.fail(f"not within {seconds:.0f} s: {what}\n{log}\n{self.run('incidents', '--all').stdout}")
            CLOCK.sleep(2.0)  # asking starts a program, which takes the fleet its time


def free_range(length: int = 100) -> int:
    """The first port of a range whose ports a local fleet can have; test processes look at different ones."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    for base in range(21_000 + worker * length, 60_000, 8 * length):
        if all(is_free(port) for port in Plan(base_port=base).ports()):
            return base
    pytest.fail("no free range of ports")
