"""An executor over a scripted world and a journal in memory."""

from collections.abc import Callable

import pytest

from actuators.action import Action, Outcome, VerbSpec
from actuators.scripted import ScriptedActuator, ScriptedVerb, ScriptedWorld
from agent.act import Executor
from agent.decision.decision import Decision, Reason, Verdict
from agent.diagnosis.diagnosis import Diagnosis
from agent.incident import Incident, IncidentEvent, Opened
from agent.journal.memory import MemoryJournal
from serving.clock import FakeClock
from serving.fleet.entity import Entity

ENGINE = Entity.engine("sim-1")
VERBS = (
    ScriptedVerb(VerbSpec("engine.canary", "probe", {}, harmless=True)),
    ScriptedVerb(VerbSpec("door.drain", "take out", {}, undo="door.undrain", takes_capacity=True), {"drained": True}),
    ScriptedVerb(VerbSpec("process.restart", "restart", {}, takes_capacity=True), {"restarted": True}),
)


class Watched(ScriptedActuator):
    """Calls `before` right before each application: the moment at which the world is about to be touched."""

    before: Callable[[str], None] = staticmethod(lambda _key: None)

    def apply(self, action: Action, key: str) -> Outcome:
        self.before(key)
        return super().apply(action, key)


class Stage:
    """All that an executor works with, and an incident to work on."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.journal = MemoryJournal()
        self.world = ScriptedWorld(state={ENGINE: {"drained": False, "restarted": False}})
        self.actuator = Watched(VERBS, self.world)
        self.executor = Executor(self.journal, self.actuator, self.clock)
        self.journal.append(Opened("a", self.clock.now(), Diagnosis("engine.hung", ENGINE, 0.9, self.clock.now(), ())))
        self.incident = self.now_is()
        self.drain = Decision(Verdict.ACT, Reason.STEP_DUE, "step drain is due", "drain", Action("door.drain", ENGINE))

    def now_is(self) -> Incident:
        incident = self.journal.incident("a")
        assert incident is not None
        return incident

    def perform(self) -> tuple[IncidentEvent, ...]:
        return self.executor.perform(self.incident, self.drain, attempt=1, runbook="engine-hung", now=self.clock.now())

    def recover(self) -> tuple[IncidentEvent, ...]:
        return self.executor.recover(self.clock.now())


@pytest.fixture
def stage() -> Stage:
    return Stage()
