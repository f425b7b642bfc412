"""Processes of this machine, each named by its incarnation so that a reused process id is never mistaken for it.

Linux only: an incarnation is (process id, start in clock ticks since boot, boot). The ticks do not move when the wall
clock is set, which psutil's `create_time` does.
"""

import contextlib
import os
import signal
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import psutil
from pydantic import BaseModel, ConfigDict

from serving.clock import Clock

PROC = Path("/proc")
POLL_S = 0.02


class ProcessMark(BaseModel):
    """One incarnation of one process: `ticks` is its start since boot (field 22 of /proc/PID/stat)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    pid: int
    ticks: int
    boot: str


@dataclass(frozen=True, slots=True)
class _Stat:
    state: str
    group: int
    ticks: int


@cache
def _boot() -> str:
    return (PROC / "sys/kernel/random/boot_id").read_text().strip()


def _stat(pid: int) -> _Stat | None:
    try:
        text = (PROC / str(pid) / "stat").read_text()
    except (OSError, UnicodeDecodeError):
        return None
    # The second field is the command in brackets and may itself hold spaces and brackets.
    fields = text.rpartition(")")[2].split()
    return _Stat(state=fields[0], group=int(fields[2]), ticks=int(fields[19]))


def mark(pid: int) -> ProcessMark | None:
    """The incarnation that has `pid` now, or None when there is none or it is a zombie."""
    stat = _stat(pid)
    return None if stat is None or stat.state in "ZX" else ProcessMark(pid=pid, ticks=stat.ticks, boot=_boot())


def is_alive(process: ProcessMark) -> bool:
    """Whether this very incarnation runs, sleeps or is stopped. A zombie is gone: only its parent's note of it is left."""
    return mark(process.pid) == process


def is_stopped(process: ProcessMark) -> bool:
    """Whether it is alive and held by SIGSTOP."""
    stat = _stat(process.pid)
    return stat is not None and stat.state == "T" and is_alive(process)


def created_at(process: ProcessMark) -> float | None:
    """Unix seconds at which it began, as the wall clock now has it; None when it is gone."""
    with contextlib.suppress(psutil.Error):
        return psutil.Process(process.pid).create_time() if is_alive(process) else None
    return None


def title(process: ProcessMark) -> str:
    """Its command line (or the title it gave itself), empty when it is gone."""
    with contextlib.suppress(psutil.Error):
        return " ".join(psutil.Process(process.pid).cmdline())
    return ""


def send(process: ProcessMark, number: signal.Signals) -> bool:
    """Send a signal to this incarnation only. False when it is gone (nothing was sent).

    The pidfd pins the process between the check and the signal, so a reused id cannot slip in. Raises PermissionError
    when it belongs to another user.
    """
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    try:
        if not is_alive(process):
            return False
        signal.pidfd_send_signal(handle, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)
    return True


def send_all(everyone: Iterable[ProcessMark], number: signal.Signals) -> bool:
    """Send a signal to each incarnation that is alive; whether there was one."""
    return bool([process for process in everyone if send(process, number)])


def leads_group(process: ProcessMark) -> bool:
    """Whether it is the leader of its own process group."""
    stat = _stat(process.pid)
    return stat is not None and stat.group == process.pid and is_alive(process)


def group_members(group: int) -> frozenset[ProcessMark]:
    """The living members of a process group."""
    members = ((pid, _stat(pid)) for pid in psutil.pids())
    found = (mark(pid) for pid, stat in members if stat is not None and stat.group == group)
    return frozenset(process for process in found if process is not None)


def with_environment(variables: Mapping[str, str]) -> frozenset[ProcessMark]:
    """Living processes of this user that were started with all of `variables` in their environment."""
    wanted = {f"{name}={value}".encode() for name, value in variables.items()}
    found: set[ProcessMark] = set()
    for pid in psutil.pids():
        process = mark(pid)
        if process is None:
            continue
        with contextlib.suppress(OSError):
            environment = (PROC / str(pid) / "environ").read_bytes()
            if wanted <= set(environment.split(b"\0")) and is_alive(process):
                found.add(process)
    return frozenset(found)


def wait_gone(processes: Iterable[ProcessMark], timeout_s: float, clock: Clock) -> frozenset[ProcessMark]:
    """Wait until all are gone; those still alive after `timeout_s`."""
    return _wait_while(is_alive, processes, timeout_s, clock)


def wait_stopped(processes: Iterable[ProcessMark], timeout_s: float, clock: Clock) -> frozenset[ProcessMark]:
    """Wait until all are held by SIGSTOP, or gone; those still running after `timeout_s`."""
    return _wait_while(lambda process: is_alive(process) and not is_stopped(process), processes, timeout_s, clock)


def wait_continued(processes: Iterable[ProcessMark], timeout_s: float, clock: Clock) -> frozenset[ProcessMark]:
    """Wait until none is held by SIGSTOP; those still held after `timeout_s`."""
    return _wait_while(is_stopped, processes, timeout_s, clock)


def _wait_while(
    holds: Callable[[ProcessMark], bool], processes: Iterable[ProcessMark], timeout_s: float, clock: Clock
) -> frozenset[ProcessMark]:
    deadline = clock.monotonic() + timeout_s
    left = frozenset(filter(holds, processes))
    while left and clock.monotonic() < deadline:
        clock.sleep(POLL_S)
        left = frozenset(filter(holds, left))
    return left


def end(processes: Iterable[ProcessMark], grace_s: float, clock: Clock, kill_wait_s: float = 10.0) -> frozenset[ProcessMark]:
    """End processes and return those that could not be ended.

    SIGTERM with SIGCONT first (a stopped process could not act on it), SIGKILL after `grace_s` (0: SIGKILL only).
    """
    everyone = frozenset(processes)
    for process in everyone:
        if grace_s > 0:
            send(process, signal.SIGTERM)
            send(process, signal.SIGCONT)
    left = wait_gone(everyone, grace_s, clock)
    for process in left:
        send(process, signal.SIGKILL)
    return wait_gone(left, kill_wait_s, clock)
