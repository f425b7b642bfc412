"""What is written down about an engine's process: state.json, exit.json and the lock that guards changes.

Only serving.engines.local writes these. The lock is an flock: it is freed by the kernel when its holder dies.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from serving.clock import Clock
from serving.engines.processes import POLL_S, ProcessMark

KEPT_OPERATIONS = 200


class EngineBusyError(Exception):
    """Somebody else is starting or stopping this engine and did not finish in time."""


class Deed(StrEnum):
    """What an operation was to do."""

    START = "start"
    RESTART = "restart"


class Intent(BaseModel):
    """An operation that has begun and whose end is not yet written."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    key: str
    deed: Deed
    at: float


class Operation(BaseModel):
    """An operation that ended: the process it started, or None with the reason when the start failed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    key: str
    deed: Deed
    at: float
    process: ProcessMark | None
    detail: str = ""


class EngineRecord(BaseModel):
    """state.json. `process` is the leader last started; it may have exited. `restarts` counts restarts since `add`.

    `stopped`: it was stopped on purpose and not started since.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    process: ProcessMark | None = None
    started_at: float | None = None
    restarts: int = 0
    stopped: bool = False
    pending: Intent | None = None
    operations: tuple[Operation, ...] = ()

    def with_intent(self, intent: Intent) -> "EngineRecord":
        """The same, with an operation under way."""
        return self.model_copy(update={"pending": intent})

    def with_result(self, operation: Operation) -> "EngineRecord":
        """The same, after an operation. Nothing is pending any more, and old operations are forgotten."""
        update: dict[str, object] = {"pending": None, "operations": (*self.operations, operation)[-KEPT_OPERATIONS:]}
        if operation.process is not None:
            update |= {"process": operation.process, "started_at": operation.at, "stopped": False}
            update["restarts"] = self.restarts + (operation.deed is Deed.RESTART)
        return self.model_copy(update=update)

    def operation(self, key: str) -> Operation | None:
        """The ended operation with this key, if it is remembered."""
        return next((operation for operation in reversed(self.operations) if operation.key == key), None)


class ExitNote(BaseModel):
    """exit.json: how a leader ended, noted by whoever was its parent. A negative code is the signal that ended it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    pid: int
    exit_code: int
    at: float


@contextlib.contextmanager
def engine_lock(path: Path, timeout_s: float, clock: Clock) -> Iterator[None]:
    """Hold the engine's lock. Raises EngineBusyError when another holder keeps it for `timeout_s`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        deadline = clock.monotonic() + timeout_s
        while not _try_lock(handle):
            if clock.monotonic() >= deadline:
                raise EngineBusyError(f"another operation has held {path} for {timeout_s:g} s; try again")
            clock.sleep(POLL_S)
        yield
    finally:
        os.close(handle)


def is_locked(path: Path) -> bool:
    """Whether an operation on the engine is under way at this moment."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return not _try_lock(handle, fcntl.LOCK_SH)  # shared, so that two who look do not see each other
    finally:
        os.close(handle)


def _try_lock(handle: int, how: int = fcntl.LOCK_EX) -> bool:
    try:
        fcntl.flock(handle, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
