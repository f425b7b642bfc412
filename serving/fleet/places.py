"""Places: which engines, GPUs and nodes a thing of the map has, whatever kind of thing it is.

A GPU has the engines that compute on it, a node those that run on it, a switch those of its nodes and of the GPUs in its
NVLink domain. Cost grows with what is found, not with the fleet.
"""

from collections.abc import Iterable, Iterator

from serving.fleet.entity import Entity, EntityKind
from serving.fleet.topology import Relation, Topology


def engines_on(topology: Topology, entity: Entity) -> tuple[Entity, ...]:
    """The engines that `entity` (an engine, a rank, a GPU, a node or a switch) is, or that run on it."""
    match entity.kind:
        case EntityKind.ENGINE:
            return (entity,) if entity in topology else ()
        case EntityKind.RANK:
            return _of(EntityKind.ENGINE, topology.related(entity, Relation.MEMBER_OF))
        case EntityKind.GPU | EntityKind.NODE:
            return _once(_running(topology, entity))
        case EntityKind.SWITCH:
            members = topology.inverse(entity, Relation.MEMBER_OF)
            return _once(engine for member in members for engine in _running(topology, member))
        case _:
            return ()


def gpus_on(topology: Topology, entity: Entity) -> tuple[Entity, ...]:
    """The GPUs of an engine, a node or a switch (its nodes' and those of its NVLink domain)."""
    match entity.kind:
        case EntityKind.ENGINE:
            return _of(EntityKind.GPU, topology.related(entity, Relation.RUNS_ON))
        case EntityKind.NODE:
            return _of(EntityKind.GPU, topology.inverse(entity, Relation.MEMBER_OF))
        case EntityKind.SWITCH:
            members = topology.inverse(entity, Relation.MEMBER_OF)
            own = _of(EntityKind.GPU, members)
            return _once((*own, *(gpu for node in _of(EntityKind.NODE, members) for gpu in gpus_on(topology, node))))
        case _:
            return ()


def nodes_of(topology: Topology, entity: Entity) -> tuple[Entity, ...]:
    """The nodes that an engine runs on, that a GPU is in, or that a switch joins; a node itself."""
    match entity.kind:
        case EntityKind.NODE:
            return (entity,)
        case EntityKind.ENGINE | EntityKind.RANK:
            return _of(EntityKind.NODE, topology.related(entity, Relation.RUNS_ON))
        case EntityKind.GPU:
            return _of(EntityKind.NODE, topology.related(entity, Relation.MEMBER_OF))
        case EntityKind.SWITCH:
            return _of(EntityKind.NODE, topology.inverse(entity, Relation.MEMBER_OF))
        case _:
            return ()


def _running(topology: Topology, place: Entity) -> Iterator[Entity]:
    for other in topology.inverse(place, Relation.RUNS_ON):
        yield from engines_on(topology, other) if other.kind in {EntityKind.ENGINE, EntityKind.RANK} else ()


def _of(kind: EntityKind, entities: Iterable[Entity]) -> tuple[Entity, ...]:
    return tuple(entity for entity in entities if entity.kind is kind)


def _once(entities: Iterable[Entity]) -> tuple[Entity, ...]:
    return tuple(dict.fromkeys(entities))
