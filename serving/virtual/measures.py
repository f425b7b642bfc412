"""What engines and the front door count, as columns: counters and histograms with vLLM's and the door's own bounds."""

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from serving.gateway.metrics import BOUNDS
from serving.simulator.measures import FIRST_TOKEN, INTER_TOKEN, LATENCY, token_buckets
from serving.telemetry.reading import HistogramReading

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]
Bools = NDArray[np.bool_]

LONGEST_CONTEXT = 32_768
_TOKENS = token_buckets(LONGEST_CONTEXT)
ENGINE_HISTOGRAMS: Mapping[str, tuple[float, ...]] = MappingProxyType(
    {
        "engine.ttft": FIRST_TOKEN,
        "engine.inter_token": INTER_TOKEN,
        "engine.e2e": LATENCY,
        "engine.queue_time": LATENCY,
        "engine.prefill_time": LATENCY,
        "engine.decode_time": LATENCY,
        "engine.prompt_length": _TOKENS,
        "engine.generation_length": _TOKENS,
    }
)
ENGINE_COUNTERS = (
    *("engine.steps", "engine.step_tokens", "engine.prompt_tokens", "engine.prompt_tokens.computed"),
    *("engine.generation_tokens", "engine.preemptions", "engine.rejected", "engine.corrupted", "engine.kv_expired"),
    *("engine.finished.stop", "engine.finished.length", "engine.finished.abort", "engine.finished.error"),
)
DOOR_HISTOGRAMS: Mapping[str, tuple[float, ...]] = MappingProxyType({"door.ttft": BOUNDS, "door.e2e": BOUNDS})
DOOR_COUNTERS = (
    *("door.started", "door.finished.ok", "door.finished.timeout", "door.finished.connection"),
    *("door.finished.client_closed", "door.finished.http_4xx", "door.finished.http_5xx"),
)


class Measures:
    """Counters and histograms of so many rows. Counts may be fractions: tokens of a tick are not rounded."""

    def __init__(self, rows: int, counters: tuple[str, ...], histograms: Mapping[str, tuple[float, ...]]) -> None:
        self.counters: dict[str, Floats] = {name: np.zeros(rows) for name in counters}
        self._bounds = {name: np.array([*bounds, np.inf]) for name, bounds in histograms.items()}
        self._counts = {name: np.zeros((rows, len(bounds))) for name, bounds in self._bounds.items()}
        self._sums = {name: np.zeros(rows) for name in histograms}
        self._pending: dict[str, list[tuple[Rows, Floats, Floats]]] = {name: [] for name in histograms}

    def add(self, counter: str, amounts: Floats) -> None:
        """Count `amounts` (rows,)."""
        self.counters[counter] += amounts

    def count(self, counter: str, rows: Rows) -> None:
        """Count one for each of `rows`, which may repeat."""
        values = self.counters[counter]
        values += np.bincount(rows, minlength=len(values))

    def observe(self, histogram: str, rows: Rows, values: Floats, weights: Floats | None = None) -> None:
        """Observe `values`, each at its row, `weights` times. They are sorted into buckets when somebody looks."""
        if len(rows):
            self._pending[histogram].append((rows, values, np.ones(len(rows)) if weights is None else weights))

    def forget(self, rows: Rows) -> None:
        """Begin anew at zero, as a process that starts does."""
        self._sort_in()
        for values in (*self.counters.values(), *self._counts.values(), *self._sums.values()):
            values[rows] = 0.0

    def histograms(self, hidden: Bools) -> Mapping[str, HistogramReading]:
        """All histograms as exposed, cumulative; missing in the rows that are `hidden`."""
        self._sort_in()
        told = {}
        for name, counts in self._counts.items():
            cumulative, sums = np.cumsum(counts, axis=1), self._sums[name].copy()
            cumulative[hidden] = np.nan
            sums[hidden] = np.nan
            told[name] = HistogramReading(self._bounds[name], cumulative, sums)
        return told

    def _sort_in(self) -> None:
        for name, pending in self._pending.items():
            if not pending:
                continue
            rows, values, weights = (np.concatenate(parts) for parts in zip(*pending, strict=True))
            pending.clear()
            counts = self._counts[name]
            bucket = np.searchsorted(self._bounds[name], values)
            counts += np.bincount(rows * counts.shape[1] + bucket, weights, minlength=counts.size).reshape(counts.shape)
            self._sums[name] += np.bincount(rows, values * weights, minlength=len(counts))
