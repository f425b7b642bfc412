"""Window: everything known of the fleet at one moment, frozen and columnar.

Rows are engines in the order of `topology.engines`, columns are the times of `times`. Missing is NaN, never zero.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from serving.fleet.entity import Entity
from serving.fleet.topology import Topology
from serving.telemetry import counters
from serving.telemetry.stages import StageStatistics

Floats = NDArray[np.float64]
T = TypeVar("T")

PROCESS_START = "engine.process_start"


@dataclass(frozen=True, slots=True, eq=False)
class SignalMatrix:
    """One scalar signal. `values` and `sampled_at` (Unix seconds at which the source took the sample): (engines, times)."""

    values: Floats
    sampled_at: Floats


@dataclass(frozen=True, slots=True, eq=False)
class HistogramMatrix:
    """One histogram signal: cumulative bucket counts as exposed, not yet differenced.

    `bounds` (buckets,) are ascending upper bounds ending in +inf; `counts` (engines, times, buckets);
    `sums` and `sampled_at` (engines, times).
    """

    bounds: Floats
    counts: Floats
    sums: Floats
    sampled_at: Floats


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """How one source of telemetry fared at its latest reading. `error` is empty when it answered in time."""

    source: Entity
    answered_at: float | None
    error: str = ""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened at one moment, said by a source: a process exit, a restart, an XID, a Kubernetes event."""

    at: float
    kind: str
    entity: Entity
    text: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """What is known at `now`. `times` (times,) ascend and end at or before `now`; signal names are those of signals.yaml."""

    now: float
    topology: Topology
    times: Floats
    signals: Mapping[str, SignalMatrix] = field(default_factory=lambda: MappingProxyType({}))
    histograms: Mapping[str, HistogramMatrix] = field(default_factory=lambda: MappingProxyType({}))
    stages: StageStatistics | None = None
    events: tuple[Event, ...] = ()
    sources: tuple[SourceStatus, ...] = ()
    _known: dict[Hashable, Any] = field(default_factory=dict, init=False, repr=False)

    @property
    def rows(self) -> int:
        """How many engines the window has."""
        return len(self.topology.engines)

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """What `make` gives, worked out once for this window: a window never changes, and several ask the same of it.

        `key` names it, together with all that it depends on besides the window.
        """
        if key not in self._known:
            self._known[key] = make()
        known: T = self._known[key]
        return known

    def parts(self, rows: int) -> Iterator["Window"]:
        """The window cut into windows of at most `rows` engines each, in order, for what is said of each engine alone.

        They fit into a processor's cache where the whole does not. `stages` is left out.
        """
        for first in range(0, self.rows, rows):
            some = slice(first, first + rows)
            yield replace(
                self,
                topology=self.topology.part(some),
                signals={name: SignalMatrix(m.values[some], m.sampled_at[some]) for name, m in self.signals.items()},
                histograms={
                    name: HistogramMatrix(m.bounds, m.counts[some], m.sums[some], m.sampled_at[some])
                    for name, m in self.histograms.items()
                },
                stages=None,
            )

    def values(self, signal: str, seconds: float | None = None) -> Floats:
        """The samples of `signal`, (engines, times); only those of the last `seconds` where given.

        All NaN when no source carries the signal: absent is a fact for the caller to weigh, not an error.
        """
        columns = self._columns(seconds)
        matrix = self.signals.get(signal)
        if matrix is None:
            return np.full((self.rows, len(self.times[columns])), np.nan)
        return matrix.values[:, columns]

    def latest(self, signal: str, within: float) -> Floats:
        """The newest sample of each engine no older than `within` seconds; NaN otherwise. Shape (engines,)."""
        matrix = self.signals.get(signal)
        if matrix is None:
            return np.full(self.rows, np.nan)
        newest = _taken(matrix.values, counters.newest_present(matrix.values))
        return np.where(self.age(signal) <= within, newest, np.nan)

    def age(self, signal: str) -> Floats:
        """Seconds since the newest present sample of each engine; +inf where there is none. Shape (engines,)."""
        matrix = self.signals.get(signal)
        if matrix is None:
            return np.full(self.rows, np.inf)
        newest = _taken(matrix.sampled_at, counters.newest_present(matrix.values))
        return np.where(np.isnan(newest), np.inf, self.now - newest)

    def increments(self, counter: str) -> Floats:
        """What `counter` grew by at each sample, reset-aware and keyed by process start. (engines, times), read-only."""
        matrix = self.signals.get(counter)
        if matrix is None:
            return self.values(counter)
        return self.once(("increments", counter), lambda: self.grown(counter, matrix.values))

    def histogram_increments(self, histogram: str) -> tuple[Floats, Floats]:
        """New observations at each sample and their sum: as `increments`, two arrays (engines, times), read-only."""
        matrix = self.histograms.get(histogram)
        if matrix is None:
            absent = self.values("")
            return absent, absent
        return (
            self.once(("counts", histogram), lambda: self.grown(histogram, matrix.counts[:, :, -1])),
            self.once(("sums", histogram), lambda: self.grown(histogram, matrix.sums)),
        )

    def grown(self, signal: str, values: Floats) -> Floats:
        """The increments of `values` (engines, times), a counter that starts anew when `signal` does. Read-only."""
        grown = counters.increments(values)
        rows, starts = self._restarts(signal)
        if len(rows):
            grown[rows] = counters.increments(values[rows], starts)
        grown.flags.writeable = False
        return grown

    def increase(self, counter: str, seconds: float) -> Floats:
        """What `counter` grew by over the last `seconds`. NaN with fewer than two samples. Shape (engines,)."""
        if counter not in self.signals:
            return np.full(self.rows, np.nan)
        return self._increase(counter, self.values(counter, seconds), self._columns(seconds))

    def rate(self, counter: str, seconds: float) -> Floats:
        """Increase per second over the time the samples really span. NaN with fewer than two samples. Shape (engines,)."""
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
        """New observations from `seconds` ago to `until` seconds ago: (bounds, cumulative counts (engines, buckets)).

        Counts are NaN where fewer than two samples are present, and bounds are just +inf where the histogram is absent.
        """
        matrix = self.histograms.get(histogram)
        if matrix is None:
            return np.array([np.inf]), np.full((self.rows, 1), np.nan)
        columns = self._columns(seconds, until)
        return matrix.bounds, self._increase_of_buckets(histogram, matrix.counts[:, columns], columns)

    def quantile(self, histogram: str, q: float, seconds: float, *, until: float = 0.0) -> Floats:
        """The q-quantile of what was observed from `seconds` ago to `until` seconds ago. Shape (engines,)."""
        bounds, counts = self.observed(histogram, seconds, until=until)
        return counters.quantile(bounds, counts, q)

    def mean(self, histogram: str, seconds: float, *, until: float = 0.0) -> Floats:
        """The mean of what was observed over that span; NaN where nothing was. Shape (engines,)."""
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
        """What each bucket of `counts` (engines, times, buckets) grew by. Shape (engines, buckets)."""
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
