"""Topology: the map as a graph, with typed relations and the peers of each engine."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from types import MappingProxyType

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from serving.fleet.entity import Entity, EntityKind


class Relation(StrEnum):
    """How one entity (the subject) stands to another."""

    RUNS_ON = "runs_on"
    MEMBER_OF = "member_of"
    SERVES = "serves"
    ROUTES_TO = "routes_to"
    SCRAPED_BY = "scraped_by"


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What is known of an engine before anything is measured.

    `url` is the base of its HTTP API without a trailing slash. Peers share `model`, `hardware` and `role`. `labels` are
    the label values that a Prometheus puts on its series (used to find the engine again in query answers).
    """

    name: str
    url: str
    model: str
    hardware: str = "unknown"
    role: str = "serve"
    labels: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


class Topology:
    """The fleet's map. Built once from its parts and never changed; a changed fleet is a new Topology.

    `engines` gives the row order of every matrix in a Window.
    """

    def __init__(self, engines: Iterable[EngineFacts], relations: Iterable[tuple[Entity, Relation, Entity]] = ()) -> None:
        facts = {fact.name: fact for fact in engines}
        graph = nx.MultiDiGraph()
        graph.add_nodes_from(Entity.engine(name) for name in facts)
        for fact in facts.values():
            graph.add_edge(Entity.engine(fact.name), Entity(EntityKind.MODEL, fact.model), key=Relation.SERVES)
        for subject, relation, other in relations:
            graph.add_edge(subject, other, key=relation)
        self._graph = nx.freeze(graph)
        self._facts: Mapping[str, EngineFacts] = MappingProxyType(facts)
        self.engines: tuple[Entity, ...] = tuple(Entity.engine(name) for name in facts)

    def __contains__(self, entity: Entity) -> bool:
        return entity in self._graph

    @property
    def graph(self) -> nx.MultiDiGraph:
        """The frozen networkx graph, for algorithms that need it."""
        return self._graph

    @cached_property
    def row_of(self) -> Mapping[str, int]:
        """The row of each engine, by name, in every matrix of a Window."""
        return MappingProxyType({engine.name: row for row, engine in enumerate(self.engines)})

    @cached_property
    def peer_group(self) -> NDArray[np.intp]:
        """Shape (engines,): equal numbers are peers, that is engines with the same model, hardware and role."""
        numbers: dict[tuple[str, str, str], int] = {}
        keys = ((f.model, f.hardware, f.role) for f in self._facts.values())
        groups = np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.intp)
        groups.flags.writeable = False
        return groups

    def facts(self, engine: Entity) -> EngineFacts:
        """What is known of `engine`. Raises KeyError when it is not on the map."""
        return self._facts[engine.name]

    def entities(self, kind: EntityKind) -> Iterator[Entity]:
        """All entities of one kind, in the order they came onto the map."""
        return (entity for entity in self._graph.nodes if entity.kind is kind)

    def related(self, entity: Entity, relation: Relation) -> tuple[Entity, ...]:
        """Whom `entity` stands in `relation` to: `related(engine, RUNS_ON)` is its node."""
        if entity not in self._graph:
            return ()
        return tuple(other for _, other, key in self._graph.out_edges(entity, keys=True) if key is relation)

    def inverse(self, entity: Entity, relation: Relation) -> tuple[Entity, ...]:
        """Who stands in `relation` to `entity`: `inverse(node, RUNS_ON)` are the engines on it."""
        if entity not in self._graph:
            return ()
        return tuple(other for other, _, key in self._graph.in_edges(entity, keys=True) if key is relation)

    def peers(self, engine: Entity) -> tuple[Entity, ...]:
        """The other engines of the same model, hardware and role."""
        row = self.row_of[engine.name]
        same = np.flatnonzero(self.peer_group == self.peer_group[row])
        return tuple(self.engines[other] for other in same if other != row)
