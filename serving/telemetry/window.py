"""Window: everything known of the fleet at one moment, frozen and columnar.

Rows are engines in the order of `topology.engines`, columns are the times of `times`. Missing is NaN, never zero.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from serving.fleet.entity import Entity
from serving.fleet.topology import Topology
from serving.telemetry import counters
from serving.telemetry.stages import StageStatistics

Floats = NDArray[np.float64]

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

    @property
    def rows(self) -> int:
        """How many engines the window has."""
        return len(self.topology.engines)

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
        """What `counter` grew by at each sample, reset-aware and keyed by process start. Shape (engines, times)."""
        return counters.increments(self.values(counter), self._starts(counter, slice(None)))

    def increase(self, counter: str, seconds: float) -> Floats:
        """What `counter` grew by over the last `seconds`. NaN with fewer than two samples. Shape (engines,)."""
        columns = self._columns(seconds)
        return counters.increase(self.values(counter, seconds), self._starts(counter, columns))

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
        counts = matrix.counts[:, columns]
        flat = counts.transpose(0, 2, 1).reshape(-1, counts.shape[1])
        starts = np.repeat(self._starts(histogram, columns), len(matrix.bounds), axis=0)
        return matrix.bounds, counters.increase(flat, starts).reshape(self.rows, len(matrix.bounds))

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
        starts = self._starts(histogram, columns)
        total = counters.increase(matrix.sums[:, columns], starts)
        count = counters.increase(matrix.counts[:, columns, -1], starts)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(count > 0, total / count, np.nan)

    def _columns(self, seconds: float | None, until: float = 0.0) -> slice:
        first = 0 if seconds is None else int(np.searchsorted(self.times, self.now - seconds))
        end = len(self.times) if until == 0.0 else int(np.searchsorted(self.times, self.now - until, side="right"))
        return slice(first, max(first, end))

    def _starts(self, signal: str, columns: slice) -> Floats:
        """The process starts that `signal` is keyed by: only the engine's own counters restart with the engine."""
        matrix = self.signals.get(PROCESS_START) if signal.startswith("engine.") else None
        if matrix is None:
            return np.full((self.rows, len(self.times[columns])), np.nan)
        return matrix.values[:, columns]


def _taken(matrix: Floats, columns: NDArray[np.intp]) -> Floats:
    """The value of each row at its column; NaN where the column is -1."""
    if matrix.shape[1] == 0:
        return np.full(len(matrix), np.nan)
    return np.where(columns >= 0, matrix[np.arange(len(matrix)), columns], np.nan)
