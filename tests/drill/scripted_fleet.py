"""A fleet behind the port of drills that does as its script says, on a fake clock."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from actuators.action import Action, Outcome, OutcomeStatus
from agent.diagnosis.diagnosis import Diagnosis
from agent.drill.fleet import EngineSeen, History, InjectionError, Sight, Undone, UserCounts
from agent.incident import (
    AttemptStarted,
    Ended,
    Ending,
    Finished,
    IncidentEvent,
    IncidentState,
    Intended,
    Opened,
    Rediagnosed,
    VerificationStarted,
    fold,
)
from agent.journal.port import Note
from runbooks.drill import Drill, FaultOrder, FleetKind
from serving.clock import FakeClock
from serving.faults.catalogue import catalogue
from serving.fleet.entity import Entity, EntityKind

HANG = {
    "name": "hang",
    "summary": "an engine hangs",
    "steady": {"require": ["success >= 0.95"], "hold": 5, "within": 60},
    "faults": [{"fault": "engine-hang", "target": "any"}],
    "abort": [{"when": "failed > 50.0", "because": "too many users fail"}],
    "expect": {
        "incidents": [
            {"cause": "engine.hung", "first_action": "door.drain", "detected_within": 45, "recovered_within": 240}
        ],
        "failed_at_most": 20,
    },
    "limits": {"watch": 300, "recover": 60},
}
DECOY = {**HANG, "name": "decoy", "expect": {"incidents": [], "tolerated": [{"cause": "clients.leaving"}]}}


def drill(base: dict[str, object] = HANG, **changes: object) -> Drill:
    return Drill.model_validate({**base, **changes})


@dataclass(frozen=True)
class Life:
    """An incident as it will go: spans in seconds from the injection. `acts`: (verb, entity, when)."""

    cause: str = "engine.hung"
    on: str = "target"
    opened: float = 10.0
    acts: tuple[tuple[str, str, float], ...] = (("engine.canary", "target", 12.0), ("door.drain", "target", 20.0))
    ended: float | None = 60.0
    state: IncidentState = IncidentState.RESOLVED
    id: str = "i-1"
    first_cause: str | None = None

    def history(self, began: float, target: Entity, now: float) -> History | None:
        def entity(name: str) -> Entity:
            return target if name == "target" else Entity.parse(name)

        about = entity(self.on)
        opened = began + self.opened
        first = Diagnosis(self.first_cause or self.cause, about, 0.9, opened - 5, ())
        found: list[IncidentEvent] = [Opened(self.id, opened, first)]
        if self.first_cause is not None:
            found.append(Rediagnosed(self.id, opened + 1, replace(first, cause=self.cause)))
        if self.acts:
            found.append(AttemptStarted(self.id, opened + 1, 1, "book"))
        for number, (verb, whom, when) in enumerate(self.acts):
            key, at = f"{self.id}/{number}", began + when
            found.append(Intended(self.id, at, key, f"step-{number}", 1, Action(verb, entity(whom))))
            found.append(Finished(self.id, at + 1, key, Outcome(OutcomeStatus.DONE, "done")))
        if self.ended is not None:
            ending = Ending.REPAIRED if self.state is IncidentState.RESOLVED else Ending.GAVE_UP
            if self.acts and self.state is IncidentState.RESOLVED:
                found.append(VerificationStarted(self.id, began + self.ended - 1))
            found.append(Ended(self.id, began + self.ended, self.state, ending, "as scripted"))
        events = tuple(event for event in found if event.at <= now)
        return History(fold(events), events) if events else None


class ScriptedFleet:
    """Three engines. `lives` are the incidents that follow an injection; `at` maps a second to what happens then."""

    def __init__(self, lives: tuple[Life, ...] = (Life(),), *, engines: int = 3) -> None:
        self.clock = FakeClock()
        self.kind = FleetKind.SIMULATED
        self.lives = lives
        self.page = Sight(0.0, tuple(EngineSeen(f"sim-{n}", "sim", "serving", float(n)) for n in range(engines)))
        self.always: Callable[[], None] = lambda: None
        self.log: list[str] = []
        self.notes: list[Note] = []
        self.on_record: dict[str, float] = {}
        self.target: Entity | None = None
        self.began: float | None = None
        self.failing_per_s = 0.0
        self.refuses_injection = False
        self.refuses_undo = False
        self.frozen_page_at: float | None = None
        self._start = self.clock.now()

    def sight(self) -> Sight:
        self.always()
        seen = self.clock.now() if self.frozen_page_at is None else self.frozen_page_at
        return replace(self.page, at=seen)

    def users(self) -> UserCounts:
        served = 10.0 * (self.clock.now() - self._start)
        bad = 0.0 if self.began is None else self.failing_per_s * (self.clock.now() - self.began)
        return UserCounts({"ok": served, "timeout": bad}, (0.1, float("inf")), (served, served))

    def histories(self, since: float) -> tuple[History, ...]:
        if self.began is None or self.target is None:
            return ()
        told = (life.history(self.began, self.target, self.clock.now()) for life in self.lives)
        return tuple(each for each in told if each is not None and each.incident.opened_at >= since)

    def entities(self, kind: EntityKind) -> tuple[Entity, ...]:
        return tuple(Entity.engine(each.name) for each in self.page.engines) if kind is EntityKind.ENGINE else ()

    def around(self, target: Entity) -> frozenset[Entity]:
        return frozenset({target})

    def inject(self, key: str, order: FaultOrder, target: Entity) -> None:
        self.log.append(f"inject {order.fault} {target}")
        if self.refuses_injection or order.fault not in catalogue():
            raise InjectionError("as scripted")
        self.on_record[key] = self.clock.now()
        self.target, self.began = target, self.clock.now()

    def at_work(self, key: str) -> bool:
        return key in self.on_record

    def clear(self, key: str) -> Undone:
        self.log.append("clear")
        if self.refuses_undo:
            return Undone(ok=False, says="as scripted")
        self.on_record.pop(key, None)
        return Undone(ok=True, says="mended")

    def note(self, note: Note) -> None:
        self.notes.append(note)

    def engine(self, name: str, state: str) -> None:
        self.page = replace(
            self.page, engines=tuple(replace(e, state=state) if e.name == name else e for e in self.page.engines)
        )
