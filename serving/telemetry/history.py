"""History: the readings of the last minutes, merged over sources, and the Window over them at each tick.

Does not belong here: how a source reads, and what a value means for health.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from serving.fleet.entity import Entity, EntityKind
from serving.fleet.topology import Topology
from serving.telemetry.reading import FailureKind, Reading
from serving.telemetry.series_store import SeriesStore
from serving.telemetry.span_statistics import SpanStore
from serving.telemetry.table_store import TableStore, misfit
from serving.telemetry.window import Event, SourceStatus, Window

CLOCK_JUMPED = "clock.jumped"
IN_FLIGHT = "door.in_flight"

_CLOCK = Entity(EntityKind.TELEMETRY, "clock")
_EVENTS_KEPT = 2_000
_SPANS_KEPT = 200_000


class History:
    """Keeps what the last `horizon_seconds` brought, at most `tick_capacity` ticks of it, and gives the Window at each tick.

    Memory grows with engines x ticks x (scalar signals + histogram buckets) x 12 bytes: 10,000 engines with 30 scalar
    signals over 150 ticks take about 0.6 GB, each histogram of 22 buckets 0.4 GB more. Cost per tick is linear in what was
    read. `span_seconds` is the span of the stage statistics; a count of requests in flight older than
    `in_flight_seconds` is missing there.
    """

    def __init__(
        self,
        topology: Topology,
        horizon_seconds: float = 600.0,
        tick_capacity: int = 300,
        *,
        span_seconds: float = 60.0,
        in_flight_seconds: float = 30.0,
    ) -> None:
        if horizon_seconds <= 0 or tick_capacity < 2 or span_seconds <= 0:  # noqa: PLR2004 - one tick shows no change
            raise ValueError("a history needs a horizon and a span over 0 s, and at least 2 ticks")
        self._topology = topology
        self._horizon = horizon_seconds
        self._capacity = tick_capacity
        self._span_seconds = span_seconds
        self._in_flight_seconds = in_flight_seconds
        self._times: deque[float] = deque(maxlen=tick_capacity)
        self._events: deque[Event] = deque(maxlen=_EVENTS_KEPT)
        self._answered_at: dict[Entity, float] = {}
        self._failing: dict[tuple[Entity, str], FailureKind] = {}
        self._begin_anew()

    def window(self, now: float, topology: Topology, readings: tuple[Reading, ...]) -> Window:
        """The window at `now`, after taking in `readings`, whose rows are the engines of `topology`.

        Earlier sources come first in a doubt. Never raises: a reading that does not fit is that source's error.
        """
        self._adopt(topology)
        if self._times and now < self._times[-1]:
            self._restart(now)
        self._times.append(now)
        self._series.begin()
        self._tables.begin(reading for reading in readings if not _misfit(reading, len(topology.engines)))
        sources = tuple(self._take(reading, now) for reading in readings)
        since = now - self._horizon
        times = np.array([time for time in self._times if time >= since])
        times.flags.writeable = False
        window = Window(
            now=now,
            topology=topology,
            times=times,
            signals=self._series.signals(len(times)),
            histograms=self._series.histograms(len(times)),
            events=tuple(sorted((event for event in self._events if event.at >= since), key=lambda event: event.at)),
            sources=sources,
            tables=self._tables.tables(now, times),
        )
        return self._with_stages(window)

    def _begin_anew(self) -> None:
        rows = len(self._topology.engines)
        self._series = SeriesStore(rows, self._capacity)
        self._spans = SpanStore(rows, self._span_seconds, _SPANS_KEPT)
        self._tables = TableStore(self._capacity)

    def _adopt(self, topology: Topology) -> None:
        """Go over to a changed map: engines keep their past by name."""
        before, self._topology = self._topology, topology
        if topology is before or topology.engines == before.engines:
            return
        origins = np.array([before.row_of.get(engine.name, -1) for engine in topology.engines], dtype=np.intp)
        self._series = self._series.with_rows(origins)
        self._spans = self._spans.with_rows(origins)
        gone = before.row_of.keys() - topology.row_of.keys()
        self._failing = {key: kind for key, kind in self._failing.items() if key[1] not in gone}

    def _restart(self, now: float) -> None:
        """The clock went back. Nothing older can be placed on the new time line, so the past is let go, and it is said."""
        back = self._times[-1] - now
        self._times.clear()
        self._events.clear()
        self._answered_at.clear()
        self._failing.clear()  # what still fails is told again, on the new time line
        self._begin_anew()
        text = f"the clock went back by {back:.1f} s; history begins anew, and nothing can be compared with before"
        self._events.append(Event(now, CLOCK_JUMPED, _CLOCK, text))

    def _take(self, reading: Reading, now: float) -> SourceStatus:
        error = reading.error or _misfit(reading, len(self._topology.engines))
        if not error:
            self._answered_at[reading.source] = reading.at
            self._series.take(reading, now)
            self._tables.take(reading, now)
            self._spans.add(reading.spans, self._topology.row_of, now)
            self._events.extend(reading.events)
            self._events.extend(self._changed_failures(reading))
        return SourceStatus(reading.source, self._answered_at.get(reading.source), error)

    def _changed_failures(self, reading: Reading) -> Iterable[Event]:
        """One event for each target that began to fail, fails otherwise than before, or answers again."""
        before = {target: kind for (source, target), kind in self._failing.items() if source == reading.source}
        for target, failure in reading.failures.items():
            if before.pop(target, None) != failure.kind:
                self._failing[reading.source, target] = failure.kind
                yield Event(reading.at, f"scrape.{failure.kind}", self._entity_of(target), failure.detail)
        for target in before:
            del self._failing[reading.source, target]
            yield Event(reading.at, "scrape.recovered", self._entity_of(target), f"answers {reading.source.name} again")

    def _entity_of(self, target: str) -> Entity:
        return Entity.engine(target) if target in self._topology.row_of else Entity(EntityKind.GATEWAY, target)

    def _with_stages(self, window: Window) -> Window:
        if not self._spans.any_traced and IN_FLIGHT not in window.signals:
            return window
        in_flight = window.latest(IN_FLIGHT, self._in_flight_seconds)
        in_flight.flags.writeable = False
        return replace(window, stages=self._spans.statistics(window.now, in_flight))


def _misfit(reading: Reading, rows: int) -> str:
    """What is wrong with the shape of a reading, or nothing."""
    arrays = [reading.sampled_at, *reading.values.values(), *reading.sampled_at_of.values()]
    arrays += [array for said in reading.histograms.values() for array in (said.sums, said.counts[:, -1])]
    wrong = {array.shape for array in arrays} - {(rows,)}
    if wrong:
        return f"gave arrays of shape {min(wrong)} for {rows} engines"
    return next((said for said in map(misfit, reading.tables.values()) if said), "")
