"""Whatever happens to the fleet and whatever is diagnosed, right or wrong: no sequence of decisions breaks a rail.

A fleet in memory lives through faults, false alarms, lost outcomes, pauses and blindness, drawn by hypothesis. After every
decision the truth of that fleet, not the warden's own notion of it, is asked whether the rails held.
"""

from random import Random
from typing import Any

from hypothesis import event, given, settings
from hypothesis import strategies as st

from actuators.action import Action, Outcome, OutcomeStatus
from agent.decision.breaker import BreakerState
from agent.decision.decide import advance, decide, ending_of
from agent.decision.decision import Decision, Reason, Verdict
from agent.decision.policy import BreakerSettings, Grant, Minimum, Policy, ServingBudget
from agent.decision.state import FleetState, Switches, under_way
from agent.decision.steps import Stage, progress, step_key
from agent.incident import (
    AttemptStarted,
    Closed,
    Ended,
    Ending,
    Finished,
    Incident,
    IncidentState,
    Intended,
    Opened,
    apply,
)
from runbooks.runbook import Autonomy

TICK = 15.0
FALSE_ALARMS = (
    "engine.slow",
    "engine.gc_stall",
    "engine.hung",
    "prefill.saturated",
    "engine.kv_pressure",
    "clients.leaving",
    "overload",
)
GIVES_BACK = {"door.undrain", "engine.resume", "door.set_weight"}


class Life:
    """One fleet's life under the warden's decisions, with the checks."""

    def __init__(self, world: Any, rng: Random) -> None:
        self.world, self.rng = world, rng
        self.size = rng.randint(1, 6)
        self.names = [f"sim-{number}" for number in range(self.size)]
        self.now = world.now
        self.fault: dict[str, str] = {}
        self.down_until: dict[str, float] = {}
        self.drained: set[str] = set()
        self.weight = dict.fromkeys(self.names, 1.0)
        self.silent: set[int] = set()
        self.paused: bool | None = False
        self.incidents: dict[str, Incident] = {}
        self.happened: dict[str, bool] = {}
        self.policy = Policy(
            grants=[Grant(autonomy=Autonomy.AUTO)],
            serving=ServingBudget(default=Minimum(share=rng.choice((0.0, 0.5, 0.8)))),
            max_concurrent_repairs=rng.choice((1, 1, 2)),
            breaker=BreakerSettings(max_unhelpful=rng.choice((1, 3)), open_for=60, min_faulty=3),
            cool_down=rng.choice((0.0, 60.0)),
        )

    def well(self, name: str) -> bool:
        """The truth: this engine answers whoever is sent to it."""
        return name not in self.fault and self.now >= self.down_until.get(name, 0.0)

    def live(self) -> None:
        """One tick: things happen, then every incident is brought as far as it goes."""
        self.now += TICK
        self.misfortune()
        fleet = self.fleet()
        for incident in [i for i in self.incidents.values() if not i.ended]:
            self.carry_on(incident, fleet)

    def misfortune(self) -> None:
        rng = self.rng
        if rng.random() < 0.08:
            self.fault.setdefault(rng.choice(self.names), rng.choice(("engine.hung", "engine.dead")))
        self.paused = rng.choice((False,) * 18 + (True, None))
        self.silent = {number for number in range(self.size) if rng.random() < 0.06}
        for name, cause in self.fault.items():
            self.open(cause, name)
        if rng.random() < 0.2:
            self.open(rng.choice(FALSE_ALARMS), rng.choice(self.names))
        for incident in list(self.incidents.values()):
            if incident.pending is not None and not incident.ended and rng.random() < 0.6:
                self.look_up(incident)

    def open(self, cause: str, name: str) -> None:
        """An incident, unless one stands; one that a probe ruled out is closed, as happens after a while."""
        same = [i for i in self.incidents.values() if (i.cause, i.entity.name) == (cause, name) and i.standing]
        for incident in same:
            if incident.ending is Ending.RULED_OUT:
                self.write(Closed(incident.id, self.now, "it may have come true"))
            else:
                return
        identity = f"i-{len(self.incidents)}"
        diagnosis = self.world.diagnosis(cause, name, self.rng.choice((0.4, 0.8, 0.95)))
        self.write(Opened(identity, self.now, diagnosis))

    def write(self, event: Any) -> Incident:
        incident = apply(self.incidents.get(event.incident), event)
        self.incidents[incident.id] = incident
        return incident

    def look_up(self, incident: Incident) -> None:
        operation = incident.pending
        assert operation is not None
        status = OutcomeStatus.DONE if self.happened[operation.key] else OutcomeStatus.FAILED
        self.write(Finished(incident.id, self.now, operation.key, Outcome(status, "looked up")))

    def fleet(self) -> Any:
        fleet = self.world.fleet(self.size, now=self.now)
        for number, name in enumerate(self.names):
            up = self.fault.get(name) != "engine.dead" and self.now >= self.down_until.get(name, 0.0)
            fleet.set("scrape.up", float(up), number).set("door.drained", float(name in self.drained), number)
            if not self.well(name) or name in self.drained:
                fleet.count("door.finished.ok", 0.0, number).observe("door.ttft", 0.0, 0.1, number)
                fleet.set("door.in_flight", 0.0, number)
        for number in self.silent:
            fleet.silence(number)
        return fleet

    def state(self, fleet: Any) -> FleetState:
        switches = Switches(paused=self.paused)
        return fleet.state(self.incidents.values(), self.policy, switches)  # type: ignore[no-any-return]

    def carry_on(self, incident: Incident, fleet: Any) -> None:
        state = self.state(fleet)
        for _ in range(8):
            book = self.world.library.for_cause(incident.cause)
            written = advance(incident, book, state, self.world.specs, now=self.now)
            if written is not None:
                incident = self.write(written)
                state = state.with_incidents([incident])
                if incident.ended:
                    event(f"ended: {incident.ending}")
                    return
                continue
            decision = decide(incident, book, state, self.policy, self.world.specs, now=self.now)
            assert decision == decide(incident, book, self.state(fleet), self.policy, self.world.specs, now=self.now)
            assert decision.says
            event(f"reason: {decision.reason}")
            self.check_recoveries_pass(incident, state, decision)
            if decision.verdict is not Verdict.ACT:
                ending = ending_of(incident, decision)
                if ending is not None:
                    self.write(Ended(incident.id, self.now, *ending, decision.says))
                return
            event(f"act: {decision.reason} {decision.action.verb if decision.action else ''}")
            self.check_rails(incident, state, decision)
            incident = self.act(incident, decision)
            state = state.with_incidents([incident])

    def check_recoveries_pass(self, incident: Incident, state: FleetState, decision: Decision) -> None:
        if incident.state is not IncidentState.ACTING or incident.pending is not None or self.paused is not False:
            return
        book = self.world.library.for_cause(incident.cause)
        at = progress(incident, book, state, self.world.specs, now=self.now)
        seen = int(incident.entity.name.removeprefix("sim-")) not in self.silent
        if at.stage is Stage.DUE and at.action and at.action.verb == "door.undrain" and seen:
            assert decision.verdict is Verdict.ACT, decision

    def check_rails(self, incident: Incident, state: FleetState, decision: Decision) -> None:
        action = decision.action
        assert action is not None
        name, spec = action.target.name, self.world.specs[action.verb]
        assert self.paused is False
        assert int(name.removeprefix("sim-")) not in self.silent, "acted on what cannot be seen"
        assert incident.pending is None, "acted while an outcome was unknown"
        if state.breaker.state is BreakerState.OPEN and decision.reason is not Reason.ROLLBACK_DUE:
            assert spec.harmless or spec.recovery, "acted while the breaker was open"
        if decision.reason is Reason.ROLLBACK_DUE:
            assert action.verb in GIVES_BACK
        if spec.takes_capacity and self.well(name) and name not in self.drained:
            left = [other for other in self.names if other != name and self.well(other) and other not in self.drained]
            minimum = self.policy.serving.for_model("m", self.size)
            assert len(left) >= minimum, f"{action} leaves {left}, {minimum} must stay"

    def act(self, incident: Incident, decision: Decision) -> Incident:
        attempt, action, step = incident.attempt, decision.action, decision.step
        assert action is not None
        assert step is not None
        begins = incident.state is IncidentState.OPEN or (
            incident.state is IncidentState.ROLLING_BACK and decision.reason is Reason.STEP_DUE
        )
        if begins:
            book = self.world.library.for_cause(incident.cause)
            attempt += 1
            assert attempt <= book.attempts, "attempts are bounded"
            incident = self.write(AttemptStarted(incident.id, self.now, attempt, book.name))
            assert sum(map(under_way, self.incidents.values())) <= self.policy.max_concurrent_repairs
        key = step_key(incident, attempt, step)
        assert key not in self.happened, "an operation key was used twice"
        self.write(Intended(incident.id, self.now, key, step, attempt, action))
        return self.write(Finished(incident.id, self.now, key, self.touch(action, key)))

    def touch(self, action: Action, key: str) -> Outcome:
        name = action.target.name
        self.happened[key] = False
        if action.verb == "engine.canary":
            self.happened[key] = self.well(name)
            return Outcome(OutcomeStatus.DONE if self.well(name) else OutcomeStatus.FAILED, "asked")
        luck = self.rng.random()
        if luck < 0.2:
            return Outcome(OutcomeStatus.FAILED, "refused", permanent=luck < 0.15)
        if luck < 0.23:
            return Outcome(OutcomeStatus.UNKNOWN, "no answer, and nothing was done")
        before, after = self.change(action)
        self.happened[key] = True
        if luck < 0.26:
            return Outcome(OutcomeStatus.UNKNOWN, "no answer, though it was done")
        return Outcome(OutcomeStatus.DONE, "done", before, after)

    def change(self, action: Action) -> tuple[dict[str, Any], dict[str, Any]]:
        name = action.target.name
        before = {"drained": name in self.drained, "weight": self.weight[name]}
        match action.verb:
            case "door.drain":
                self.drained.add(name)
            case "door.undrain":
                self.drained.discard(name)
            case "door.set_weight":
                self.weight[name] = float(action.arguments["weight"] or 0.0)
            case "process.restart":
                if self.rng.random() < 0.8:
                    self.fault.pop(name, None)
                self.down_until[name] = self.now + self.rng.choice((5.0, 20.0, 40.0))
        return before, {"drained": name in self.drained, "weight": self.weight[name]}


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_no_sequence_of_decisions_breaks_a_rail(world: Any, seed: int) -> None:
    life = Life(world, Random(seed))
    for _ in range(40):
        life.live()
