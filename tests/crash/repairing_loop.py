"""The real loop with the shipped runbook for a hung engine, over a scripted world that its telemetry is made from."""

from types import MappingProxyType
from typing import Any

import numpy as np
from walked_warden import PERSISTENT

from actuators.binding import verbs_of
from actuators.door import DoorActuator
from actuators.engine_http import EngineHttpActuator
from actuators.process import ProcessActuator
from actuators.scripted import ScriptedActuator, ScriptedVerb, ScriptedWorld
from agent.act import Executor
from agent.decision.policy import Grant, Policy
from agent.diagnosis.catalogue import load_catalogue
from agent.diagnosis.diagnosis import Diagnosis
from agent.hands import Hands
from agent.loop import Loop, Minds
from detectors.catalogue import Detection
from detectors.finding import Finding, Symptom
from runbooks.loader import load_library
from runbooks.runbook import Autonomy
from serving.clock import FakeClock
from serving.fleet.entity import Entity
from serving.fleet.topology import EngineFacts, Topology
from serving.telemetry.columns import Floats, HistogramMatrix, SignalMatrix
from serving.telemetry.window import Window

NAMES = [f"sim-{number}" for number in range(4)]
TARGET = Entity.engine("sim-1")
TOPOLOGY = Topology([EngineFacts(name, f"http://127.0.0.1/{name}", "m") for name in NAMES])
SPAN_S, TICK_S = 120.0, 2.0
DEADLINE_S = 60.0  # of real time, generous: only a hang ends here
BOUNDS = np.array([0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, np.inf])

SPECS = {name: spec for kind in (DoorActuator, EngineHttpActuator, ProcessActuator) for name, spec in verbs_of(kind).items()}
SCRIPTS = (
    ScriptedVerb(SPECS["engine.canary"], needs={"answers": True}),
    ScriptedVerb(SPECS["door.drain"], {"drained": True}),
    ScriptedVerb(SPECS["door.undrain"], {"drained": False}),
    ScriptedVerb(SPECS["process.restart"], {"answers": True, "restarted": True}, needs={"startable": True}),
)
RUNBOOKS = {cause: loaded.runbook for cause, loaded in load_library(SPECS, load_catalogue().names).by_cause.items()}
POLICY = Policy(grants=[Grant(autonomy=Autonomy.AUTO)])


def new_world(*, startable: bool) -> ScriptedWorld:
    """An engine that hangs; `startable`: a restart would help."""
    return ScriptedWorld(state={TARGET: {"answers": False, "drained": False, "restarted": False, "startable": startable}})


class Telemetry:
    """What would be measured of the world at a moment: every engine up and serving, but for what the world says of one."""

    def __init__(self, world: ScriptedWorld) -> None:
        self._world = world

    def observe(self, topology: Topology, now: float) -> Window:
        times = np.arange(now - SPAN_S, now + TICK_S / 2, TICK_S)
        taken = np.tile(times, (len(NAMES), 1))
        counted = np.tile(times - 1_700_000_000.0, (len(NAMES), 1))
        drained = np.zeros_like(taken)
        drained[NAMES.index(TARGET.name)] = float(bool(self._world.facts(TARGET)["drained"]))
        rows = {
            "scrape.up": np.ones_like(taken),
            "door.drained": drained,
            "door.ejected": np.zeros_like(taken),
            "door.started": counted,
            "door.finished.ok": counted,
        }
        signals = {name: SignalMatrix(values, taken) for name, values in rows.items()}
        histograms = {"door.ttft": _fast(counted, taken)}
        return Window(now, topology, times, MappingProxyType(signals), MappingProxyType(histograms))


def _fast(counted: Floats, taken: Floats) -> HistogramMatrix:
    counts = np.repeat(np.floor(counted)[:, :, None], len(BOUNDS), axis=2)
    counts[:, :, 0] = 0.0
    return HistogramMatrix(BOUNDS, counts, counted * 0.08, taken)


class RealWarden:
    """The real loop over scripted telemetry and a scripted world, until its incident has ended."""

    def __init__(self, journal: Any, world: ScriptedWorld, clock: FakeClock) -> None:
        self._journal, self._world, self._clock = journal, world, clock
        actuator = ScriptedActuator(SCRIPTS, world)
        minds = Minds(lambda _window: Detection((), ()), self._diagnose, RUNBOOKS, POLICY)
        self._hands = Hands(Executor(journal, actuator, clock, PERSISTENT), moment=DEADLINE_S)  # waits, so runs are alike
        self._loop = Loop(Telemetry(world), minds, journal, actuator, self._hands, clock)

    def run(self, steps: int = 900) -> None:
        """Until the incident has ended."""
        try:
            self._run(steps)
        finally:
            self._hands.close()

    def _run(self, steps: int) -> None:
        for _ in range(steps):
            self._loop.step(TOPOLOGY, self._clock.now())
            incidents = self._journal.incidents()
            if incidents and incidents[0].ended:
                return
            self._clock.advance(TICK_S)
        raise AssertionError(f"the incident did not end in {steps} steps: {self._journal.incidents()}")

    def _diagnose(self, _window: Window, _detection: Detection, _under_repair: object) -> tuple[Diagnosis, ...]:
        if self._world.facts(TARGET)["answers"]:
            return ()
        finding = Finding(Symptom.STEPS_FROZEN, TARGET, 1_800_000_000.0, 0.9)
        return (Diagnosis("engine.hung", TARGET, 0.9, 1_800_000_000.0, (finding,), probe="engine.canary"),)
