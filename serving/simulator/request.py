"""What goes into an engine and what comes out of it: requests, emissions of a step, and the scheduler's numbers."""

from dataclasses import dataclass
from enum import StrEnum


class FinishReason(StrEnum):
    """Why a request ended, in vLLM's words and order."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"
    ERROR = "error"
    REPETITION = "repetition"


@dataclass(frozen=True, slots=True)
class Request:
    """One sequence to be generated.

    It ends after `output_tokens` (>= 1) tokens with `finish`. `prefix_keys` name the full blocks of its prompt for the
    prefix cache. Lower `priority` is served first where the engine schedules by priority. A request is deferred for
    `defer_seconds` after it was queued, as one whose grammar is still being compiled.
    """

    id: str
    prompt_tokens: int
    output_tokens: int
    arrival: float
    priority: int = 0
    prefix_keys: tuple[int, ...] = ()
    defer_seconds: float = 0.0
    finish: FinishReason = FinishReason.LENGTH

    def __post_init__(self) -> None:
        if self.prompt_tokens < 1 or self.output_tokens < 1:
            raise ValueError(f"request {self.id}: prompt and output have at least one token each")


@dataclass(frozen=True, slots=True)
class Emission:
    """What one step gave one request: a token, its end, or both. Times are on the engine's clock.

    `cached_tokens` is how much of the prompt came from the prefix cache. An aborted request gets no token with its end.
    """

    id: str
    tokens: int
    queued_at: float
    scheduled_at: float
    cached_tokens: int
    preemptions: int
    finish: FinishReason | None = None


@dataclass(frozen=True, slots=True)
class SchedulerNumbers:
    """The scheduler's state right after a step: what vLLM's gauges are set from."""

    running: int
    waiting_capacity: int
    waiting_deferred: int
    kv_usage: float


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the engine, from `start` to `end`.

    `scheduled` is the number of tokens computed for each request. `prefix_queries` and `prefix_hits` are prompt tokens
    looked up and found in the prefix cache by requests admitted in this step.
    """

    start: float
    end: float
    scheduled: dict[str, int]
    emissions: tuple[Emission, ...]
    preempted: int
    prefix_queries: int
    prefix_hits: int
    numbers: SchedulerNumbers
