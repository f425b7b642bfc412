"""What the sources said over the last ticks, one ring a signal, merged over sources.

The rule of merging: at each tick a source fills only what earlier ones left missing, and a sample counts once. One that
is not newer than what the signal already has of that engine is left out, so that a repeated sample ages and a late one
does not look like a counter reset.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from serving.telemetry import counters
from serving.telemetry.columns import HistogramMatrix, SignalMatrix
from serving.telemetry.reading import HistogramReading, Reading
from serving.telemetry.rings import Ring

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

_SHARED_ONCE = 7  # prime steps by which rings differ in spare ticks, so that they do not all move in one tick


@dataclass(slots=True, eq=False)
class _Stamps:
    """Sampling times, shared by all signals that one source takes together."""

    ring: Ring
    tick: Floats


@dataclass(slots=True, eq=False)
class _Kept:
    """One signal: its values (a histogram's counts) and sums, by which clock they were stamped, the newest sample by row."""

    values: Ring
    tick: Floats
    newest: Floats
    stamps: _Stamps
    bounds: Floats | None = None
    sums: Ring | None = None
    sums_tick: Floats | None = None
    own_stamps: bool = False


class SeriesStore:
    """Rings of all signals and histograms over the same ticks. `begin` a tick, `take` readings, then look."""

    def __init__(self, rows: int, capacity: int, *, ticks: int = 0) -> None:
        """`ticks`: how many were before this store began, of which it has nothing."""
        self._rows = rows
        self._capacity = capacity
        self._ticks = ticks
        self._stamps: dict[tuple[str, str], _Stamps] = {}
        self._signals: dict[str, _Kept] = {}
        self._histograms: dict[str, _Kept] = {}

    def begin(self) -> None:
        """Open a new tick in which everything is still missing."""
        self._ticks = min(self._ticks + 1, self._capacity)
        for stamps in self._all_stamps():
            stamps.tick = stamps.ring.push()
        for kept in (*self._signals.values(), *self._histograms.values()):
            kept.tick = kept.values.push()
            if kept.sums is not None:
                kept.sums_tick = kept.sums.push()

    def take(self, reading: Reading, now: float) -> None:
        """Merge one source's reading into the open tick."""
        latest = max(now, reading.at)  # no sample is younger than the moment it was handed over
        groups: dict[int, _Stamps] = {}
        for signal in (*reading.values, *reading.histograms):
            taken = reading.sampled_at_of.get(signal, reading.sampled_at)
            if id(taken) not in groups:
                group = "" if taken is reading.sampled_at else signal
                stamps = groups[id(taken)] = self._stamps_of(reading.source.name, group)
                stamps.tick[:] = np.minimum(taken, latest)
            if signal in reading.histograms:
                self._take_histogram(signal, reading.histograms[signal], taken, groups[id(taken)])
            else:
                self._take_signal(signal, reading.values[signal], taken, groups[id(taken)])

    def signals(self, count: int) -> Mapping[str, SignalMatrix]:
        """The scalar signals over the last `count` ticks."""
        return MappingProxyType(
            {
                name: SignalMatrix(kept.values.view(count), kept.stamps.ring.view(count))
                for name, kept in self._signals.items()
            }
        )

    def histograms(self, count: int) -> Mapping[str, HistogramMatrix]:
        """The histograms over the last `count` ticks."""
        return MappingProxyType(
            {
                name: HistogramMatrix(
                    kept.bounds, kept.values.view(count), kept.sums.view(count), kept.stamps.ring.view(count)
                )
                for name, kept in self._histograms.items()
                if kept.bounds is not None and kept.sums is not None
            }
        )

    def with_rows(self, origins: NDArray[np.intp]) -> "SeriesStore":
        """A store for another set of engines: row i goes on with this store's row `origins[i]`, or begins (negative)."""
        store = SeriesStore(len(origins), self._capacity)
        store._ticks = self._ticks
        goes_on = origins >= 0
        moved: dict[int, _Stamps] = {}
        for stamps in self._all_stamps():
            ring = stamps.ring.with_rows(origins)
            moved[id(stamps)] = _Stamps(ring, np.empty(0))
        store._stamps = {key: moved[id(stamps)] for key, stamps in self._stamps.items()}
        for mine, theirs in ((self._signals, store._signals), (self._histograms, store._histograms)):
            for name, kept in mine.items():
                newest = np.full(len(origins), -np.inf)
                newest[goes_on] = kept.newest[origins[goes_on]]
                theirs[name] = _Kept(
                    values=kept.values.with_rows(origins),
                    tick=np.empty(0),
                    newest=newest,
                    stamps=moved[id(kept.stamps)],
                    bounds=kept.bounds,
                    sums=None if kept.sums is None else kept.sums.with_rows(origins),
                    own_stamps=kept.own_stamps,
                )
        return store

    def _all_stamps(self) -> list[_Stamps]:
        kept = (*self._signals.values(), *self._histograms.values())
        return [*self._stamps.values(), *(each.stamps for each in kept if each.own_stamps)]

    def _ring(self, *tail: int) -> Ring:
        spare = max(self._capacity // 2, 8) + len(self._signals) % _SHARED_ONCE
        return Ring(self._rows, self._capacity, tail=tail, length=self._ticks - 1, spare=spare)

    def _stamps_of(self, source: str, group: str) -> _Stamps:
        known = self._stamps.get((source, group))
        if known is None:
            ring = self._ring()
            known = self._stamps[source, group] = _Stamps(ring, ring.push())
        return known

    def _take_signal(self, signal: str, values: Floats, taken: Floats, stamps: _Stamps) -> None:
        kept = self._signals.get(signal)
        if kept is None:
            ring = self._ring()
            kept = self._signals[signal] = _Kept(ring, ring.push(), np.full(self._rows, -np.inf), stamps)
        new = np.isnan(kept.tick) & ~np.isnan(values) & (taken > kept.newest)
        self._accept(kept, new, taken, stamps)
        kept.tick[new] = values[new]

    def _take_histogram(self, signal: str, said: HistogramReading, taken: Floats, stamps: _Stamps) -> None:
        kept = self._histograms.get(signal)
        if kept is None:
            kept = self._histograms[signal] = self._new_histogram(said.bounds, stamps)
        bounds = np.union1d(kept.bounds, said.bounds) if kept.bounds is not None else said.bounds
        if kept.bounds is not None and len(bounds) > len(kept.bounds):
            self._widen(kept, kept.bounds, bounds)
        new = np.isnan(kept.tick[:, -1]) & ~np.isnan(said.counts[:, -1]) & (taken > kept.newest)
        self._accept(kept, new, taken, stamps)
        kept.tick[new] = counters.rebucket(said.bounds, said.counts[new], bounds)
        if kept.sums_tick is not None:
            kept.sums_tick[new] = said.sums[new]

    def _new_histogram(self, bounds: Floats, stamps: _Stamps) -> _Kept:
        values, sums = self._ring(len(bounds)), self._ring()
        newest = np.full(self._rows, -np.inf)
        return _Kept(values, values.push(), newest, stamps, _frozen(bounds.copy()), sums, sums.push())

    def _widen(self, kept: _Kept, before: Floats, bounds: Floats) -> None:
        """Go over to finer bounds, as when an engine of another version joins."""
        ticks = kept.values.view(self._ticks).swapaxes(0, 1)
        kept.values = kept.values.replaced(counters.rebucket(before, ticks, bounds))
        kept.tick = kept.values.last()
        kept.bounds = _frozen(bounds)

    def _accept(self, kept: _Kept, new: Bools, taken: Floats, stamps: _Stamps) -> None:
        """Note when the `new` samples were taken; a signal fed by two clocks needs sampling times of its own."""
        kept.newest[new] = taken[new]
        if kept.stamps is stamps or not new.any():
            return
        if not kept.own_stamps:
            ring = kept.stamps.ring.copy()
            kept.stamps, kept.own_stamps = _Stamps(ring, ring.last()), True
        kept.stamps.tick[new] = stamps.tick[new]


def _frozen(array: Floats) -> Floats:
    array.flags.writeable = False
    return array
