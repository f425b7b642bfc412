"""One program of the control plane as a supervised process with its own log and process group."""

import os
import signal
from collections.abc import Sequence
from pathlib import Path

from control_plane.orphan_guard import OrphanGuard
from serving.clock import Clock
from serving.engines.processes import end, group_members
from serving.engines.spawning import await_exit_noted, spawn

GRACE_S = 5.0
TOLD_LINES = 25


class Service:
    """A program that is started, frozen, thawed and stopped, any number of times. `log` grows over all its lives."""

    def __init__(self, name: str, command: Sequence[str], log: Path, guard: OrphanGuard, clock: Clock) -> None:
        self.name = name
        self.log = log
        self.pid: int | None = None
        self.exit_code: int | None = None
        self._command = tuple(command)
        self._guard = guard
        self._clock = clock

    def start(self) -> None:
        """Start it. Raises OSError when there is no such program, RuntimeError when it runs already."""
        if self.running:
            raise RuntimeError(f"{self.name} runs already")
        self.exit_code = None
        environment = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
        self.pid = spawn(self._command, environment, self.log, self._ended)
        self._guard.watch(self.pid)

    @property
    def running(self) -> bool:
        """Whether it was started and has not ended. A frozen one runs."""
        return self.pid is not None and self.exit_code is None

    def freeze(self) -> None:
        """SIGSTOP: its sockets stay open and nobody answers."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self.stop(grace_s=0)

    def stop(self, grace_s: float = GRACE_S) -> None:
        """SIGTERM, SIGKILL after `grace_s` (0: at once), and wait until it is gone with all it started."""
        if self.pid is None:
            return
        end(group_members(self.pid), grace_s, self._clock)
        await_exit_noted(self.pid)
        self.pid = None

    def told(self) -> str:
        """The end of its log, for messages about failures."""
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return f"the end of {self.log}:\n" + "\n".join(lines[-TOLD_LINES:])

    def _signal(self, number: signal.Signals) -> None:
        if not self.running or self.pid is None:
            raise RuntimeError(f"{self.name} does not run")
        os.kill(self.pid, number)

    def _ended(self, pid: int, exit_code: int) -> None:
        self._guard.forget(pid)
        if pid == self.pid:
            self.exit_code = exit_code
