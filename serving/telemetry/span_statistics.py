"""Finished requests of the last seconds, reduced to where each engine's requests spent their time."""

from collections import deque
from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from serving.telemetry.reading import RequestSpan
from serving.telemetry.stages import Stage, StageStatistics

Floats = NDArray[np.float64]

_COLUMNS = ("row", "end", *Stage)


class SpanStore:
    """Spans of the last `seconds`, at most `capacity` of them: beyond that the oldest go first."""

    def __init__(self, rows: int, seconds: float, capacity: int) -> None:
        self._rows = rows
        self._seconds = seconds
        self._capacity = capacity
        self._blocks: deque[Floats] = deque()
        self._traced = np.zeros(rows, dtype=np.bool_)

    @property
    def any_traced(self) -> bool:
        """Whether any engine of the map ever sent a span."""
        return bool(self._traced.any())

    def add(self, spans: Iterable[RequestSpan], row_of: Mapping[str, int], now: float) -> None:
        """Take in finished requests. An end after `now` is another machine's clock and counts as now."""
        known = [
            (row_of[span.engine], min(span.end, now), *map(_number, (span.queue, span.prefill, span.decode, span.transfer)))
            for span in spans
            if span.engine in row_of
        ]
        if known:
            block = np.array(known[-self._capacity :])
            self._traced[block[:, 0].astype(np.intp)] = True
            self._blocks.append(block)
        while self._blocks and (self._blocks[0][:, 1].max() <= now - self._seconds or self._held() > self._capacity):
            self._blocks.popleft()

    def statistics(self, now: float, in_flight: Floats) -> StageStatistics:
        """The statistics at `now`. An engine that never sent a span has no count of finished requests, not zero."""
        table = np.concatenate(self._blocks) if self._blocks else np.empty((0, len(_COLUMNS)))
        table = table[table[:, 1] > now - self._seconds]
        rows = table[:, 0].astype(np.intp)
        finished = np.bincount(rows, minlength=self._rows).astype(np.float64)
        by_stage = {stage: _mean_and_p95(rows, table[:, 2 + place], self._rows) for place, stage in enumerate(Stage)}
        return StageStatistics(
            seconds=self._seconds,
            finished=_frozen(np.where(self._traced, finished, np.nan)),
            mean={stage: _frozen(mean) for stage, (mean, _) in by_stage.items()},
            p95={stage: _frozen(p95) for stage, (_, p95) in by_stage.items()},
            in_flight=in_flight,
        )

    def with_rows(self, origins: NDArray[np.intp]) -> "SpanStore":
        """A store for another set of engines, whose row i goes on with this store's row `origins[i]`."""
        store = SpanStore(len(origins), self._seconds, self._capacity)
        kept = np.flatnonzero(origins >= 0)
        store._traced[kept] = self._traced[origins[kept]]
        places = np.full(self._rows, -1, dtype=np.intp)
        places[origins[kept]] = kept
        for block in self._blocks:
            moved = block.copy()
            moved[:, 0] = places[block[:, 0].astype(np.intp)]
            moved = moved[moved[:, 0] >= 0]
            if len(moved):
                store._blocks.append(moved)
        return store

    def _held(self) -> int:
        return sum(len(block) for block in self._blocks)


def _number(seconds: float | None) -> float:
    return np.nan if seconds is None else seconds


def _mean_and_p95(rows: NDArray[np.intp], values: Floats, count: int) -> tuple[Floats, Floats]:
    """Mean and 95th percentile (linear between ranks, numpy's default) of the present values of each row."""
    present = ~np.isnan(values)
    rows, values = rows[present], values[present]
    sizes = np.bincount(rows, minlength=count)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.bincount(rows, weights=values, minlength=count) / sizes
    p95 = np.full(count, np.nan)
    ordered = values[np.lexsort((values, rows))]
    first = np.cumsum(sizes) - sizes
    some = np.flatnonzero(sizes)
    rank = 0.95 * (sizes[some] - 1)
    below = rank.astype(np.intp)
    above = np.minimum(below + 1, sizes[some] - 1)
    low, high = ordered[first[some] + below], ordered[first[some] + above]
    p95[some] = low + (high - low) * (rank - below)
    return mean, p95


def _frozen(array: Floats) -> Floats:
    array.flags.writeable = False
    return array
