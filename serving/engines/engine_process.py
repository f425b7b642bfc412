"""What is said about a local engine: its process as it is now, what became of an operation, and what can go wrong."""

from dataclasses import dataclass
from enum import StrEnum


class EngineError(Exception):
    """An engine could not be started or stopped; the message says why."""


class UnknownEngineError(EngineError):
    """No engine of that name has been added; the message lists those that exist."""


class EngineStatus(StrEnum):
    """Whether the engine's leading process is alive. A stopped (SIGSTOP) one is running."""

    RUNNING = "running"
    EXITED = "exited"
    NEVER_STARTED = "never_started"


@dataclass(frozen=True, slots=True)
class EngineProcess:
    """An engine's process as it is now.

    `pid` and `created_at` (Unix seconds) belong to the leader: the API server of vLLM. `exit_code` is known when its
    parent lived to see it end; negative is a signal. `operation` is the key of the last operation that started it.
    `stopped`: it was stopped on purpose (LocalEngines.stop) and not started since.
    """

    status: EngineStatus
    pid: int | None = None
    created_at: float | None = None
    exit_code: int | None = None
    operation: str | None = None
    restarts: int = 0
    started_at: float | None = None
    stopped: bool = False


class KeyState(StrEnum):
    """What became of an operation key: done, failed to start, never begun, cut off half-way, or under way right now."""

    DONE = "done"
    FAILED = "failed"
    NEVER = "never"
    CUT_OFF = "cut_off"
    UNDER_WAY = "under_way"
