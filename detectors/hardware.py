"""Hardware on the map: which engine each GPU computes for, which node each engine is on, which switch each node.

Worked out once a map and table, as index arrays, so that a detector's cost stays a few array operations whatever the
size of the fleet. Does not belong here: any threshold, anything that knows a symptom.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from detectors.statistics import Floats
from serving.fleet.entity import Entity, EntityKind
from serving.fleet.places import engines_on, nodes_of
from serving.fleet.topology import Relation, Topology
from serving.telemetry.window import Table

Ints = NDArray[np.intp]
T = TypeVar("T")

NOBODY = -1

_KNOWN: WeakKeyDictionary[Topology, dict[Hashable, tuple[tuple[Entity, ...], Any]]] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True, eq=False)
class GpuRows:
    """For each row of a GPU table: the row of its engine in the window and its peer group; NOBODY where it serves none.

    `shared` is true where more than one engine computes on it.
    """

    engine: Ints
    group: Ints
    shared: NDArray[np.bool_]

    def of_engine(self, per_engine: Floats) -> Floats:
        """A number of each engine, for each GPU; NaN where it serves none."""
        if not len(per_engine):
            return np.full(len(self.engine), np.nan)
        return np.where(self.engine >= 0, per_engine[self.engine], np.nan)


def gpu_rows(topology: Topology, table: Table) -> GpuRows:
    """Where each GPU of `table` stands."""
    return _once(topology, "gpus", table.entities, lambda: _gpu_rows(topology, table.entities))


def node_rows(topology: Topology, table: Table) -> Ints:
    """For each engine of the map, the row of its (first) node in a NODE table; NOBODY where it has none. (engines,)."""
    return _once(topology, "nodes", table.entities, lambda: _node_rows(topology, table))


def switch_rows(topology: Topology, table: Table) -> tuple[tuple[Entity, ...], Ints]:
    """The switches of the map, and for each row of a table of nodes or GPUs the place of its switch; NOBODY for none."""
    return _once(topology, "switches", table.entities, lambda: _switch_rows(topology, table.entities))


def engine_switches(topology: Topology) -> tuple[tuple[Entity, ...], Ints]:
    """The switches of the map, and for each engine the place of the switch of its first node; NOBODY for none."""
    return _once(topology, "engine switches", topology.engines, lambda: _engine_switches(topology))


def node_name(topology: Topology, gpu: Entity) -> Entity:
    """The node of a GPU: by the map, else by its name `NODE:INDEX`."""
    nodes = nodes_of(topology, gpu)
    return nodes[0] if nodes else Entity(EntityKind.NODE, gpu.name.rpartition(":")[0] or gpu.name)


def error_rate(table: Table, seconds: float, least_packets: float) -> Floats:
    """Network errors over packets of the last `seconds`; NaN with too few packets to tell. (nodes,)."""
    errors, packets = table.increase("node.network_errors", seconds), table.increase("node.network_packets", seconds)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(packets >= least_packets, errors / packets, np.nan)


def _once(topology: Topology, key: Hashable, entities: tuple[Entity, ...], make: Callable[[], T]) -> T:
    """What `make` gives, once for a map and the things of a table: entities are compared by identity first, so cheaply."""
    known = _KNOWN.setdefault(topology, {})
    if key not in known or known[key][0] != entities:
        known[key] = (entities, make())
    found: T = known[key][1]
    return found


def _gpu_rows(topology: Topology, gpus: tuple[Entity, ...]) -> GpuRows:
    engine, shared = np.full(len(gpus), NOBODY, dtype=np.intp), np.zeros(len(gpus), dtype=np.bool_)
    for row, gpu in enumerate(gpus):
        engines = engines_on(topology, gpu)
        if engines:
            engine[row], shared[row] = topology.row_of[engines[0].name], len(engines) > 1
    group = np.where(engine >= 0, topology.peer_group[engine], NOBODY) if len(topology.engines) else engine
    return GpuRows(engine, group.astype(np.intp), shared)


def _node_rows(topology: Topology, table: Table) -> Ints:
    rows = np.full(len(topology.engines), NOBODY, dtype=np.intp)
    for row, engine in enumerate(topology.engines):
        nodes = nodes_of(topology, engine)
        rows[row] = table.row_of.get(nodes[0], NOBODY) if nodes else NOBODY
    return rows


def _switch_rows(topology: Topology, entities: tuple[Entity, ...]) -> tuple[tuple[Entity, ...], Ints]:
    switches = tuple(topology.entities(EntityKind.SWITCH))
    place = {switch: number for number, switch in enumerate(switches)}
    return switches, np.array([_switch_of(topology, entity, place) for entity in entities], dtype=np.intp)


def _engine_switches(topology: Topology) -> tuple[tuple[Entity, ...], Ints]:
    switches = tuple(topology.entities(EntityKind.SWITCH))
    place = {switch: number for number, switch in enumerate(switches)}
    found = []
    for engine in topology.engines:
        nodes = nodes_of(topology, engine)
        found.append(_switch_of(topology, nodes[0], place) if nodes else NOBODY)
    return switches, np.array(found, dtype=np.intp)


def _switch_of(topology: Topology, entity: Entity, place: dict[Entity, int]) -> int:
    return next((place[o] for o in topology.related(entity, Relation.MEMBER_OF) if o in place), NOBODY)
