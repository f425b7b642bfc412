"""What the sources said of things that are no engines (GPUs, nodes): one store of series a kind, rows by entity.

The things are those that readings name, in the order in which they were first named: no map has to list them before.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

import numpy as np

from serving.fleet.entity import Entity, EntityKind
from serving.telemetry.columns import Floats
from serving.telemetry.reading import Reading, TableReading
from serving.telemetry.series_store import SeriesStore
from serving.telemetry.window import Table


class TableStore:
    """Series by kind of thing. `begin` a tick with all of its readings, then `take` each, then look."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._rows: dict[EntityKind, dict[Entity, int]] = {}
        self._series: dict[EntityKind, SeriesStore] = {}
        self._before = 0

    def begin(self, readings: Iterable[Reading]) -> None:
        """Open a new tick; things never named before get a row."""
        for reading in readings:
            for kind, told in reading.tables.items():
                self._admit(kind, told.entities)
        for series in self._series.values():
            series.begin()
        self._before = min(self._before + 1, self._capacity)

    def take(self, reading: Reading, now: float) -> None:
        """Merge one source's tables into the open tick."""
        for kind, told in reading.tables.items():
            rows = self._rows[kind]
            at = np.array([rows[entity] for entity in told.entities], dtype=np.intp)

            def spread(values: Floats, at: np.ndarray = at, count: int = len(rows)) -> Floats:
                whole = np.full(count, np.nan)
                whole[at] = values
                return whole

            values = {name: spread(each) for name, each in told.values.items()}
            self._series[kind].take(Reading(reading.source, reading.at, spread(told.sampled_at), values), now)

    def tables(self, now: float, times: Floats) -> Mapping[EntityKind, Table]:
        """The tables over the last `times`."""
        return MappingProxyType(
            {
                kind: Table(now, tuple(self._rows[kind]), times, series.signals(len(times)))
                for kind, series in self._series.items()
            }
        )

    def _admit(self, kind: EntityKind, entities: tuple[Entity, ...]) -> None:
        rows = self._rows.setdefault(kind, {})
        known = len(rows)
        for entity in entities:
            rows.setdefault(entity, len(rows))
        if kind not in self._series:
            self._series[kind] = SeriesStore(len(rows), self._capacity, ticks=self._before)
        elif len(rows) > known:
            origins = np.concatenate([np.arange(known), np.full(len(rows) - known, -1)]).astype(np.intp)
            self._series[kind] = self._series[kind].with_rows(origins)


def misfit(told: TableReading) -> str:
    """What is wrong with the shape of a table, or nothing."""
    rows = (len(told.entities),)
    wrong = {array.shape for array in (told.sampled_at, *told.values.values())} - {rows}
    if wrong:
        return f"gave arrays of shape {min(wrong)} for {rows[0]} things"
    return "named a thing twice" if len(set(told.entities)) < rows[0] else ""
