"""A fleet in virtual time behind the port of drills, with the warden's own loop looking after it.

To sleep is to let the fleet live on: the loop takes its step every `INTERVAL_S` on the way, as in a trial of the scoreboard,
from which fleet, judgements and hands are. Nothing of it outlives its process, so nothing is ever left behind either.
"""

import math
from collections.abc import Callable

import numpy as np

from actuators.action import Action
from actuators.virtual import VirtualActuator
from agent.decision.breaker import BreakerState
from agent.drill.fleet import EngineSeen, History, InjectionError, Sight, Undone, UserCounts
from agent.incident import IncidentState
from agent.journal.memory import MemoryJournal
from agent.journal.port import Note
from agent.scoreboard.episode import INTERVAL_S, warden_over
from agent.scoreboard.stage import warmed
from agent.scoreboard.trial import FleetSize
from agent.status import engine_rows
from runbooks.drill import FaultOrder, FleetKind
from serving.clock import Clock
from serving.faults.catalogue import FaultUsageError
from serving.fleet.entity import Entity, EntityKind
from serving.fleet.places import engines_on, gpus_on
from serving.virtual.faults.kind import Injection, entities
from serving.virtual.faults.naming import Meant, meant

USUAL = FleetSize(engines=16, models=1, tp=1, rps=1.0, experts=32, seed=0, warm_up=420.0)
"""One model with a mixture of experts: small, and every shipped drill has something to break."""
MOMENT_S = 1.0  # of life between two questions whether a look is due
BACK = {"door.drain": "door.undrain", "node.cordon": "node.uncordon"}


class VirtualClock:
    """The fleet's clock. To sleep is to let the fleet live, in whole ticks, at least as long."""

    def __init__(self, clock: Clock, live: Callable[[float], None]) -> None:
        self._clock = clock
        self._live = live

    def now(self) -> float:
        return self._clock.now()

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def sleep(self, seconds: float) -> None:
        self._live(seconds)


class VirtualDrillFleet:
    """A fleet of `size`, warmed up, that lives while its clock sleeps. `failures`: detectors that failed on the way."""

    def __init__(self, size: FleetSize = USUAL) -> None:
        stage = warmed(size, INTERVAL_S).copied(size.seed)
        self._fleet = stage.fleet
        self._journal = MemoryJournal()
        self._actuator = VirtualActuator(stage.fleet)
        self._loop = warden_over(stage, self._journal, self._actuator)
        self.clock: Clock = VirtualClock(stage.fleet.clock, self._live)
        self.failures: dict[str, None] = {}
        self._made: dict[str, tuple[Injection, Entity]] = {}
        self._next_look = self._fleet.now
        self._look()

    @property
    def kind(self) -> FleetKind:
        return FleetKind.VIRTUAL

    def sight(self) -> Sight:
        report = self._report
        engines = tuple(
            EngineSeen(row.engine, row.model, row.state, row.in_flight, row.waiting, row.kv_usage)
            for row in engine_rows(report.window, report.incidents)
        )
        still_open = tuple(incident.id for incident in report.incidents)
        breaker = report.state.breaker
        holds = "" if breaker.state is BreakerState.CLOSED else f"{breaker.state}, {breaker.says}"
        return Sight(report.window.now, engines, still_open, breaker=holds)

    def users(self) -> UserCounts:
        """As users were answered: an engine that refused and was passed over for another failed nobody."""
        door = self._fleet.door
        told = {
            result: float(door.measures.counters[f"door.finished.{result}"].sum()) for result in ("client_closed", "timeout")
        }
        results = {"ok": door.answered, **told, "connection": max(0.0, door.failed - sum(told.values()))}
        first = door.measures.histograms(np.zeros(len(door.drained), dtype=np.bool_))["door.ttft"]
        return UserCounts(results, tuple(first.bounds.tolist()), tuple(first.counts.sum(axis=0).tolist()))

    def histories(self, since: float) -> tuple[History, ...]:
        found = [incident for incident in self._journal.incidents(since=since) if incident.opened_at >= since]
        return tuple(
            History(
                incident,
                tuple(e.event for e in self._journal.events(incident=incident.id) if not isinstance(e.event, Note)),
            )
            for incident in found
        )

    def entities(self, kind: EntityKind) -> tuple[Entity, ...]:
        return entities(self._fleet, kind)

    def around(self, target: Entity) -> frozenset[Entity]:
        """A GPU's engines are drained and its node is cordoned for it; with a node goes all that stands on it."""
        topology = self._fleet.topology
        if target.kind not in {EntityKind.GPU, EntityKind.NODE}:
            return frozenset({target})
        nodes = (holder for holder in topology.ancestors(target) if holder.kind is EntityKind.NODE)
        return frozenset({target, *nodes, *gpus_on(topology, target), *engines_on(topology, target)})

    def inject(self, key: str, order: FaultOrder, target: Entity) -> None:
        try:
            what = meant(order.fault, order.parameters, target.kind)
            made = Injection(self._fleet, what.kind, self._targets(what, target), what.parameters)
        except (FaultUsageError, ValueError) as refused:
            raise InjectionError(f"{order.fault} on {target}: {refused}") from refused
        self._made[key] = made, target
        if what.ends_after is not None:
            self._fleet.at(self._fleet.now + what.ends_after, made.undo)

    def at_work(self, key: str) -> bool:
        return key in self._made

    def clear(self, key: str) -> Undone:
        if key not in self._made:
            return Undone(ok=True, says="nothing of it was at work any more")
        made, target = self._made.pop(key)
        cured = made.cured()
        made.undo()
        back = self._put_back(target)
        says = "a repair had ended it" if cured else "it is taken back"
        return Undone(ok=True, says=f"{says}; people put back {', '.join(back)}" if back else says)

    def note(self, note: Note) -> None:
        self._journal.note(note)

    def _put_back(self, target: Entity) -> list[str]:
        """What people do who were told to repair `target`: put back what the warden took out for it and left to them."""
        handed_over = [i for i in self._journal.incidents() if i.state is IncidentState.ESCALATED and i.entity == target]
        took = {o.action.target for i in handed_over for o in i.operations if o.action.verb in BACK}
        for thing in sorted(took):
            verb = BACK["node.cordon" if thing.kind is EntityKind.NODE else "door.drain"]
            self._actuator.apply(Action(verb, thing), f"people/{thing}/{self._fleet.now:.0f}")
        return [str(thing) for thing in sorted(took)]

    def _targets(self, what: Meant, target: Entity) -> tuple[Entity, ...]:
        """What happens to a model, of the front door happens to every model. Raises ValueError where it cannot happen."""
        able = what.kind.targets(self._fleet)
        chosen = able if target.kind is not what.kind.on else tuple(entity for entity in able if entity == target)
        if not chosen:
            raise ValueError(
                f"there is nothing of the kind in it; it can happen to: {', '.join(map(str, able[:8])) or 'none'}"
            )
        return chosen

    def _live(self, seconds: float) -> None:
        for _ in range(math.ceil(seconds / MOMENT_S)):
            self._fleet.advance(MOMENT_S)
            if self._fleet.now >= self._next_look:
                self._look()

    def _look(self) -> None:
        """One step of the warden."""
        self._next_look = self._fleet.now + INTERVAL_S
        self._report = self._loop.step(self._fleet.topology, self._fleet.now)
        failed = self._report.detection.failed
        self.failures.update(dict.fromkeys(f"{each.detector}: {each.error}" for each in failed))
