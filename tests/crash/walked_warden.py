"""A small warden that can be killed anywhere: its loop, a journal that dies on cue, and what must be the same afterwards."""

from collections.abc import Callable
from typing import Any

from actuators.action import Action, Actuator, VerbSpec
from actuators.scripted import ScriptedActuator, ScriptedVerb, ScriptedWorld
from agent.act import Executor, ExecutorParameters
from agent.decision.decision import Decision, Reason, Verdict
from agent.diagnosis.diagnosis import Diagnosis
from agent.incident import (
    Ended,
    Ending,
    Incident,
    IncidentEvent,
    IncidentState,
    Opened,
    RollbackStarted,
    StepPassed,
    VerificationStarted,
)
from agent.journal.memory import MemoryJournal
from agent.journal.port import Journal
from serving.clock import FakeClock
from serving.fleet.entity import Entity

ENGINE = Entity.engine("sim-1")
VERBS = (
    ScriptedVerb(VerbSpec("engine.canary", "probe", {}, harmless=True)),
    ScriptedVerb(VerbSpec("door.drain", "take out", {}, undo="door.undrain", takes_capacity=True), {"drained": True}),
    ScriptedVerb(
        VerbSpec("process.restart", "restart", {}, takes_capacity=True), {"restarted": True}, needs={"startable": True}
    ),
    ScriptedVerb(VerbSpec("door.undrain", "put back", {}, recovery=True), {"drained": False}),
)
STEPS = (("probe", "engine.canary"), ("drain", "door.drain"), ("restart", "process.restart"), ("undrain", "door.undrain"))
ROLLBACK = (("undo.drain", "door.undrain"),)
HUNG = Diagnosis("engine.hung", ENGINE, 0.9, 0.0, ())
PERSISTENT = ExecutorParameters(withdrawals=1_000)  # dying again and again before one action is no reason to give it up here


class Crash(BaseException):
    """The warden dies here. Not an Exception: nothing on the way may survive it."""


class DyingJournal:
    """A journal whose owner dies at its n-th moment; each write has two, right before it and right after it."""

    def __init__(self, journal: Journal, dies_at: int | None = None) -> None:
        self._journal = journal
        self._dies_at = dies_at
        self.moments = 0

    def append(self, event: IncidentEvent) -> int:
        self._pass()
        seq = self._journal.append(event)
        self._pass()
        return seq

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)

    def _pass(self) -> None:
        if self.moments == self._dies_at:
            raise Crash(f"at moment {self.moments}")
        self.moments += 1


def new_world(*, startable: bool = True) -> ScriptedWorld:
    """One engine, in rotation, not restarted."""
    return ScriptedWorld(state={ENGINE: {"drained": False, "restarted": False, "startable": startable}})


class Warden:
    """The shortest loop that repairs one engine: opens an incident, runs the steps, verifies or rolls back, ends."""

    def __init__(self, journal: Any, actuator: Actuator, clock: FakeClock) -> None:
        self._journal = journal
        self._clock = clock
        self._executor = Executor(journal, actuator, clock, PERSISTENT)

    def run(self, steps: int = 200) -> None:
        """Until the incident has ended."""
        for _ in range(steps):
            self._executor.recover(self._clock.now())
            incidents = self._journal.incidents()
            if not incidents:
                self._journal.append(Opened("a", self._clock.now(), HUNG))
            elif incidents[0].ended:
                return
            else:
                self._go_on(incidents[0])
            self._clock.advance(1.0)
        raise AssertionError(f"the incident did not end in {steps} steps: {self._journal.incidents()}")

    def _go_on(self, incident: Incident) -> None:
        if incident.pending is not None:
            return
        thing = following(incident, self._clock.now())
        if isinstance(thing, Decision):
            attempt = max(1, incident.attempt)
            self._executor.perform(incident, thing, attempt=attempt, runbook="engine-hung", now=self._clock.now())
        else:
            self._journal.append(thing)


def following(incident: Incident, now: float) -> Decision | IncidentEvent:
    """What comes next: an action, or a line in the journal. A pure function of the incident, like the real decision."""
    rolling = incident.state is IncidentState.ROLLING_BACK
    if incident.state is IncidentState.VERIFYING:
        return Ended(incident.id, now, IncidentState.RESOLVED, Ending.REPAIRED, "served well again")
    todo = next((pair for pair in (ROLLBACK if rolling else STEPS) if pair[0] not in incident.passed), None)
    if todo is None and rolling:
        return Ended(incident.id, now, IncidentState.ESCALATED, Ending.GAVE_UP, "the runbook failed")
    if todo is None:
        return VerificationStarted(incident.id, now)
    step, verb = todo
    tried = [operation for operation in incident.operations if operation.step == step]
    if not tried:
        reason = Reason.ROLLBACK_DUE if rolling else Reason.STEP_DUE
        return Decision(Verdict.ACT, reason, f"{step} is due", step, Action(verb, ENGINE))
    outcome = tried[-1].outcome
    assert outcome is not None
    if outcome.status == "done":
        return StepPassed(incident.id, now, step, "as expected")
    return RollbackStarted(incident.id, now, f"{step} failed")


def essence(incident: Incident) -> tuple[object, ...]:
    """What must be the same however often the warden died: all but times, keys and the words of outcomes."""
    operations = [
        (operation.attempt, operation.step, operation.action, operation.outcome and operation.outcome.status)
        for operation in incident.operations
    ]
    return incident.state, incident.ending, incident.attempt, incident.runbook, incident.passed, operations


def effects(world: ScriptedWorld) -> tuple[object, ...]:
    """What was done to the world, in order, without the keys; and that no key did anything twice."""
    assert max(world.effects.values(), default=0) <= 1
    assert max(world.calls.values(), default=0) <= 1
    return dict(world.state), [(action.verb, action.target) for _, action in world.done]


def small_warden(journal: Any, world: ScriptedWorld, clock: FakeClock) -> "Warden":
    """The warden of this module over a scripted world."""
    return Warden(journal, ScriptedActuator(VERBS, world), clock)


def live_through(
    open_journal: Callable[[], Journal], world: ScriptedWorld, deaths: tuple[int, ...], warden: Any = small_warden
) -> Incident:
    """Live until the incident has ended, dying at the given moment of each life, and once more to the end."""
    clock = FakeClock()
    for dies_at in (*deaths, None):
        journal = open_journal()
        try:
            warden(DyingJournal(journal, dies_at), world, clock).run()
        except Crash:
            continue
        else:
            return journal.incidents()[0]
        finally:
            journal.close()
    raise AssertionError("the last life does not die")


def undisturbed(world: ScriptedWorld, warden: Any = small_warden) -> tuple[object, object, int]:
    """The end, the effects and the number of moments of a life in which nothing happens to the warden."""
    journal = DyingJournal(MemoryJournal())
    warden(journal, world, FakeClock()).run()
    return essence(journal.incidents()[0]), effects(world), journal.moments
