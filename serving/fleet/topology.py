"""Topology: the map as a graph, with typed relations, the peers of each engine, and paths from one thing to another.

A path is a dotted row of relations, such as `runs_on.member_of`: from an engine to the zone and the switch of its node.
A relation with `~` in front is walked backwards: `runs_on.~runs_on` leads to everything on the same node.
"""

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


_K = EntityKind

# Which kinds may stand in each relation: (subject, other).
SIGNATURES: Mapping[Relation, frozenset[tuple[EntityKind, EntityKind]]] = MappingProxyType(
    {
        Relation.RUNS_ON: frozenset((kind, _K.NODE) for kind in (_K.ENGINE, _K.RANK, _K.GATEWAY, _K.TELEMETRY))
        | {(_K.RANK, _K.GPU), (_K.ENGINE, _K.GPU)},
        Relation.MEMBER_OF: frozenset((kind, _K.CELL) for kind in (_K.ZONE, _K.SWITCH, _K.NODE, _K.GATEWAY, _K.ENGINE))
        | {(kind, _K.ZONE) for kind in (_K.SWITCH, _K.NODE, _K.GATEWAY, _K.ENGINE)}
        | {(_K.NODE, _K.SWITCH), (_K.GPU, _K.NODE), (_K.GPU, _K.SWITCH), (_K.RANK, _K.ENGINE), (_K.LANE, _K.TENANT)},
        Relation.SERVES: frozenset({(_K.ENGINE, _K.MODEL), (_K.GATEWAY, _K.MODEL)}),
        Relation.ROUTES_TO: frozenset({(_K.GATEWAY, _K.ENGINE), (_K.GATEWAY, _K.GATEWAY), (_K.TENANT, _K.LANE)}),
        Relation.SCRAPED_BY: frozenset((kind, _K.TELEMETRY) for kind in EntityKind),
    }
)


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What is known of an engine before anything is measured.

    `url` is the base of its HTTP API without a trailing slash, empty while it has no address to answer at. Peers share
    `model`, `hardware` and `role`. `labels` are the label values that a Prometheus puts on its series (used to find the
    engine again in query answers).
    """

    name: str
    url: str
    model: str
    hardware: str = "unknown"
    role: str = "serve"
    labels: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


class Topology:
    """The fleet's map. Built once from its parts and never changed; a changed fleet is a new Topology.

    `engines` gives the row order of every matrix in a Window. Raises ValueError when two engines share a name or a
    relation joins kinds that it cannot join (see SIGNATURES).
    """

    def __init__(self, engines: Iterable[EngineFacts], relations: Iterable[tuple[Entity, Relation, Entity]] = ()) -> None:
        given = tuple(engines)
        facts = {fact.name: fact for fact in given}
        if len(facts) < len(given):
            twice = sorted({fact.name for fact in given if facts[fact.name] is not fact})
            raise ValueError(f"two engines have the same name: {', '.join(twice)}")
        graph = nx.MultiDiGraph()
        graph.add_nodes_from(Entity.engine(name) for name in facts)
        for fact in facts.values():
            graph.add_edge(Entity.engine(fact.name), Entity(EntityKind.MODEL, fact.model), key=Relation.SERVES)
        for subject, relation, other in relations:
            if (subject.kind, other.kind) not in SIGNATURES[relation]:
                raise ValueError(f"{subject} cannot stand in {relation} to {other}: these kinds are not joined so")
            graph.add_edge(subject, other, key=relation)
        self._graph = nx.freeze(graph)
        self._facts: Mapping[str, EngineFacts] = MappingProxyType(facts)
        self._inverse: dict[tuple[Entity, Relation], tuple[Entity, ...]] = {}
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
    def row_of_replica(self) -> Mapping[str, int]:
        """The row of each engine by what a front door may call it: its name, or the pod that it is at the moment."""
        pods = {fact.labels["pod"]: row for row, fact in enumerate(self._facts.values()) if fact.labels.get("pod")}
        return MappingProxyType({**pods, **self.row_of})

    @cached_property
    def peer_group(self) -> NDArray[np.intp]:
        """Shape (engines,): equal numbers are peers, that is engines with the same model, hardware and role."""
        numbers: dict[tuple[str, str, str], int] = {}
        keys = ((f.model, f.hardware, f.role) for f in self._facts.values())
        groups = np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.intp)
        groups.flags.writeable = False
        return groups

    @cached_property
    def rows_of_model(self) -> Mapping[str, NDArray[np.intp]]:
        """The rows of each model's engines, ascending, by the model's name."""
        rows: dict[str, list[int]] = {}
        for row, fact in enumerate(self._facts.values()):
            rows.setdefault(fact.model, []).append(row)
        return MappingProxyType({model: np.array(found, dtype=np.intp) for model, found in rows.items()})

    def facts(self, engine: Entity) -> EngineFacts:
        """What is known of `engine`. Raises KeyError when it is not on the map."""
        return self._facts[engine.name]

    def part(self, rows: slice) -> "Topology":
        """The same map with only the engines of `rows` as its `engines`, rows and peers; relations lead as far as before."""
        some = object.__new__(Topology)
        some._graph, some._inverse = self._graph, self._inverse
        some.engines = self.engines[rows]
        some._facts = MappingProxyType({engine.name: self._facts[engine.name] for engine in some.engines})
        return some

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
        if (entity, relation) not in self._inverse:  # a model or a zone may have thousands, and the map never changes
            edges = self._graph.in_edges(entity, keys=True)
            self._inverse[entity, relation] = tuple(other for other, _, key in edges if key is relation)
        return self._inverse[entity, relation]

    def peers(self, engine: Entity) -> tuple[Entity, ...]:
        """The other engines of the same model, hardware and role."""
        row = self.row_of[engine.name]
        same = np.flatnonzero(self.peer_group == self.peer_group[row])
        return tuple(self.engines[other] for other in same if other != row)

    def follow(self, entity: Entity, path: str) -> tuple[Entity, ...]:
        """Where `path` leads from `entity`, each end once, in the order found.

        Raises ValueError when the path names a relation that does not exist.
        """
        here: tuple[Entity, ...] = (entity,)
        for step in path.split("."):
            relation = _relation(step.removeprefix("~"), path)
            walk = self.inverse if step.startswith("~") else self.related
            here = tuple(dict.fromkeys(other for place in here for other in walk(place, relation)))
        return here

    def same(self, entity: Entity, path: str) -> tuple[Entity, ...]:
        """The others of its kind that `path` leads to a common end: `same(engine, "runs_on")` share its node."""
        back = ".".join(step[1:] if step.startswith("~") else f"~{step}" for step in reversed(path.split(".")))
        return tuple(
            other for other in self.follow(entity, f"{path}.{back}") if other.kind is entity.kind and other != entity
        )

    def ancestors(self, entity: Entity) -> tuple[Entity, ...]:
        """What `entity` stands in or on, nearest first: an engine's node, then its switch and zone, then the cell."""
        found: dict[Entity, None] = {}
        level: tuple[Entity, ...] = (entity,)
        while level:
            above = (other for place in level for relation in _UPWARDS for other in self.related(place, relation))
            level = tuple(other for other in dict.fromkeys(above) if other not in found and other != entity)
            found.update(dict.fromkeys(level))
        return tuple(found)


_UPWARDS = (Relation.RUNS_ON, Relation.MEMBER_OF)


def _relation(name: str, path: str) -> Relation:
    try:
        return Relation(name)
    except ValueError:
        known = ", ".join(Relation)
        raise ValueError(f"{path!r} is not a path: {name!r} is no relation; known: {known}") from None
