"""What a fleet in virtual time consists of, and where each part stands."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from serving.fleet.entity import Entity, EntityKind
from serving.fleet.topology import EngineFacts, Relation, Topology

CELL = Entity(EntityKind.CELL, "virtual")
DOOR = Entity(EntityKind.GATEWAY, "door")
SCRAPE = Entity(EntityKind.TELEMETRY, "scrape")

Ints = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class ModelPlan:
    """A model and its replicas.

    `rps` is the usual rate of requests an engine. `experts`: how many experts its layers route to; 0 for a dense model.
    The other figures are those of a step (see serving.simulator.timing) and of the KV cache, which is given out in blocks of
    `block_tokens`, in the size of an 8-billion model on one current data-centre GPU: 20,000 prompt tokens a second, 20 ms a
    decode step.
    """

    name: str = "llama"
    engines: int = 8
    tp: int = 1
    hardware: str = "h100"
    rps: float = 1.2
    experts: int = 0
    step_base: float = 0.018
    per_prefill_token: float = 0.00005
    per_decode_sequence: float = 0.0002
    kv_tokens: float = 60_000.0
    block_tokens: float = 16.0
    batch_tokens: float = 8_192.0
    start_seconds: float = 60.0


@dataclass(frozen=True)
class FleetPlan:
    """The whole fleet. Engines fill nodes in order, model by model; nodes fill switches, switches zones.

    `slots` is the most that an engine's batch holds. `tick` is the longest time in seconds that the fleet moves on at once:
    work within a tick is laid out request by request, but nobody is admitted between two. It was compared with recordings at
    1 s; at 2 s eight of the 22 comparisons are out of their bounds.
    """

    models: tuple[ModelPlan, ...] = (ModelPlan(),)
    gpus_per_node: int = 4
    nodes_per_switch: int = 2
    switches_per_zone: int = 2
    seed: int = 0
    slots: int = 32
    tick: float = 1.0

    def __post_init__(self) -> None:
        for model in self.models:
            if model.engines < 1 or model.tp < 1:
                raise ValueError(f"model {model.name}: engines and tp must be at least 1")
            if model.tp > self.gpus_per_node and model.tp % self.gpus_per_node:
                raise ValueError(f"model {model.name}: tp {model.tp} does not fill whole nodes of {self.gpus_per_node} GPUs")

    @classmethod
    def of(cls, engines: int, *, seed: int = 0, rps: float = 1.2, experts: int = 0) -> "FleetPlan":
        """A fleet of one model with so many engines of one GPU each."""
        return cls((ModelPlan(engines=engines, rps=rps, experts=experts),), seed=seed)

    @cached_property
    def engine_names(self) -> tuple[str, ...]:
        """The engines, in the order of every column."""
        return tuple(f"{model.name}-{number}" for model in self.models for number in range(model.engines))

    @cached_property
    def engine_model(self) -> Ints:
        """The model of each engine, as its place in `models`."""
        return np.repeat(np.arange(len(self.models)), [model.engines for model in self.models])

    @cached_property
    def gpu_engine(self) -> Ints:
        """The engine of each GPU that is used."""
        sizes = [model.tp for model in self.models for _ in range(model.engines)]
        return np.repeat(np.arange(len(sizes)), sizes)

    @cached_property
    def gpu_node(self) -> Ints:
        """The node of each GPU. A tensor-parallel engine that does not fit into the rest of a node begins on the next."""
        nodes: list[int] = []
        used = 0
        for model in self.models:
            for _ in range(model.engines):
                room = -used % self.gpus_per_node
                if model.tp > room > 0:
                    used += room
                nodes.extend((used + rank) // self.gpus_per_node for rank in range(model.tp))
                used += model.tp
        return np.array(nodes, dtype=np.intp)

    @cached_property
    def gpu_place(self) -> Ints:
        """The number of each GPU on its node."""
        first = np.searchsorted(self.gpu_node, self.gpu_node)
        return np.arange(len(self.gpu_node)) - first

    @property
    def nodes(self) -> int:
        """How many nodes there are."""
        return int(self.gpu_node[-1]) + 1

    @cached_property
    def engine_node(self) -> Ints:
        """The first node of each engine."""
        return self.gpu_node[np.searchsorted(self.gpu_engine, np.arange(len(self.engine_names)))]

    @cached_property
    def node_switch(self) -> Ints:
        """The switch of each node."""
        return np.arange(self.nodes) // self.nodes_per_switch

    @cached_property
    def gpus(self) -> tuple[Entity, ...]:
        """The GPUs, `NODE:NUMBER`."""
        named = zip(self.gpu_node.tolist(), self.gpu_place.tolist(), strict=True)
        return tuple(Entity(EntityKind.GPU, f"n{node}:{place}") for node, place in named)

    @cached_property
    def node_entities(self) -> tuple[Entity, ...]:
        """The nodes."""
        return tuple(Entity(EntityKind.NODE, f"n{node}") for node in range(self.nodes))

    @cached_property
    def topology(self) -> Topology:
        """The map."""
        facts = (
            EngineFacts(name, f"http://{name}.virtual", self.models[model].name, self.models[model].hardware)
            for name, model in zip(self.engine_names, self.engine_model.tolist(), strict=True)
        )
        return Topology(facts, self._relations())

    def _relations(self) -> Iterator[tuple[Entity, Relation, Entity]]:
        for switch in range(int(self.node_switch[-1]) + 1):
            zone = Entity(EntityKind.ZONE, f"z{switch // self.switches_per_zone}")
            yield zone, Relation.MEMBER_OF, CELL
            yield Entity(EntityKind.SWITCH, f"s{switch}"), Relation.MEMBER_OF, zone
        for node, switch in zip(self.node_entities, self.node_switch.tolist(), strict=True):
            yield node, Relation.MEMBER_OF, Entity(EntityKind.SWITCH, f"s{switch}")
            yield node, Relation.MEMBER_OF, Entity(EntityKind.ZONE, f"z{switch // self.switches_per_zone}")
        yield DOOR, Relation.MEMBER_OF, CELL
        for gpu, engine, node in zip(self.gpus, self.gpu_engine.tolist(), self.gpu_node.tolist(), strict=True):
            name = Entity.engine(self.engine_names[engine])
            yield gpu, Relation.MEMBER_OF, self.node_entities[node]
            yield name, Relation.RUNS_ON, gpu
            yield name, Relation.RUNS_ON, self.node_entities[node]
        for engine_name in self.engine_names:
            yield DOOR, Relation.ROUTES_TO, Entity.engine(engine_name)
            yield Entity.engine(engine_name), Relation.SCRAPED_BY, SCRAPE
