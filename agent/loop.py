"""The loop's step: observe, detect, diagnose, track, decide, act. Its timing, catching and measuring are in agent.runner.

Between two steps nothing is remembered here that is not in the journal or the telemetry history, so a warden that is
killed and started again goes on where the record says it stood.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from actuators.action import Actuator
from agent.decision.consent import waits_for_answer
from agent.decision.cost import cost_to_users
from agent.decision.decide import advance, decide, ending_of
from agent.decision.decision import Decision, Reason, Verdict
from agent.decision.policy import Policy
from agent.decision.state import FleetState, Switches, fleet_state, touched_by, under_way
from agent.diagnosis.diagnosis import Diagnosis
from agent.hands import Performs
from agent.incident import ApprovalAsked, Decided, Ended, Incident, IncidentEvent, IncidentState, apply
from agent.journal.port import PAUSE, Journal, JournalError
from agent.track import TrackParameters, track
from detectors.catalogue import Detection
from runbooks.runbook import Runbook
from serving.clock import Clock
from serving.fleet.entity import Entity
from serving.fleet.topology import Topology
from serving.telemetry.window import Window

# A canary, a drain and a restart may follow each other within one step; more in a row belongs to the next look at the fleet.
ACTIONS_PER_STEP = 4


class Observes(Protocol):
    """What gives the window of a moment: agent.observe.Observer."""

    def observe(self, topology: Topology, now: float) -> Window:
        """The window at `now`."""
        ...


@dataclass(frozen=True, slots=True)
class Minds:
    """The pure judgements of the loop, and what they go by. `runbooks` is by cause.

    `diagnose` is also told which entities a repair of ours is changing right now. `out_of_reach` says which shipped runbooks
    nobody here can follow, and why.
    """

    detect: Callable[[Window], Detection]
    diagnose: Callable[[Window, Detection, frozenset[Entity]], tuple[Diagnosis, ...]]
    runbooks: Mapping[str, Runbook]
    policy: Policy
    tracking: TrackParameters = field(default_factory=TrackParameters)
    out_of_reach: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class StepReport:
    """What one step saw and did, for metrics and the status page.

    `incidents` are the open ones after it, `escalated` how many were a person's before it and are not over; `seconds` is
    what each stage took, by its name.
    """

    window: Window
    detection: Detection
    diagnoses: tuple[Diagnosis, ...]
    state: FleetState
    incidents: tuple[Incident, ...]
    escalated: int
    events: tuple[IncidentEvent, ...]
    seconds: Mapping[str, float]


class Loop:
    """One warden's step over one fleet. `opted_out` tells what labels or annotations on the fleet say to leave alone."""

    def __init__(
        self,
        observer: Observes,
        minds: Minds,
        journal: Journal,
        actuators: Actuator,
        hands: Performs,
        clock: Clock,
        opted_out: Callable[[], frozenset[Entity]] = frozenset,
    ) -> None:
        self._observer = observer
        self._hands = hands
        self._clock = clock
        self._minds = minds
        self._journal = journal
        self._specs = actuators.verbs
        self._opted_out = opted_out

    def step(self, topology: Topology, now: float) -> StepReport:
        """One look at the fleet and all that follows from it. Raises JournalError: without a record nothing is done."""
        watch = _StopWatch(self._clock)
        events: list[IncidentEvent] = list(self._hands.finished())
        events += self._hands.recover(now)
        watch.lap("recover")
        window = self._observer.observe(topology, now)
        watch.lap("observe")
        detection = self._minds.detect(window)
        watch.lap("detect")
        standing = self._journal.standing()
        under_repair = frozenset(e for incident in standing if under_way(incident) for e in touched_by(topology, incident))
        diagnoses = self._minds.diagnose(window, detection, under_repair)
        watch.lap("diagnose")
        state = self._state(window, topology, now)
        blind = frozenset(Entity.engine(name) for name in state.blind)
        news = track(standing, diagnoses, now, self._minds.tracking, blind)
        for event in news:
            self._write(event, events)
        if news:
            state = self._state(window, topology, now)
        watch.lap("track")
        for incident in self._journal.incidents(open_only=True):
            if not self._hands.busy(incident.id):
                state = self._carry_on(incident, state, events)
        open_ones = self._journal.incidents(open_only=True)
        watch.lap("act")
        escalated = sum(incident.state is IncidentState.ESCALATED for incident in standing)
        return StepReport(window, detection, diagnoses, state, open_ones, escalated, tuple(events), watch.laps)

    def follow(self, topology: Topology, now: float) -> Window:
        """Only look: what somebody who may lead at the next step must have seen by then. Writes and changes nothing."""
        return self._observer.observe(topology, now)

    def _state(self, window: Window, topology: Topology, now: float) -> FleetState:
        policy = self._minds.policy
        longest = max(policy.breaker.span + policy.breaker.open_for, policy.ineffective_span, policy.cool_down, 3_600.0)
        recent = self._journal.incidents(since=now - longest)
        return fleet_state(window, topology, recent, policy, self._switches(), now=now)

    def _switches(self) -> Switches:
        try:
            pause = self._journal.switch(PAUSE)
        except JournalError:
            return Switches(paused=None)
        return Switches(paused=pause.on, paused_by=pause.by, opted_out=self._opted_out())

    def _carry_on(self, incident: Incident, state: FleetState, events: list[IncidentEvent]) -> FleetState:
        """Bring one incident as far as this moment allows; returns the state with all that changed."""
        for _ in range(ACTIONS_PER_STEP):
            incident, state = self._settle(incident, state, events)
            if incident.ended:
                return state
            runbook = self._runbook(incident)
            decision = decide(incident, runbook, state, self._minds.policy, self._specs, now=state.now)
            # A rollback goes on although its runbook was taken away meanwhile: what was changed must be undone.
            name = runbook.name if runbook is not None else incident.runbook
            if decision.verdict is not Verdict.ACT or name is None:
                return self._stand(incident, decision, state, events)
            attempt = _attempt(incident, decision)
            done = self._hands.perform(incident, decision, attempt=attempt, runbook=name, now=state.now)
            events.extend(done)
            incident = self._journal.incident(incident.id) or incident
            state = state.with_incidents([incident])
            if not done or incident.ended or self._hands.busy(incident.id):
                return state
        return state

    def _settle(self, incident: Incident, state: FleetState, events: list[IncidentEvent]) -> tuple[Incident, FleetState]:
        """Write what follows without any action: steps that are over, a rollback or a verification that begins or ends."""
        runbook = self._runbook(incident)
        while not incident.ended:
            event = advance(incident, runbook, state, self._specs, now=state.now)
            if event is None:
                break
            if isinstance(event, Ended):
                event = replace(event, cost=cost_to_users(incident, state))
            incident = self._write_to(incident, event, events)
            state = state.with_incidents([incident])
        return incident, state

    def _stand(self, incident: Incident, decision: Decision, state: FleetState, events: list[IncidentEvent]) -> FleetState:
        """Record a decision not to act, and what it leads to: a question to people, or the incident's end."""
        now = state.now
        if decision.reason is Reason.NEEDS_APPROVAL and not waits_for_answer(incident, state):
            expires = now + self._minds.policy.approval_expiry
            incident = self._write_to(incident, ApprovalAsked(incident.id, now, expires, decision.says), events)
        if _is_news(decision, incident.decision):
            incident = self._write_to(incident, Decided(incident.id, now, decision), events)
        ending = ending_of(incident, decision)
        if ending is not None:
            ended = Ended(incident.id, now, *ending, decision.says, cost_to_users(incident, state))
            incident = self._write_to(incident, ended, events)
        return state.with_incidents([incident])

    def _runbook(self, incident: Incident) -> Runbook | None:
        """The runbook of the attempt under way, by its name; else the one for the cause."""
        if incident.runbook is not None and incident.state is not IncidentState.OPEN:
            return next((book for book in self._minds.runbooks.values() if book.name == incident.runbook), None)
        return self._minds.runbooks.get(incident.cause)

    def _write_to(self, incident: Incident, event: IncidentEvent, events: list[IncidentEvent]) -> Incident:
        self._write(event, events)
        return apply(incident, event)

    def _write(self, event: IncidentEvent, events: list[IncidentEvent]) -> None:
        self._journal.append(event)
        events.append(event)


class _StopWatch:
    """How long each stage took; the clock is read for measuring only, never for judging."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last = clock.monotonic()
        self.laps: dict[str, float] = {}

    def lap(self, stage: str) -> None:
        """The stage that ends now took the time since the last one."""
        now = self._clock.monotonic()
        self.laps[stage] = now - self._last
        self._last = now


def _attempt(incident: Incident, decision: Decision) -> int:
    """The attempt that the decision's action belongs to: the one under way, or the next."""
    goes_on = incident.state is IncidentState.ACTING or decision.reason is Reason.ROLLBACK_DUE
    return incident.attempt if goes_on else incident.attempt + 1


def _is_news(decision: Decision, before: Decision | None) -> bool:
    """Whether a decision differs from the one before it in more than its numbers, which change at every step."""
    if before is None:
        return True
    return (decision.verdict, decision.reason, decision.step, decision.action) != (
        before.verdict,
        before.reason,
        before.step,
        before.action,
    )
