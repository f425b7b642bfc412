"""Ends process groups whose starter died without a word: a control plane must not outlive a killed test run.

The guard is a process that reads from a pipe. Each line names a group to end, or with a minus one that has ended by itself.
When the starter is gone, however it went, the pipe ends and the guard kills what is left.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from typing import Self


class OrphanGuard:
    """The starter's end of the pipe. A context manager; leaving it kills what was watched and not forgotten."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._guard: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self._guard = subprocess.Popen(
            [sys.executable, "-S", "-E", __file__], stdin=subprocess.PIPE, text=True, start_new_session=True
        )
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            guard, self._guard = self._guard, None
        if guard is not None:
            guard.communicate(timeout=10)

    def watch(self, group: int) -> None:
        """End this process group if this process dies before `forget`."""
        self._say(f"{group}\n")

    def forget(self, group: int) -> None:
        """The group has ended; its number may be given to others."""
        self._say(f"-{group}\n")

    def _say(self, line: str) -> None:
        with self._lock:
            if self._guard is not None and self._guard.stdin is not None:
                with contextlib.suppress(BrokenPipeError):
                    self._guard.stdin.write(line)
                    self._guard.stdin.flush()


def guard() -> None:
    """Read orders until the starter is gone, then kill what is left of its groups."""
    watched: set[int] = set()
    for line in sys.stdin:
        number = int(line)
        if number > 0:
            watched.add(number)
        else:
            watched.discard(-number)
    for group in watched:
        with contextlib.suppress(OSError):
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # it ends with its starter, not before
        signal.signal(ignored, signal.SIG_IGN)
    guard()
