"""The truth about what is made in a trial: by what name it should be found, and what is right to do about it.

Does not belong here: holding a journal against it (agent.scoreboard.judge).
"""

from collections.abc import Iterator
from functools import cache
from importlib import resources
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from serving.fleet.entity import Entity, EntityKind
from serving.fleet.topology import Relation, Topology
from serving.yaml_file import parse_strict

TRUTH = "truth.yaml"


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Expected(_Strict):
    """What one kind of fault should be called, and what may be done about it; truth.yaml says what each field means."""

    causes: Annotated[tuple[str, ...], Field(min_length=1)]
    on: Annotated[tuple[EntityKind, ...], Field(min_length=1)]
    first: tuple[str, ...] = ()
    later: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    around: tuple[EntityKind, ...] = ()
    between_ranks: bool = False
    physical: bool = True
    because: str = Field(min_length=1)


class Allowed(_Strict):
    """What may be said about a decoy without being false: causes that are true of it. Nothing may be done about it."""

    causes: tuple[str, ...] = ()
    because: str = Field(min_length=1)


class Truth(_Strict):
    """truth.yaml."""

    isolates: tuple[str, ...]
    faults: dict[str, Expected]
    decoys: dict[str, Allowed]


@cache
def load_truth() -> Truth:
    """The shipped table. Raises FileError with every mistake."""
    text = resources.files("agent.scoreboard").joinpath(TRUTH).read_text("utf-8")
    return parse_strict(text, Truth, f"agent/scoreboard/{TRUTH}")


def reach(topology: Topology, target: Entity) -> frozenset[Entity]:
    """Everything that a fault of `target` can honestly show on: itself, what stands on it, and what it is part of.

    An engine's reach is its GPUs, their nodes and switches, its ranks, model, front door and telemetry; a switch's also
    every engine behind it. Another engine on the same node is not in an engine's reach.
    """
    under = below(topology, target)
    return under | {other for entity in under for other in _above(topology, entity)}


def below(topology: Topology, entity: Entity) -> frozenset[Entity]:
    """`entity` and everything that stands on it or belongs to it."""
    return frozenset({entity, *_below(topology, entity)})


def grounds(topology: Topology, target: Entity, expected: Expected) -> frozenset[Entity]:
    """Everything on which the actions that a fault calls for may be done: its reach, and all on what is taken with it."""
    holders = (holder for holder in topology.ancestors(target) if holder.kind in expected.around)
    return reach(topology, target).union(*(below(topology, holder) for holder in holders))


def _below(topology: Topology, entity: Entity) -> Iterator[Entity]:
    """The same without `entity`, as it is found."""
    relations = {
        EntityKind.MODEL: (Relation.SERVES,),
        EntityKind.GATEWAY: (),
        EntityKind.TELEMETRY: (),
        EntityKind.ENGINE: (Relation.MEMBER_OF,),
    }.get(entity.kind, (Relation.RUNS_ON, Relation.MEMBER_OF))
    for relation in relations:
        for other in topology.inverse(entity, relation):
            if other.kind is not EntityKind.GATEWAY:
                yield other
                yield from _below(topology, other)


def _above(topology: Topology, entity: Entity) -> Iterator[Entity]:
    """What `entity` runs on, is part of, serves, is scraped by, or gets its requests from."""
    yield from topology.ancestors(entity)
    yield from topology.related(entity, Relation.SERVES)
    yield from topology.related(entity, Relation.SCRAPED_BY)
    if entity.kind is EntityKind.ENGINE:
        yield from (other for other in topology.inverse(entity, Relation.ROUTES_TO) if other.kind is EntityKind.GATEWAY)
