"""Drills on a fleet in virtual time: every shipped one, with the warden's own loop, and what becomes of their faults."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from agent.cli.drill import app
from agent.cli.drill_places import every_verb, known
from agent.drill.card import Card, Verdict
from agent.drill.fleet import DrillFleetError, InjectionError
from agent.drill.runner import Means, run_drill
from agent.drill.store import DrillStore, RunRecord
from agent.drill.virtual import USUAL, VirtualDrillFleet
from runbooks.drill import Drill, FaultOrder, FleetKind
from runbooks.drill_loader import load_drills
from serving.faults.catalogue import catalogue
from serving.fleet.entity import Entity, EntityKind
from serving.virtual.faults.naming import LOCAL, meant

SHIPPED = {name: loaded.drill for name, loaded in load_drills(known()).items()}
SEEDS = (0, 1)
SMALL = replace(USUAL, engines=3, warm_up=60.0)


def run(drill: Drill, fleet: VirtualDrillFleet, directory: Path, seed: int = 0) -> tuple[Card, list[str]]:
    said: list[str] = []
    return run_drill(drill, fleet, Means(DrillStore(directory), every_verb(), said.append), seed), said


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", SHIPPED)
def test_every_shipped_drill_comes_out_right(name: str, seed: int, tmp_path: Path) -> None:
    drill = SHIPPED[name]
    assert FleetKind.VIRTUAL in drill.fleet.kinds
    fleet = VirtualDrillFleet(replace(USUAL, engines=drill.fleet.engines_at_most or USUAL.engines, seed=seed))
    card, said = run(drill, fleet, tmp_path, seed)
    assert fleet.failures == {}
    assert card.undone
    assert (card.verdict, card.reasons) == (Verdict.PASSED, []), said
    assert card.fleet is FleetKind.VIRTUAL
    assert [row.cause for row in card.incidents] == [each.cause for each in drill.expect.incidents]


def test_one_slow_gpu_of_two_is_named_and_its_engine_taken_out(tmp_path: Path) -> None:
    fleet = VirtualDrillFleet(replace(USUAL, engines=12, tp=2))
    card, said = run(SHIPPED["slow-gpu"], fleet, tmp_path)
    assert card.verdict is Verdict.PASSED, (card.reasons, said)
    assert {engine.state for engine in fleet.sight().engines} == {"serving"}  # people put it back at the undo


def test_the_same_seed_gives_the_same_course(tmp_path: Path) -> None:
    first, second = (run(SHIPPED["engine-kill"], VirtualDrillFleet(USUAL), tmp_path) for _ in range(2))
    assert first[1] == second[1]
    assert first[0].model_copy(update={"run": "", "faults": []}) == second[0].model_copy(update={"run": "", "faults": []})


def test_sleeping_lets_the_fleet_live_and_the_warden_look() -> None:
    fleet = VirtualDrillFleet(SMALL)
    before, users = fleet.sight().at, fleet.users().results["ok"]
    fleet.clock.sleep(30.0)
    assert 25.0 <= fleet.sight().at - before <= 30.0
    assert fleet.users().results["ok"] > users


def test_what_a_repair_may_touch_depends_on_what_is_broken() -> None:
    fleet = VirtualDrillFleet(replace(USUAL, engines=2, tp=2, warm_up=60.0))
    gpu, node = (fleet.entities(kind)[0] for kind in (EntityKind.GPU, EntityKind.NODE))
    engines = fleet.entities(EntityKind.ENGINE)
    assert fleet.around(gpu) == {gpu, node, engines[0]}
    assert fleet.around(node) == {node, *fleet.entities(EntityKind.GPU), *engines}
    assert fleet.around(engines[0]) == {engines[0]}
    model = fleet.entities(EntityKind.MODEL)[0]
    assert fleet.around(model) == {model}


def test_a_fault_on_what_cannot_have_it_is_refused_and_leaves_nothing() -> None:
    fleet = VirtualDrillFleet(replace(SMALL, experts=0))
    engine, gpu = fleet.entities(EntityKind.ENGINE)[0], fleet.entities(EntityKind.GPU)[0]
    for order, target in (
        (FaultOrder(fault="hot-expert"), engine),
        (FaultOrder(fault="engine-hang"), gpu),
        (FaultOrder(fault="engine-hang", parameters={"hard": 1}), engine),
        (FaultOrder(fault="engine-hang"), Entity.engine("nobody")),
    ):
        with pytest.raises(InjectionError):
            fleet.inject("key", order, target)
        assert not fleet.at_work("key")


def test_a_load_ends_by_itself_and_its_undo_does_no_harm() -> None:
    fleet = VirtualDrillFleet(SMALL)
    engine = fleet.entities(EntityKind.ENGINE)[0]

    def inside() -> float:
        seen = next(each for each in fleet.sight().engines if each.name == engine.name)
        assert seen.in_flight is not None
        return seen.in_flight

    fleet.inject("key", FaultOrder(fault="mass-cancel", parameters={"rps": 4, "seconds": 20}), engine)
    fleet.clock.sleep(20.0)
    full = inside()
    fleet.clock.sleep(10.0)
    assert full > 30
    assert inside() < full / 2
    assert fleet.clear("key").ok


def test_what_was_broken_on_real_engines_is_not_forgotten_by_a_drill_in_virtual_time(tmp_path: Path) -> None:
    store = DrillStore(tmp_path)
    store.begin(RunRecord(run="r-1", drill=SHIPPED["engine-hang"], fleet=FleetKind.SIMULATED, began_at=0.0, faults=()))
    with pytest.raises(DrillFleetError, match="drill recover"):
        run(SHIPPED["engine-hang"], VirtualDrillFleet(SMALL), tmp_path)
    assert store.under_way() is not None


def test_every_local_fault_has_a_name_in_virtual_time_with_the_same_parameters() -> None:
    for name, fault in catalogue().items():
        on = EntityKind.GATEWAY if name == "surge" else EntityKind.ENGINE
        assert meant(name, {}, on).kind.on in {EntityKind.ENGINE, EntityKind.MODEL}
        assert not fault.parameters or name in LOCAL
    assert set(LOCAL) <= set(catalogue())


@given(share=st.floats(0.05, 0.95))
@settings(max_examples=20)
def test_a_worker_stopped_for_a_share_of_the_time_is_as_much_slower(share: float) -> None:
    slow = meant("slow-worker", {"share": share}, EntityKind.ENGINE)
    assert slow.parameters["factor"] * (1.0 - share) == pytest.approx(1.0)


def test_parameters_are_the_local_ones_where_both_could_be_meant_and_else_those_of_virtual_time() -> None:
    assert meant("surge", {"rps": 20.0, "seconds": 90.0}, EntityKind.GATEWAY).ends_after == 90.0
    assert meant("surge", {"times": 10.0}, EntityKind.MODEL).parameters == {"times": 10.0}
    assert meant("surge", {"times": 10.0}, EntityKind.MODEL).ends_after is None


def test_the_command_runs_one_and_keeps_its_card_with_the_others(tmp_path: Path) -> None:
    runner = CliRunner()
    done = runner.invoke(
        app, ["run", "memory-vampire", "--virtual", "--engines", "4", "--state-dir", str(tmp_path), "--json"]
    )
    assert done.exit_code == 0, done.output
    card = json.loads(done.stdout)
    assert (card["fleet"], card["verdict"]) == ("virtual", "passed")
    assert "gpu.memory_vampire on gpu/" in done.stderr
    told = json.loads(runner.invoke(app, ["history", "--state-dir", str(tmp_path), "--json"]).stdout)
    assert told == [card]
    assert "passed (virtual)" in runner.invoke(app, ["history", "--state-dir", str(tmp_path)]).stdout


def test_engines_are_only_counted_for_a_fleet_in_virtual_time(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["run", "engine-hang", "--engines", "4", "--state-dir", str(tmp_path)])
    assert done.exit_code == 2
    assert "--virtual" in done.stderr
