"""Benches of the contract suite: every actuator with live targets, by name."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

import pytest
import requests
from actuator_contract import Bench, Snapshot
from in_background import in_background
from live_targets import DOOR_TARGETS, FakeDoor, FakeEngine, door_actions, serving

from actuators.action import Action, VerbSpec
from actuators.door import DoorActuator
from actuators.engine_http import EngineHttpActuator
from actuators.process import ProcessActuator
from actuators.registry import ActuatorRegistry
from actuators.scripted import ScriptedActuator, ScriptedVerb, ScriptedWorld
from serving.clock import FakeClock
from serving.engines import local
from serving.engines.local import LocalEngines
from serving.engines.specs import EngineKind, EngineSpec
from serving.fleet.entity import Entity
from serving.fleet.topology import EngineFacts, Topology
from serving.gateway.orders import Orders, Standing
from serving.gateway.server import DoorSettings, running_door

TOKEN = "for tests"  # noqa: S105 - opens a door that lives as long as a test
PERSONS_DRAIN = {"sim-2": Standing(drained_by="ana")}


@contextmanager
def scripted_bench() -> Iterator[Bench]:
    verbs = (
        ScriptedVerb(VerbSpec("door.drain", "", {}, undo="door.undrain", takes_capacity=True), {"drained": True}),
        ScriptedVerb(VerbSpec("door.undrain", "", {}, undo="door.drain", recovery=True), {"drained": False}),
        ScriptedVerb(VerbSpec("door.set_weight", "", {"weight": (float, ...)}, undo="door.set_weight")),
    )
    world = ScriptedWorld({target: {"drained": False, "weight": 1.0} for target in DOOR_TARGETS})
    yield Bench(
        ScriptedActuator(verbs, world),
        door_actions()[:-1],
        lambda: {str(t): dict(s) for t, s in sorted(world.state.items())},
    )


@contextmanager
def real_door_bench() -> Iterator[Bench]:
    topology = Topology([EngineFacts(t.name, "http://127.0.0.1:1", "m") for t in DOOR_TARGETS])
    with in_background(running_door(topology, DoorSettings(admin_token=TOKEN, grace_s=0))) as door:
        door.pool.orders = Orders(PERSONS_DRAIN)

        def snapshot() -> Snapshot:
            answer = requests.get(f"{door.admin_url}/admin/engines", headers={"Authorization": f"Bearer {TOKEN}"}, timeout=5)
            return {row["name"]: row for row in answer.json()}

        yield Bench(DoorActuator(door.admin_url, TOKEN), door_actions(), snapshot)


@contextmanager
def fake_door_bench() -> Iterator[Bench]:
    door = FakeDoor(Orders(PERSONS_DRAIN))
    with in_background(serving(door.handle)) as url:
        registry = ActuatorRegistry([DoorActuator(url)])
        yield Bench(registry, door_actions(), lambda: {name: door.orders.standing(name) for name in door.engines})


@contextmanager
def engine_bench() -> Iterator[Bench]:
    engines = {"sim-0": FakeEngine(), "sim-1": FakeEngine(paused=True), "sim-2": FakeEngine(development=False)}
    with ExitStack() as stack:
        urls = {name: stack.enter_context(in_background(serving(engine.handle))) for name, engine in engines.items()}
        actuator = EngineHttpActuator(lambda name: EngineFacts(name, urls[name], "m"))
        targets = [Entity.engine(name) for name in (*engines, "nobody")]
        actions = tuple(Action(verb, target) for target in targets for verb in actuator.verbs)
        yield Bench(actuator, actions, lambda: {name: engine.paused for name, engine in engines.items()})


@contextmanager
def process_bench() -> Iterator[Bench]:
    """Real processes that only sleep. Between examples an hour passes, so that the back-off lets go."""
    command = (sys.executable, "-S", "-c", "import time\nwhile True: time.sleep(60)")
    clock = FakeClock()
    with TemporaryDirectory() as folder, mock.patch.object(local, "EARLY_EXIT_S", 0.02):
        engines = LocalEngines(Path(folder), clock)
        for name in ("one", "two"):
            engines.add(EngineSpec(name=name, kind=EngineKind.PROGRAM, command=command, port=9, model="none"))
            engines.start(name)

        def snapshot() -> Snapshot:
            states = {name: engines.state(name) for name in ("one", "two")}
            return {"pids": {n: s.pid for n, s in states.items()}, "status": {n: s.status for n, s in states.items()}}

        targets = [Entity.engine(name) for name in ("one", "two", "nobody")]
        actions = [Action("process.restart", target, {"grace_s": 0}) for target in targets]
        actions += [Action("process.kill_orphans", target) for target in targets]
        yield Bench(
            ProcessActuator(engines, clock),
            tuple(actions),
            snapshot,
            lasting=frozenset({"status"}),
            unforeseen=frozenset({"pid", "restarts"}),
            refresh=lambda: clock.advance(3600),
            examples=8,
        )
        for name in ("one", "two"):
            engines.stop(name, grace_s=0)


BENCHES = {
    "scripted": scripted_bench,
    "real door": real_door_bench,
    "fake door": fake_door_bench,
    "engine": engine_bench,
    "process": process_bench,
}


@pytest.fixture(scope="module", params=BENCHES)
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    """Each actuator in turn, over targets that live as long as the test module."""
    with BENCHES[request.param]() as made:
        yield made
