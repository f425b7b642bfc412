"""Columns: signals over time for many things at once, one row each, and the questions that may be asked of them.

A Window is the columns of the engines; a Table those of other things (GPUs, nodes). Missing is NaN, never zero.
"""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from serving.telemetry import counters

Floats = NDArray[np.float64]
T = TypeVar("T")

PROCESS_START = "engine.process_start"


@dataclass(frozen=True, slots=True, eq=False)
class SignalMatrix:
    """One scalar signal. `values` and `sampled_at` (Unix seconds at which the source took the sample): (rows, times)."""

    values: Floats
    sampled_at: Floats


@dataclass(frozen=True, slots=True, eq=False)
class HistogramMatrix:
    """One histogram signal: cumulative bucket counts as exposed, not yet differenced.

    `bounds` (buckets,) are ascending upper bounds ending in +inf; `counts` (rows, times, buckets);
    `sums` and `sampled_at` (rows, times).
    """

    bounds: Floats
    counts: Floats
    sums: Floats
    sampled_at: Floats


class Columns:
    """What Window and Table have in common. `times` (times,) ascend and end at or before `now`."""

    __slots__ = ()

    now: float
    times: Floats
    signals: Mapping[str, SignalMatrix]
    histograms: Mapping[str, HistogramMatrix]
    _known: dict[Hashable, Any]

    @property
    def rows(self) -> int:
        """How many things there are a row of."""
        raise NotImplementedError

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """What `make` gives, worked out once for this window: a window never changes, and several ask the same of it.

        `key` names it, together with all that it depends on besides the window.
        """
        if key not in self._known:
            self._known[key] = make()
        known: T = self._known[key]
        return known

    def values(self, signal: str, seconds: float | None = None) -> Floats:
        """The samples of `signal`, (rows, times); only those of the last `seconds` where given.

        All NaN when no source carries the signal: absent is a fact for the caller to weigh, not an error.
        """
        columns = self._columns(seconds)
        matrix = self.signals.get(signal)
        if matrix is None:
            return np.full((self.rows, len(self.times[columns])), np.nan)
        return matrix.values[:, columns]

    def latest(self, signal: str, within: float) -> Floats:
        """The newest sample of each row no older than `within` seconds; NaN otherwise. Shape (rows,)."""
        matrix = self.signals.get(signal)
        if matrix is None:
            return np.full(self.rows, np.nan)
        newest = _taken(matrix.values, counters.newest_present(matrix.values))
        return np.where(self.age(signal) <= within, newest, np.nan)

    def age(self, signal: str) -> Floats:
        """Seconds since the newest present sample of each row; +inf where there is none. Shape (rows,)."""
        matrix = self.signals.get(signal)
        if matrix is None:
            return np.full(self.rows, np.inf)
        newest = _taken(matrix.sampled_at, counters.newest_present(matrix.values))
        return np.where(np.isnan(newest), np.inf, self.now - newest)

    def increments(self, counter: str) -> Floats:
        """What `counter` grew by at each sample, reset-aware and keyed by process start. (rows, times), read-only."""
        matrix = self.signals.get(counter)
        if matrix is None:
            return self.values(counter)
        return self.once(("increments", counter), lambda: self.grown(counter, matrix.values))

    def histogram_increments(self, histogram: str) -> tuple[Floats, Floats]:
        """New observations at each sample and their sum: as `increments`, two arrays (rows, times), read-only."""
        matrix = self.histograms.get(histogram)
        if matrix is None:
            absent = self.values("")
            return absent, absent
        return (
            self.once(("counts", histogram), lambda: self.grown(histogram, matrix.counts[:, :, -1])),
            self.once(("sums", histogram), lambda: self.grown(histogram, matrix.sums)),
        )

    def grown(self, signal: str, values: Floats, of: NDArray[np.intp] | None = None) -> Floats:
        """The increments of `values` (rows, times), a counter that starts anew when `signal` does. Read-only.

        `of`, ascending, says which rows of the window these are; all of them when None.
        """
        grown = counters.increments(values)
        rows, starts = self._restarts(signal)
        if of is not None:
            mine = np.isin(rows, of)
            rows, starts = np.searchsorted(of, rows[mine]), starts[mine]
        if len(rows):
            grown[rows] = counters.increments(values[rows], starts)
        grown.flags.writeable = False
        return grown

    def increase(self, counter: str, seconds: float) -> Floats:
        """What `counter` grew by over the last `seconds`. NaN with fewer than two samples. Shape (rows,)."""
        if counter not in self.signals:
            return np.full(self.rows, np.nan)
        return self._increase(counter, self.values(counter, seconds), self._columns(seconds))

    def rate(self, counter: str, seconds: float) -> Floats:
        """Increase per second over the time the samples really span. NaN with fewer than two samples. Shape (rows,)."""
        matrix = self.signals.get(counter)
        if matrix is None:
            return np.full(self.rows, np.nan)
        columns = self._columns(seconds)
        taken = np.where(np.isnan(matrix.values[:, columns]), np.nan, matrix.sampled_at[:, columns])
        present = ~np.isnan(taken)
        last = np.where(present, taken, -np.inf).max(axis=1, initial=-np.inf)
        first = np.where(present, taken, np.inf).min(axis=1, initial=np.inf)
        span = last - first
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(span > 0, self.increase(counter, seconds) / span, np.nan)

    def observed(self, histogram: str, seconds: float, *, until: float = 0.0) -> tuple[Floats, Floats]:
        """New observations from `seconds` ago to `until` seconds ago: (bounds, cumulative counts (rows, buckets)).

        Counts are NaN where fewer than two samples are present, and bounds are just +inf where the histogram is absent.
        """
        matrix = self.histograms.get(histogram)
        if matrix is None:
            return np.array([np.inf]), np.full((self.rows, 1), np.nan)
        columns = self._columns(seconds, until)
        return matrix.bounds, self._increase_of_buckets(histogram, matrix.counts[:, columns], columns)

    def quantile(self, histogram: str, q: float, seconds: float, *, until: float = 0.0) -> Floats:
        """The q-quantile of what was observed from `seconds` ago to `until` seconds ago. Shape (rows,)."""
        bounds, counts = self.observed(histogram, seconds, until=until)
        return counters.quantile(bounds, counts, q)

    def mean(self, histogram: str, seconds: float, *, until: float = 0.0) -> Floats:
        """The mean of what was observed over that span; NaN where nothing was. Shape (rows,)."""
        matrix = self.histograms.get(histogram)
        if matrix is None:
            return np.full(self.rows, np.nan)
        columns = self._columns(seconds, until)
        total = self._increase(histogram, matrix.sums[:, columns], columns)
        count = self._increase(histogram, matrix.counts[:, columns, -1], columns)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(count > 0, total / count, np.nan)

    def _columns(self, seconds: float | None, until: float = 0.0) -> slice:
        first = 0 if seconds is None else int(np.searchsorted(self.times, self.now - seconds))
        end = len(self.times) if until == 0.0 else int(np.searchsorted(self.times, self.now - until, side="right"))
        return slice(first, max(first, end))

    def _restarts(self, signal: str) -> tuple[NDArray[np.intp], Floats]:
        """The rows whose process started anew in this window, and their starts: those that can reset `signal`.

        Only the engine's own counters restart with the engine.
        """
        matrix = self.signals.get(PROCESS_START) if signal.startswith("engine.") else None
        if matrix is None:
            return np.empty(0, dtype=np.intp), np.empty((0, len(self.times)))
        rows = self.once("restarted", lambda: counters.restarted(matrix.values))
        return rows, matrix.values[rows]

    def _increase(self, signal: str, values: Floats, columns: slice) -> Floats:
        grown = counters.increase(values)
        rows, starts = self._restarts(signal)
        if len(rows):
            grown[rows] = counters.increase(values[rows], starts[:, columns])
        return grown

    def _increase_of_buckets(self, histogram: str, counts: Floats, columns: slice) -> Floats:
        """What each bucket of `counts` (rows, times, buckets) grew by. Shape (rows, buckets)."""
        rows, times, buckets = counts.shape
        if times < 2:  # noqa: PLR2004 - one sample shows no change
            return np.full((rows, buckets), np.nan)
        grown = np.asarray(counts[:, -1] - counts[:, 0])
        total = counts[:, :, -1]
        uneven = ~((total[:, 1:] - total[:, :-1]).min(axis=1) >= 0) | (grown < 0).any(axis=1)
        restarted, starts = self._restarts(histogram)
        uneven[restarted] = True
        some = np.flatnonzero(uneven)
        if len(some):
            began = np.full((rows, times), np.nan)
            began[restarted] = starts[:, columns]
            flat = counts[some].transpose(0, 2, 1).reshape(-1, times)
            grown[some] = counters.increase(flat, np.repeat(began[some], buckets, axis=0)).reshape(len(some), buckets)
        return grown


def _taken(matrix: Floats, columns: NDArray[np.intp]) -> Floats:
    """The value of each row at its column; NaN where the column is -1."""
    if matrix.shape[1] == 0:
        return np.full(len(matrix), np.nan)
    return np.where(columns >= 0, matrix[np.arange(len(matrix)), columns], np.nan)
