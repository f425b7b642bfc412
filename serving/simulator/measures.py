"""What the API side of an engine counts: plain counters, gauges and histograms, written only when a step was heard of.

As in vLLM, nothing here moves while the engine says nothing: a hung engine leaves its last numbers standing.
"""

import bisect
from dataclasses import dataclass, field

from serving.simulator.request import FinishReason

LATENCY = (0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680)
FIRST_TOKEN = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75),
    *(1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560),
)
INTER_TOKEN = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80)
STEP_TOKENS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
PARAMETER_N = (1, 2, 5, 10, 20)
PREEMPTIONS = (1, 2, 3, 4, 5, 10, 20)


def token_buckets(max_model_len: int) -> tuple[int, ...]:
    """Bucket bounds of token counts: 1, 2, 5, 10, ... up to the longest context the engine serves."""
    series = (mantissa * 10**exponent for exponent in range(len(str(max_model_len))) for mantissa in (1, 2, 5))
    return tuple(bound for bound in series if bound <= max_model_len)


class Histogram:
    """Observations in buckets. `counts` has one entry per bound and one for what lies above the last; not cumulative."""

    __slots__ = ("bounds", "count", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.count = 0
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count one observation; a bound belongs to its own bucket."""
        self.counts[bisect.bisect_left(self.bounds, value)] += 1
        self.count += 1
        self.total += value


def _latency() -> Histogram:
    return Histogram(LATENCY)


@dataclass(slots=True)
class EngineMeasures:
    """All that one engine counts. Gauges hold their last value; counters and histograms only grow."""

    token_bounds: tuple[int, ...]

    running: int = 0
    waiting_capacity: int = 0
    waiting_deferred: int = 0
    kv_usage: float = 0.0
    sleep_level: int | None = None

    prefix_queries: int = 0
    prefix_hits: int = 0
    preemptions: int = 0
    prompt_tokens: int = 0
    prompt_tokens_cached: int = 0
    generation_tokens: int = 0
    finished: dict[FinishReason, int] = field(default_factory=lambda: dict.fromkeys(FinishReason, 0))
    rejected: dict[str, int] = field(default_factory=lambda: {"max_num_queued_reqs": 0, "max_num_queued_tokens": 0})

    step_tokens: Histogram = field(default_factory=lambda: Histogram(STEP_TOKENS))
    first_token: Histogram = field(default_factory=lambda: Histogram(FIRST_TOKEN))
    inter_token: Histogram = field(default_factory=lambda: Histogram(INTER_TOKEN))
    per_output_token: Histogram = field(default_factory=lambda: Histogram(INTER_TOKEN))
    e2e: Histogram = field(default_factory=_latency)
    queue: Histogram = field(default_factory=_latency)
    inference: Histogram = field(default_factory=_latency)
    prefill: Histogram = field(default_factory=_latency)
    decode: Histogram = field(default_factory=_latency)
    request_preemptions: Histogram = field(default_factory=lambda: Histogram(PREEMPTIONS))
    parameter_n: Histogram = field(default_factory=lambda: Histogram(PARAMETER_N))
    prompt_length: Histogram = field(init=False)
    generation_length: Histogram = field(init=False)
    max_generation_length: Histogram = field(init=False)
    parameter_max_tokens: Histogram = field(init=False)
    prefill_computed: Histogram = field(init=False)

    def __post_init__(self) -> None:
        self.prompt_length = Histogram(self.token_bounds)
        self.generation_length = Histogram(self.token_bounds)
        self.max_generation_length = Histogram(self.token_bounds)
        self.parameter_max_tokens = Histogram(self.token_bounds)
        self.prefill_computed = Histogram(self.token_bounds)
