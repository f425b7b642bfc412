"""Nodes with GPUs under the engines of a synthetic fleet: tables and events to paint over, and the Window with them.

Node `n0` holds GPUs `n0:0`, `n0:1`, ...; engine `e-0` computes on `n0:0`, and so on; two nodes share a switch.
"""

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from synthetic import NOW, Fleet

from serving.fleet.entity import Entity, EntityKind
from serving.fleet.topology import EngineFacts, Relation, Topology
from serving.telemetry.columns import SignalMatrix
from serving.telemetry.window import Event, Table, Window

Floats = NDArray[np.float64]

GB = 1e9
HEALTHY_GPU = {
    "gpu.sm_clock": 1980.0,
    "gpu.power": 600.0,
    "gpu.util": 0.9,
    "gpu.memory_activity": 0.5,
    "gpu.throttle_reasons": 0.0,
    "gpu.memory_used": 72 * GB,
    "gpu.memory_own": 71.5 * GB,
    "gpu.memory_total": 80 * GB,
    "gpu.xid": 0.0,
    "gpu.ecc_uncorrected": 0.0,
    "gpu.remap_failure": 0.0,
    "gpu.remap_pending": 0.0,
    "gpu.pcie_replays": 0.0,
    "gpu.nvlink_errors": 0.0,
}
HEALTHY_NODE = {
    "node.ready": 1.0,
    "node.unschedulable": 0.0,
    "node.gpus_allocatable": 2.0,
    "node.gpus_capacity": 2.0,
    "node.clock_offset": 0.001,
    "node.disk_readonly": 0.0,
    "node.disk_free": 0.5,
    "node.pods_rejected": 0.0,
}


def gpu(row: int, per_node: int = 2) -> Entity:
    return Entity(EntityKind.GPU, f"n{row // per_node}:{row % per_node}")


def node(row: int) -> Entity:
    return Entity(EntityKind.NODE, f"n{row}")


def switch(row: int) -> Entity:
    return Entity(EntityKind.SWITCH, f"s{row}")


@dataclass
class Racks:
    """`engines` engines of one GPU each, `per_node` to a node, two nodes to a switch. Paint `gpus` and `nodes`."""

    engines: int = 8
    per_node: int = 2
    seconds: float = 300.0
    seed: int = 1
    events: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.fleet = Fleet(engines=self.engines, seconds=self.seconds, seed=self.seed)
        self.node_count = -(-self.engines // self.per_node)
        ticks = len(self.fleet.times)
        rng = np.random.default_rng(self.seed)
        self.gpus = {name: np.full((self.engines, ticks), value) for name, value in HEALTHY_GPU.items()}
        self.gpus["gpu.sm_clock"] *= 1 + rng.normal(0, 0.01, (self.engines, ticks))
        self.gpus["gpu.power"] *= 1 + rng.normal(0, 0.05, (self.engines, ticks))
        self.nodes = {name: np.full((self.node_count, ticks), value) for name, value in HEALTHY_NODE.items()}
        steps = np.arange(ticks)[None, :] * np.ones((self.node_count, 1))
        self.nodes["node.network_packets"] = 20_000.0 * steps
        self.nodes["node.network_errors"] = steps * 0.1

    def last(self, seconds: float) -> slice:
        return self.fleet.last(seconds)

    def says(self, row: int, text: str, ago: float = 20.0) -> None:
        self.events.append(Event(NOW - ago, "xid", gpu(row, self.per_node), text))

    @property
    def topology(self) -> Topology:
        facts = [EngineFacts(f"e-{row}", f"http://e-{row}", "m") for row in range(self.engines)]
        relations = []
        for row in range(self.engines):
            engine, place, home = Entity.engine(f"e-{row}"), gpu(row, self.per_node), node(row // self.per_node)
            relations += [
                (engine, Relation.RUNS_ON, place),
                (engine, Relation.RUNS_ON, home),
                (place, Relation.MEMBER_OF, home),
            ]
        relations += [(node(row), Relation.MEMBER_OF, switch(row // 2)) for row in range(self.node_count)]
        return Topology(facts, relations)

    def window(self) -> Window:
        topology = self.topology
        plain = self.fleet.window()
        times = plain.times

        def table(entities: tuple[Entity, ...], values: dict[str, Floats]) -> Table:
            at = np.broadcast_to(times, (len(entities), len(times)))
            signals = {name: SignalMatrix(each, np.where(np.isnan(each), np.nan, at)) for name, each in values.items()}
            return Table(plain.now, entities, times, signals)

        tables = {
            EntityKind.GPU: table(tuple(gpu(row, self.per_node) for row in range(self.engines)), self.gpus),
            EntityKind.NODE: table(tuple(node(row) for row in range(self.node_count)), self.nodes),
        }
        events = tuple(sorted(self.events, key=lambda event: event.at))
        return replace(plain, topology=topology, tables=tables, events=events)
