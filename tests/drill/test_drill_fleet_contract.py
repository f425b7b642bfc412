"""The contract of the port: every fleet behind it is held to the same."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from scripted_fleet import ScriptedFleet

from agent import status
from agent.drill.fleet import DrillFleet, InjectionError
from agent.drill.local import LocalDrillFleet
from agent.drill.virtual import VirtualDrillFleet
from agent.journal.port import Note
from agent.journal.stored import open_journal
from agent.scoreboard.trial import FleetSize
from runbooks.drill import FaultOrder, FleetKind
from serving.clock import SystemClock
from serving.engines.local import LocalEngines
from serving.engines.specs import EngineKind, EngineSpec
from serving.faults.faults import Faults
from serving.fleet.entity import Entity, EntityKind
from serving.fleet.fleet_file import EngineEntry, FleetFile

CLOCK = SystemClock()


@pytest.fixture
def local(tmp_path: Path) -> Iterator[DrillFleet]:
    """A state directory as `up` and a warden leave it, with a sleeping program as its engine."""
    engines = LocalEngines(tmp_path, CLOCK)
    command = (sys.executable, "-S", "-c", "import time\nwhile True: time.sleep(60)")
    engines.add(EngineSpec(name="one", kind=EngineKind.PROGRAM, command=command, port=9, model="sim"))
    engines.start("one")
    FleetFile(fleet="local", cell="local", engines=[EngineEntry(name="one", url="http://127.0.0.1:9", model="sim")]).dump(
        tmp_path / "fleet.yaml"
    )
    open_journal(tmp_path / "journal.sqlite").close()
    row = dict.fromkeys(status.EngineRow.model_fields, None) | {"engine": "one", "model": "sim", "state": "serving"}
    seen = status.FleetStatus(
        at=CLOCK.now(), fleet="local", autonomy="auto", paused="", breaker="",
        engines=[status.EngineRow.model_validate(row)], incidents=[], sources=[],
    )  # fmt: skip
    status.write(seen, tmp_path)
    fleet = LocalDrillFleet(tmp_path, CLOCK)
    yield fleet
    fleet.close()
    Faults(tmp_path, engines, CLOCK).clear("all")
    engines.stop("one", grace_s=0)


@pytest.fixture(params=["scripted", "local", "virtual"])
def fleet(request: pytest.FixtureRequest) -> DrillFleet:
    makes: dict[str, Callable[[], DrillFleet]] = {
        "scripted": ScriptedFleet,
        "local": lambda: request.getfixturevalue("local"),
        "virtual": lambda: VirtualDrillFleet(FleetSize(3, 1, 1, 1.0, 0, seed=0, warm_up=60.0)),
    }
    return makes[request.param]()


@pytest.fixture
def target(fleet: DrillFleet) -> Entity:
    return fleet.entities(EntityKind.ENGINE)[0]


def test_what_is_seen_is_what_could_be_broken(fleet: DrillFleet) -> None:
    seen = fleet.sight()
    assert [entity.name for entity in fleet.entities(EntityKind.ENGINE)] == [engine.name for engine in seen.engines]
    assert (seen.open, seen.paused, seen.breaker, seen.autonomy) == ((), "", "", "auto")
    assert fleet.kind is (FleetKind.VIRTUAL if isinstance(fleet, VirtualDrillFleet) else FleetKind.SIMULATED)
    assert fleet.entities(EntityKind.RANK) == ()


def test_a_fault_is_on_record_under_its_key_until_it_is_undone_and_undoing_twice_does_no_harm(
    fleet: DrillFleet, target: Entity
) -> None:
    assert not fleet.at_work("key-1")
    fleet.inject("key-1", FaultOrder(fault="api-hang"), target)
    assert fleet.at_work("key-1")
    assert not fleet.at_work("key-2")
    assert fleet.clear("key-1").ok
    assert not fleet.at_work("key-1")
    assert fleet.clear("key-1").ok


def test_a_repair_may_always_touch_what_was_broken(fleet: DrillFleet, target: Entity) -> None:
    assert target in fleet.around(target)


def test_what_was_never_made_is_undone_already(fleet: DrillFleet) -> None:
    assert fleet.clear("never").ok


def test_a_fault_that_does_not_exist_is_refused_and_leaves_nothing(fleet: DrillFleet, target: Entity) -> None:
    with pytest.raises(InjectionError):
        fleet.inject("key-1", FaultOrder(fault="no-such-fault"), target)
    assert not fleet.at_work("key-1")


def test_counts_of_users_never_fall_and_nothing_happened_in_the_future(fleet: DrillFleet) -> None:
    before = fleet.users()
    after = fleet.users()
    assert all(after.results[name] >= count for name, count in before.results.items())
    assert len(after.bounds) == len(after.first_bytes)
    assert fleet.histories(fleet.clock.now() + 60) == ()
    fleet.note(Note(fleet.clock.now(), "drill.started", "a drill"))
