"""Window: everything known of the fleet at one moment, frozen and columnar.

Rows are engines in the order of `topology.engines`, columns are the times of `times`. What is measured of other things
(GPUs, nodes) is in `tables`. Missing is NaN, never zero.
"""

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

from serving.fleet.entity import Entity, EntityKind
from serving.fleet.topology import Topology
from serving.telemetry.columns import Columns, Floats, HistogramMatrix, SignalMatrix
from serving.telemetry.stages import StageStatistics


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


@dataclass(frozen=True, eq=False)
class Table(Columns):
    """The signals of things that are no engines: one row an entity, all of one kind, over the window's times."""

    now: float
    entities: tuple[Entity, ...]
    times: Floats
    signals: Mapping[str, SignalMatrix] = field(default_factory=lambda: MappingProxyType({}))
    histograms: Mapping[str, HistogramMatrix] = field(default_factory=lambda: MappingProxyType({}), init=False)
    _known: dict[Hashable, Any] = field(default_factory=dict, init=False, repr=False)

    @property
    def rows(self) -> int:
        """How many things the table has."""
        return len(self.entities)

    @cached_property
    def row_of(self) -> Mapping[Entity, int]:
        """The row of each thing."""
        return MappingProxyType({entity: row for row, entity in enumerate(self.entities)})


@dataclass(frozen=True, slots=True, eq=False)
class Window(Columns):
    """What is known at `now`. `times` (times,) ascend and end at or before `now`; signal names are those of signals.yaml."""

    now: float
    topology: Topology
    times: Floats
    signals: Mapping[str, SignalMatrix] = field(default_factory=lambda: MappingProxyType({}))
    histograms: Mapping[str, HistogramMatrix] = field(default_factory=lambda: MappingProxyType({}))
    stages: StageStatistics | None = None
    events: tuple[Event, ...] = ()
    sources: tuple[SourceStatus, ...] = ()
    tables: Mapping[EntityKind, Table] = field(default_factory=lambda: MappingProxyType({}))
    _known: dict[Hashable, Any] = field(default_factory=dict, init=False, repr=False)

    @property
    def rows(self) -> int:
        """How many engines the window has."""
        return len(self.topology.engines)

    def parts(self, rows: int) -> Iterator["Window"]:
        """The window cut into windows of at most `rows` engines each, in order, for what is said of each engine alone.

        They fit into a processor's cache where the whole does not. `stages` and `tables` are left out.
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
                tables=MappingProxyType({}),
            )
