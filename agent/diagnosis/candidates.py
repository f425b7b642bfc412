"""Candidates: which causes on which entities could stand behind the findings, by the graph around them.

A finding leads to the entity it is on, to the model, gateway and telemetry source that the engine shares with others,
and so to common ancestors: one surge instead of an overload on every engine, one blind source instead of many deaths.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from agent.diagnosis.catalogue import Catalogue, Cause, Way
from detectors.finding import Finding, Symptom
from serving.fleet.entity import Entity, EntityKind
from serving.fleet.places import engines_on, gpus_on, nodes_of
from serving.fleet.topology import Relation, Topology

_SHARED = (Relation.SERVES, Relation.SCRAPED_BY, Relation.RUNS_ON)
_PLACES = frozenset({EntityKind.GPU, EntityKind.NODE, EntityKind.SWITCH})
_MEMBERS_BY = {
    EntityKind.MODEL: (Relation.SERVES, True),
    EntityKind.TELEMETRY: (Relation.SCRAPED_BY, True),
    EntityKind.GATEWAY: (Relation.ROUTES_TO, False),
}


@dataclass(frozen=True, slots=True)
class Candidate:
    """A form of a cause on an entity."""

    form: Cause
    entity: Entity


@dataclass(frozen=True)
class Scene:
    """The findings on the map, with the way from one entity to another. Cost grows with findings, not with engines."""

    topology: Topology
    findings: tuple[Finding, ...]

    @cached_property
    def by_entity(self) -> Mapping[Entity, tuple[Finding, ...]]:
        """The findings of each entity that has any."""
        grouped: dict[Entity, list[Finding]] = {}
        for finding in self.findings:
            grouped.setdefault(finding.entity, []).append(finding)
        return {entity: tuple(found) for entity, found in grouped.items()}

    @cached_property
    def _by_group(self) -> Mapping[int, tuple[Entity, ...]]:
        grouped: dict[int, list[Entity]] = {}
        for entity in self.by_entity:
            row = self._row(entity)
            if row is not None:
                grouped.setdefault(int(self.topology.peer_group[row]), []).append(entity)
        return {group: tuple(entities) for group, entities in grouped.items()}

    def _row(self, entity: Entity) -> int | None:
        return self.topology.row_of.get(entity.name) if entity.kind is EntityKind.ENGINE else None

    def troubled(self, entity: Entity, way: Way) -> Iterator[Entity]:
        """The entities with findings that lie `way` from `entity`."""
        if entity.kind in _PLACES or way in {Way.GPUS, Way.NODES}:
            yield from (other for other in dict.fromkeys(self._from_place(entity, way)) if other in self.by_entity)
            return
        match way:
            case Way.SELF:
                if entity in self.by_entity:
                    yield entity
            case Way.PEERS:
                yield from self._troubled_peers(entity)
            case Way.MODEL:
                yield from (o for o in self.topology.related(entity, Relation.SERVES) if o in self.by_entity)
            case Way.NODE:
                nodes = set(self.topology.related(entity, Relation.RUNS_ON))
                others = (other for other in self.by_entity if other != entity)
                yield from (o for o in others if nodes & set(self.topology.related(o, Relation.RUNS_ON)))
            case Way.REVISION:
                yield from (o for o in self.troubled(entity, Way.MEMBERS) if Symptom.REVISION_SUSPECT in self.shown(o))
            case Way.MEMBERS:
                yield from (other for other in self.by_entity if self._is_member(other, entity))

    def _from_place(self, entity: Entity, way: Way) -> Iterable[Entity]:
        """What lies `way` from a GPU, a node or a switch, and the GPUs and nodes of anything, with findings or without."""
        topology = self.topology
        ways: Mapping[Way, Callable[[], Iterable[Entity]]] = {
            Way.SELF: lambda: (entity,),
            Way.PEERS: lambda: self._troubled_peers(entity),
            Way.MODEL: lambda: (o for e in engines_on(topology, entity) for o in topology.related(e, Relation.SERVES)),
            Way.MEMBERS: lambda: engines_on(topology, entity),
            Way.GPUS: lambda: gpus_on(topology, entity),
            Way.NODES: lambda: (node for node in nodes_of(topology, entity) if node != entity),
        }
        return ways[way]() if way in ways else ()

    def _engines(self, entity: Entity) -> tuple[Entity, ...]:
        """The engines that a thing is, or that run on it; anything else is taken as it is."""
        return engines_on(self.topology, entity) if entity.kind in _PLACES else (entity,)

    def _troubled_peers(self, entity: Entity) -> Iterator[Entity]:
        """The engines with findings that are peers of an engine, or of the engines of a place and not on it themselves."""
        mine = self._engines(entity)
        rows = (self._row(engine) for engine in mine)
        groups = dict.fromkeys(int(self.topology.peer_group[row]) for row in rows if row is not None)
        for group in groups:
            yield from (other for other in self._by_group.get(group, ()) if other not in mine)

    def members(self, entity: Entity) -> int:
        """How many engines belong to a model, gateway or source, or run on a GPU, a node or behind a switch."""
        if entity.kind in _PLACES:
            return len(engines_on(self.topology, entity))
        if entity.kind not in _MEMBERS_BY:
            return 0
        relation, inward = _MEMBERS_BY[entity.kind]
        of = self.topology.inverse(entity, relation) if inward else self.topology.related(entity, relation)
        if entity.kind is EntityKind.TELEMETRY and not of:
            return len(self.topology.engines)
        return len(of)

    def _is_member(self, engine: Entity, entity: Entity) -> bool:
        if engine.kind is not EntityKind.ENGINE or entity.kind not in _MEMBERS_BY:
            return False
        relation, inward = _MEMBERS_BY[entity.kind]
        if entity.kind is EntityKind.TELEMETRY and not self.topology.related(engine, relation):
            return True  # a map that does not say who scrapes an engine: any source may
        return (
            entity in self.topology.related(engine, relation)
            if inward
            else engine in self.topology.related(entity, relation)
        )

    def matching(self, entity: Entity, wanted: Mapping[Way, Iterable[Symptom]]) -> tuple[Finding, ...]:
        """The findings whose symptom is wanted where they lie from `entity`."""
        found: dict[int, Finding] = {}
        for way, symptoms in wanted.items():
            chosen = set(symptoms)
            for other in self.troubled(entity, way):
                found.update({id(f): f for f in self.by_entity[other] if f.symptom in chosen})
        return tuple(found.values())

    def shown(self, entity: Entity) -> frozenset[Symptom]:
        """The symptoms on `entity` itself."""
        return frozenset(finding.symptom for finding in self.by_entity.get(entity, ()))


def candidates(scene: Scene, catalogue: Catalogue) -> tuple[Candidate, ...]:
    """Every form of a cause on every entity at or just above the findings that shows one of its musts."""
    entities: dict[Entity, None] = dict.fromkeys(scene.by_entity)
    for entity in tuple(entities):
        for relation in _SHARED:
            entities.update(dict.fromkeys(scene.topology.related(entity, relation)))
        entities.update(
            dict.fromkeys(o for o in scene.topology.inverse(entity, Relation.ROUTES_TO) if o.kind is EntityKind.GATEWAY)
        )
    return tuple(
        Candidate(form, entity)
        for entity in entities
        for form in catalogue.causes
        if form.on is entity.kind and any(scene.matching(entity, {clause.where: clause.any}) for clause in form.must)
    )
