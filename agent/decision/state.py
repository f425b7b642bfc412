"""FleetState: all that decide needs to know of the fleet at one moment, built fresh for every decision. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from agent.decision.breaker import Breaker, BreakerState, breaker_at
from agent.decision.capacity import Capacity, Standing, capacities
from agent.decision.policy import Policy
from agent.incident import ENDED, Ending, Incident, IncidentState
from serving.fleet.entity import Entity, EntityKind
from serving.fleet.places import engines_on
from serving.fleet.topology import Relation, Topology
from serving.telemetry.window import Window

ROLLED_BACK = "rollback"
"""The step that is written as passed once a rollback is over; from then on the incident only waits for its next attempt."""
BLIND_CAUSE = "telemetry.blind"
_STANDINGS = tuple(Standing)
NOT_AT_FAULT = frozenset({"clients.leaving", "engine.frozen_gauges", "fabric.degraded", "gpu.memory_vampire", "overload"})
"""Causes of which an engine is the scene and not the culprit: it serves, so it still counts as healthy capacity."""


@dataclass(frozen=True, slots=True)
class Switches:
    """What people have set by hand. `paused` is None when it cannot be read, which stops everything just the same.

    `opted_out` adds to the opt-outs of the policy (labels and annotations seen on the fleet).
    """

    paused: bool | None = False
    paused_by: str = ""
    opted_out: frozenset[Entity] = frozenset()


@dataclass(frozen=True, slots=True, eq=False)
class FleetState:
    """The fleet as a decision sees it.

    `incidents` are the open ones and those that ended lately, by id. `standing` is by engine name. `blind` are the
    engines that cannot be seen. Build it with `fleet_state`; after an incident changed, take `with_incidents` before the
    next decision, or two decisions may both spend the last of a budget.
    """

    now: float
    window: Window
    topology: Topology
    policy: Policy
    switches: Switches
    incidents: Mapping[str, Incident]
    standing: Mapping[str, Standing]
    blind: frozenset[str]
    blamed: frozenset[str]
    under_repair: frozenset[str]
    breaker: Breaker

    def with_incidents(self, incidents: Iterable[Incident]) -> "FleetState":
        """The same moment after incidents changed: those given replace the ones with their ids."""
        merged = {**self.incidents, **{incident.id: incident for incident in incidents}}
        return fleet_state(self.window, self.topology, merged.values(), self.policy, self.switches, now=self.now)

    def repairs_under_way(self, besides: str) -> tuple[Incident, ...]:
        """The incidents whose repair is not over, without the one called `besides`."""
        return tuple(i for i in self.incidents.values() if under_way(i) and i.id != besides)

    def capacity(self, engine: Entity) -> tuple[Capacity, ...]:
        """The capacity of every scope that `engine` counts in, worked out with all incidents known."""
        budget = self.policy.serving
        return capacities(self.topology, budget, engine, self.standing, blamed=self.blamed, under_repair=self.under_repair)

    def is_blind(self, entity: Entity) -> bool:
        """Whether `entity` cannot be seen: an engine by itself, anything else when all of its engines cannot."""
        names = {engine.name for engine in engines_of(self.topology, entity)}
        return bool(names) and names <= self.blind

    def opts_out(self, entity: Entity) -> Entity | None:
        """What opted out so that `entity` is left alone: itself, or what it runs on, belongs to or serves."""
        stated = {Entity.parse(name) for name in self.policy.opt_outs} | self.switches.opted_out
        return next((holder for holder in holders_of(self.topology, entity) if holder in stated), None)

    def cell_of(self, entity: Entity) -> str:
        """The name of the cell that `entity` belongs to; the policy's where the map does not say."""
        held = (h.name for h in holders_of(self.topology, entity) if h.kind is EntityKind.CELL)
        return next(held, self.policy.cell)


def under_way(incident: Incident) -> bool:
    """Whether the incident's repair has begun and is not over: steps, verification, or a rollback that still has to do."""
    if incident.state is IncidentState.ROLLING_BACK:
        return ROLLED_BACK not in incident.passed
    return incident.state in {IncidentState.ACTING, IncidentState.VERIFYING}


def engines_of(topology: Topology, entity: Entity) -> tuple[Entity, ...]:
    """The engines that `entity` is or has: on a GPU or a node, behind a switch, in a model; none where it has none."""
    relations = {
        EntityKind.MODEL: Relation.SERVES,
        EntityKind.TELEMETRY: Relation.SCRAPED_BY,
    }
    relation = relations.get(entity.kind)
    if relation is None:
        return engines_at(topology, entity)
    return tuple(e for e in topology.inverse(entity, relation) if e.kind is EntityKind.ENGINE)


def engines_at(topology: Topology, place: Entity) -> tuple[Entity, ...]:
    """The engines that `place` (an engine, a GPU, a node or a switch) is, or that run there; none for anything else."""
    return engines_on(topology, place)


def touched_by(topology: Topology, incident: Incident) -> frozenset[Entity]:
    """What the present attempt of an incident touches: its entity, the targets of its actions, and all their engines."""
    done = (o.action.target for o in incident.operations if o.attempt == incident.attempt)
    things = dict.fromkeys((incident.entity, *done))
    return frozenset((*things, *(engine for thing in things for engine in engines_of(topology, thing))))


def holders_of(topology: Topology, entity: Entity) -> tuple[Entity, ...]:
    """`entity`, then all it runs on, is a member of, or serves, nearest first."""
    found = [entity]
    for holder in found:
        for relation in (Relation.RUNS_ON, Relation.MEMBER_OF, Relation.SERVES):
            found.extend(other for other in topology.related(holder, relation) if other not in found)
    return tuple(found)


def fleet_state(
    window: Window,
    topology: Topology,
    incidents: Iterable[Incident] | None,
    policy: Policy,
    switches: Switches,
    *,
    now: float,
) -> FleetState:
    """Work the state out at `now`.

    `incidents` are all that stand (open, or given up with their cause still there) and those that ended within the longest
    span of the policy (breaker, cool-down, ineffective repairs). None means that the record cannot be read: then the
    breaker is open, for unreadable means stop.
    """
    known = {incident.id: incident for incident in incidents or ()}
    current = [incident for incident in known.values() if incident.state not in ENDED]
    fresh = policy.freshness - max(0.0, now - window.now)  # a window that is itself old tells less
    blind = _blind(window, topology, current, fresh)
    standing = _standing(window, blind, fresh)
    faulty = [i.entity for i in known.values() if i.entity.kind in _BLAMED and _blames(i)]
    blamed = frozenset(engine.name for entity in faulty for engine in _blamed(topology, entity))
    touched = (e for i in current if under_way(i) for e in touched_by(topology, i))
    busy = frozenset(entity.name for entity in touched if entity.kind is EntityKind.ENGINE)
    if incidents is None:
        trust = Breaker(BreakerState.OPEN, now, "the record of past repairs cannot be read", voids_before=now)
    else:
        trust = breaker_at(known.values(), len(blamed), len(topology.engines), policy.breaker, now)
    return FleetState(
        now=now,
        window=window,
        topology=topology,
        policy=policy,
        switches=switches,
        incidents=MappingProxyType(known),
        standing=standing,
        blind=blind,
        blamed=blamed,
        under_repair=busy,
        breaker=trust,
    )


_BLAMED = frozenset({EntityKind.ENGINE, EntityKind.GPU, EntityKind.NODE})


def _blamed(topology: Topology, entity: Entity) -> tuple[Entity, ...]:
    """The engines that are faulty when `entity` is; one that the map does not hold any more is still its incident's."""
    return (entity,) if entity.kind is EntityKind.ENGINE else engines_at(topology, entity)


def _blames(incident: Incident) -> bool:
    """Whether the incident says that its entity is faulty: open, or given up and not closed since."""
    if incident.state in ENDED and (not incident.standing or incident.ending in {Ending.RULED_OUT, Ending.MERGED}):
        return False
    return incident.diagnosis.enough and incident.cause not in NOT_AT_FAULT


def _blind(window: Window, topology: Topology, current: Iterable[Incident], freshness: float) -> frozenset[str]:
    """Engines whose scrape nobody reports freshly, and those behind a source that an open incident calls blind."""
    names = set(window.once(("stale", freshness), lambda: _stale(window, topology, freshness)))
    for incident in current:
        if incident.cause == BLIND_CAUSE:
            names.update(engine.name for engine in engines_of(topology, incident.entity) or topology.engines)
    return frozenset(names)


def _stale(window: Window, topology: Topology, freshness: float) -> frozenset[str]:
    return frozenset(topology.engines[row].name for row in np.flatnonzero(window.age("scrape.up") > freshness))


def _standing(window: Window, blind: frozenset[str], freshness: float) -> Mapping[str, Standing]:
    """How every engine stands. Where a door reports at all, an engine that it does not report is blind, not serving."""
    return window.once(("standing", blind, freshness), lambda: _stand(window, blind, freshness))


def _stand(window: Window, blind: frozenset[str], freshness: float) -> Mapping[str, Standing]:
    up = window.latest("scrape.up", freshness) >= 1.0
    drained, ejected = window.latest("door.drained", freshness), window.latest("door.ejected", freshness)
    unseen = np.isnan(drained) if "door.drained" in window.signals else np.zeros(window.rows, dtype=bool)
    hidden = np.zeros(window.rows, dtype=bool)
    hidden[[window.topology.row_of[name] for name in blind if name in window.topology.row_of]] = True
    found = np.select(  # the first that holds
        [hidden, drained >= 1.0, ~up, unseen, ejected >= 1.0],
        [_STANDINGS.index(s) for s in (Standing.BLIND, Standing.DRAINED, Standing.DOWN, Standing.BLIND, Standing.EJECTED)],
        _STANDINGS.index(Standing.SERVING),
    )
    stands = map(_STANDINGS.__getitem__, found.tolist())
    return MappingProxyType({engine.name: stand for engine, stand in zip(window.topology.engines, stands, strict=True)})
