"""Serving capacity: who serves now, counted per model, zone and group of peers. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from agent.decision.policy import ServingBudget
from serving.fleet.entity import Entity, EntityKind
from serving.fleet.topology import Relation, Topology


class Standing(StrEnum):
    """How an engine stands towards users, from fresh telemetry."""

    SERVING = "serving"
    DRAINED = "drained"  # the door sends it nothing new, by order
    EJECTED = "ejected"  # the door leaves it out because its answers failed
    DOWN = "down"  # its scrape fails
    BLIND = "blind"  # nothing fresh tells


@dataclass(frozen=True, slots=True)
class Capacity:
    """One scope's serving capacity. `scope` is such as `model/llama`, `zone/b of model/llama`, `group/llama/h100/serve`.

    `healthy` are the engines that serve and that no open incident blames; `minimum` is how many must stay so.
    """

    scope: str
    total: int
    healthy: frozenset[str]
    drained: int
    under_repair: int
    minimum: int

    def __str__(self) -> str:
        return f"{self.scope}: {len(self.healthy)} of {self.total} healthy, at least {self.minimum} must stay"


def zone_of(topology: Topology, engine: Entity) -> str | None:
    """The zone of `engine`: its own, or that of a node it runs on."""
    holders = (engine, *topology.related(engine, Relation.RUNS_ON))
    zones = (z for h in holders for z in topology.related(h, Relation.MEMBER_OF) if z.kind is EntityKind.ZONE)
    return next((zone.name for zone in zones), None)


def scopes(topology: Topology, budget: ServingBudget, engine: Entity) -> Iterator[tuple[str, tuple[str, ...], int]]:
    """Every scope that `engine` counts in: its name, the engines in it, and how many of them must stay healthy.

    The model always has a minimum; the zone (of that model) and the group have one only where the budget states it.
    """
    facts = topology.facts(engine)
    of_model = tuple(e.name for e in topology.inverse(Entity(EntityKind.MODEL, facts.model), Relation.SERVES))
    yield f"model/{facts.model}", of_model, budget.for_model(facts.model, len(of_model))
    zone = zone_of(topology, engine)
    if zone is not None and zone in budget.zones:
        inside = tuple(name for name in of_model if zone_of(topology, Entity.engine(name)) == zone)
        yield f"zone/{zone} of model/{facts.model}", inside, budget.zones[zone].of(len(inside))
    group = f"{facts.model}/{facts.hardware}/{facts.role}"
    if group in budget.groups:
        peers = (engine.name, *(peer.name for peer in topology.peers(engine)))
        yield f"group/{group}", peers, budget.groups[group].of(len(peers))


def capacities(
    topology: Topology,
    budget: ServingBudget,
    engine: Entity,
    standing: Mapping[str, Standing],
    *,
    blamed: Iterable[str],
    under_repair: Iterable[str],
) -> tuple[Capacity, ...]:
    """The capacity of every scope that `engine` counts in.

    `blamed` are engines that an incident names: they are not counted as healthy whatever their scrape says, because a hung
    engine still answers it.
    """
    out, repaired = frozenset(blamed), frozenset(under_repair)
    found = []
    for scope, names, minimum in scopes(topology, budget, engine):
        stand = [standing.get(name) for name in names]
        found.append(
            Capacity(
                scope=scope,
                total=len(names),
                healthy=frozenset(n for n, at in zip(names, stand, strict=True) if at is Standing.SERVING) - out,
                drained=stand.count(Standing.DRAINED),
                under_repair=len(repaired.intersection(names)),
                minimum=minimum,
            )
        )
    return tuple(found)
