"""A small fleet in memory: windows with the signals that decisions read, and incidents in any state."""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Self

import numpy as np
import pytest

from actuators.action import Action, Outcome, OutcomeStatus, VerbSpec
from actuators.binding import verbs_of
from actuators.door import DoorActuator
from actuators.engine_http import EngineHttpActuator
from actuators.process import ProcessActuator
from agent.decision.decide import decide
from agent.decision.decision import Decision
from agent.decision.policy import Grant, Policy
from agent.decision.state import FleetState, Switches, fleet_state
from agent.diagnosis.catalogue import load_catalogue
from agent.diagnosis.diagnosis import Diagnosis
from agent.incident import (
    AttemptStarted,
    Ended,
    Ending,
    Finished,
    Incident,
    IncidentState,
    Intended,
    Opened,
    StepPassed,
    apply,
    fold,
)
from runbooks.loader import RunbookLibrary, load_library
from runbooks.runbook import Autonomy, Runbook
from serving.fleet.entity import Entity, EntityKind
from serving.fleet.topology import EngineFacts, Relation, Topology
from serving.telemetry.columns import Floats, HistogramMatrix, SignalMatrix
from serving.telemetry.window import Window

NOW = 1_800_000_000.0
SPAN, TICK = 120.0, 2.0
BOUNDS = np.array([0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, np.inf])

AUTO = Policy(grants=[Grant(autonomy=Autonomy.AUTO)])
UNTOUCHED = Switches()


class Fleet:
    """Engines sim-0, sim-1, ... of one model, and the window of them at `now`; set rows, then build."""

    def __init__(self, size: int, now: float = NOW, zones: Sequence[str] = ()) -> None:
        self.names = [f"sim-{number}" for number in range(size)]
        relations = [
            (Entity.engine(name), Relation.MEMBER_OF, Entity(EntityKind.ZONE, zone))
            for name, zone in zip(self.names, zones, strict=False)
        ]
        facts = [EngineFacts(name, f"http://127.0.0.1/{name}", "m") for name in self.names]
        self.topology = Topology(facts, relations)
        self.now = now
        self.rows: dict[str, Floats] = {}
        self.latency: dict[str, tuple[Floats, Floats]] = {}
        self.silent: set[int] = set()
        for signal, value in {"scrape.up": 1.0, "door.drained": 0.0, "door.ejected": 0.0, "door.in_flight": 1.0}.items():
            self.set(signal, value)
        for signal in ("engine.running", "engine.waiting", "engine.kv_usage"):
            self.set(signal, 0.0)
        self.count("door.started", 1.0)
        self.count("door.finished.ok", 1.0)
        self.observe("door.ttft", 1.0, 0.08)
        self.observe("engine.inter_token", 10.0, 0.02)

    @property
    def times(self) -> Floats:
        return np.arange(self.now - SPAN, self.now + TICK / 2, TICK)

    def set(self, signal: str, value: float, engine: int | None = None, *, last: float | None = None) -> Self:
        """Hold a gauge at `value`: for all engines or one, for the whole window or its `last` seconds."""
        rows = self.rows.setdefault(signal, np.full((len(self.names), len(self.times)), np.nan))
        columns = self.times >= self.now - (SPAN if last is None else last)
        rows[slice(None) if engine is None else engine, columns] = value
        return self

    def count(self, signal: str, rate: float, engine: int | None = None) -> Self:
        """Let a counter grow by `rate` a second."""
        rows = self.rows.setdefault(signal, np.full((len(self.names), len(self.times)), np.nan))
        rows[slice(None) if engine is None else engine] = (self.times - self.times[0]) * rate
        return self

    def observe(self, histogram: str, rate: float, seconds: float, engine: int | None = None) -> Self:
        """Let a histogram observe `seconds`, `rate` times a second."""
        rates, values = self.latency.setdefault(histogram, (np.zeros(len(self.names)), np.zeros(len(self.names))))
        chosen = slice(None) if engine is None else engine
        rates[chosen], values[chosen] = rate, seconds
        return self

    def silence(self, engine: int) -> Self:
        """Nothing at all is known of an engine."""
        self.silent.add(engine)
        return self

    def window(self) -> Window:
        taken = np.tile(self.times, (len(self.names), 1))
        signals = {}
        for name, values in self.rows.items():
            held = values.copy()
            held[sorted(self.silent)] = np.nan
            signals[name] = SignalMatrix(held, taken)
        histograms = {}
        for name, (rates, values) in self.latency.items():
            grown = np.floor(np.outer(rates, self.times - self.times[0]))
            counts = grown[:, :, None] * (values[:, None] <= BOUNDS)[:, None, :]
            histograms[name] = HistogramMatrix(BOUNDS, counts, grown * values[:, None], taken)
        return Window(self.now, self.topology, self.times, MappingProxyType(signals), MappingProxyType(histograms))

    def state(
        self, incidents: Iterable[Incident] | None = (), policy: Policy | None = None, switches: Switches = UNTOUCHED
    ) -> FleetState:
        return fleet_state(self.window(), self.topology, incidents, policy or AUTO, switches, now=self.now)


def diagnosis(cause: str, engine: str = "sim-0", score: float = 0.9, **more: object) -> Diagnosis:
    entity = Entity.parse(engine) if "/" in engine else Entity.engine(engine)
    return Diagnosis(cause, entity, score, NOW - 30.0, (), **more)  # type: ignore[arg-type]


def opened(cause: str, engine: str = "sim-0", name: str = "i-1", at: float = NOW - 20.0, **more: object) -> Incident:
    return fold([Opened(name, at, diagnosis(cause, engine, **more))])  # type: ignore[arg-type]


def did(
    incident: Incident,
    step: str,
    verb: str,
    status: OutcomeStatus | None = OutcomeStatus.DONE,
    at: float = NOW - 10.0,
    before: Mapping[str, object] | None = None,
    after: Mapping[str, object] | None = None,
    *,
    permanent: bool = False,
    arguments: Mapping[str, object] | None = None,
) -> Incident:
    """The incident after one more operation of its present attempt; status None: only intended."""
    key = f"{incident.id}/{incident.attempt}/{step}/{len(incident.operations)}"
    action = Action(verb, incident.entity, MappingProxyType(dict(arguments or {})))  # type: ignore[arg-type]
    incident = apply(incident, Intended(incident.id, at, key, step, incident.attempt, action))
    if status is None:
        return incident
    outcome = Outcome(status, "as told", before or {"drained": False}, after or {"drained": True}, permanent=permanent)  # type: ignore[arg-type]
    return apply(incident, Finished(incident.id, at, key, outcome))


def begun(incident: Incident, runbook: str, attempt: int = 1, at: float = NOW - 15.0) -> Incident:
    return apply(incident, AttemptStarted(incident.id, at, attempt, runbook))


class World:
    """What the tests of decisions build on: fleets, incidents, the real verbs, the shipped runbooks."""

    now = NOW
    auto = AUTO

    def __init__(self) -> None:
        kinds = (DoorActuator, EngineHttpActuator, ProcessActuator)
        self.specs: Mapping[str, VerbSpec] = {name: spec for kind in kinds for name, spec in verbs_of(kind).items()}
        self.library: RunbookLibrary = load_library(self.specs, load_catalogue().names)

    fleet = Fleet
    diagnosis = staticmethod(diagnosis)
    opened = staticmethod(opened)
    begun = staticmethod(begun)
    did = staticmethod(did)

    def passed(self, incident: Incident, *steps: str, at: float = NOW - 5.0) -> Incident:
        """The incident after `steps` are over."""
        for step in steps:
            incident = apply(incident, StepPassed(incident.id, at, step, "over"))
        return incident

    def ended(
        self,
        incident: Incident,
        at: float,
        ending: Ending = Ending.REPAIRED,
        state: IncidentState = IncidentState.RESOLVED,
    ) -> Incident:
        """The incident after its end."""
        return apply(incident, Ended(incident.id, at, state, ending, "over"))

    def repaired(self, incident: Incident, at: float) -> Incident:
        """The incident after a restart that helped."""
        restarted = did(begun(incident, "engine-hung", at=at - 20), "restart", "process.restart", at=at - 10)
        return self.ended(restarted, at)

    def given_up(self, incident: Incident, at: float) -> Incident:
        """The incident after a restart that did not help."""
        restarted = did(begun(incident, "engine-hung", at=at - 20), "restart", "process.restart", at=at - 10)
        return self.ended(restarted, at, Ending.GAVE_UP, IncidentState.ESCALATED)

    def decided(
        self,
        fleet: Fleet,
        incident: Incident,
        *others: Incident,
        policy: Policy = AUTO,
        switches: Switches = UNTOUCHED,
        runbook: Runbook | str | None = "shipped",
    ) -> Decision:
        """What is decided for an incident that the state knows, together with other incidents."""
        state = fleet.state([incident, *others], policy, switches)
        book = self.library.for_cause(incident.cause) if isinstance(runbook, str) else runbook
        return decide(incident, book, state, policy, self.specs, now=state.now)


@pytest.fixture(scope="session")
def world() -> World:
    return World()
