"""How a container is stopped: its preStop hook, SIGTERM, and SIGKILL when the grace is over.

killContainer in pkg/kubelet/kuberuntime/kuberuntime_container.go: the hook's time counts against the grace, but at least two
seconds are left for the program to end by itself. The first process is asked to end; once it has, or is killed, all others
of the container are killed too.
"""

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping
from typing import Any

from control_plane.kubelet.probes import Target, http
from serving.clock import Clock
from serving.engines.processes import end, group_members

LEAST_GRACE_S = 2.0  # minimumGracePeriodInSeconds
POLL_S = 0.02


class Ending(threading.Thread):
    """Stops one process group. The grace may be made shorter while it runs, never longer."""

    def __init__(
        self,
        pid: int,
        grace_s: float,
        hook: Mapping[str, Any] | None,
        target: Target,
        clock: Clock,
        lives: Callable[[], bool],
        complain: Callable[[str], None],
    ) -> None:
        """`lives`: whether the first process has not ended. `complain` is told when the hook fails."""
        super().__init__(name=f"ending-{pid}", daemon=True)
        self._pid, self._hook, self._target, self._clock = pid, hook, target, clock
        self._lives, self._complain = lives, complain
        self._deadline = clock.monotonic() + grace_s

    def shorten(self, grace_s: float) -> None:
        """End within `grace_s` from now, unless it ends sooner anyhow."""
        self._deadline = min(self._deadline, self._clock.monotonic() + grace_s)

    def run(self) -> None:
        if self._hook is not None:
            self._call_hook(self._hook)
        self._deadline = max(self._deadline, self._clock.monotonic() + LEAST_GRACE_S)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGTERM)
        self._while(self._lives)
        end(group_members(self._pid), 0, self._clock)

    def _while(self, holds: Callable[[], bool], seconds: float = float("inf")) -> bool:
        """Wait while it holds, until the deadline at most; whether it still does."""
        until = self._clock.monotonic() + seconds
        while holds() and self._clock.monotonic() < min(self._deadline, until):
            self._clock.sleep(POLL_S)
        return holds()

    def _call_hook(self, hook: Mapping[str, Any]) -> None:
        if "sleep" in hook:
            self._while(self._lives, hook["sleep"]["seconds"])
        elif "exec" in hook:
            self._execute(hook["exec"]["command"])
        elif "httpGet" in hook:
            verdict = http(hook["httpGet"], self._target, max(0.1, self._deadline - self._clock.monotonic()))
            if not verdict.good:
                self._complain(verdict.detail)

    def _execute(self, command: list[str]) -> None:
        try:
            running = subprocess.Popen(
                command, env=dict(self._target.environment), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
        except OSError as failed:
            self._complain(str(failed))
            return
        if self._while(lambda: running.poll() is None):
            running.kill()
            running.wait()
            self._complain(f"{command} did not end within the grace")
        elif running.returncode != 0:
            self._complain(f"{command} exited with {running.returncode}")
