"""Starting one detached process: its own session, its output in a file, nothing inherited but what is named.

`posix_spawn` is used rather than subprocess because its child keeps every descriptor until the very `exec` closes it. The
engine's lock is therefore held until the child carries its new environment, even when the parent is killed in between.
"""

import contextlib
import os
import shutil
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

RESET_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGCHLD)

# The children of this process that still run, by process id; each thread takes itself out.
_reapers: dict[int, threading.Thread] = {}


def spawn(command: Sequence[str], environment: Mapping[str, str], log: Path, on_exit: Callable[[int, int], None]) -> int:
    """Start `command` and return its process id, which is also its session and process group.

    Output is appended to `log`. `on_exit(pid, exit_code)` is called from a thread once it ends (negative: by that signal),
    as long as this process lives; the thread also reaps the child. Raises OSError when the program cannot be started.
    """
    program = shutil.which(command[0], path=environment.get("PATH"))
    if program is None:
        raise FileNotFoundError(f"there is no program {command[0]!r} to start")
    log.parent.mkdir(parents=True, exist_ok=True)
    pid = os.posix_spawn(
        program,
        list(command),
        dict(environment),
        setsid=True,
        setsigmask=(),
        setsigdef=RESET_SIGNALS,
        file_actions=(
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ),
    )
    reaper = threading.Thread(target=_reap, args=(pid, on_exit), name=f"reaper-{pid}", daemon=True)
    _reapers[pid] = reaper
    reaper.start()
    return pid


def await_exit_noted(pid: int, timeout_s: float = 5.0) -> None:
    """Once `pid` has ended: wait until its `on_exit` has returned. Nothing to wait for unless this process spawned it."""
    reaper = _reapers.get(pid)
    if reaper is not None:
        reaper.join(timeout_s)


def _reap(pid: int, on_exit: Callable[[int, int], None]) -> None:
    # Somebody else in this process may have reaped it first; then the exit code is not known to us.
    with contextlib.suppress(ChildProcessError):
        _, status = os.waitpid(pid, 0)
        on_exit(pid, os.waitstatus_to_exitcode(status))
    _reapers.pop(pid, None)
