"""A drill from its gate to its card, over a scripted fleet on a fake clock."""

from dataclasses import replace
from pathlib import Path

import pytest
from scripted_fleet import DECOY, Life, ScriptedFleet, drill

from agent.cli.runbook import shipped_verbs
from agent.drill.card import Card, Verdict
from agent.drill.fleet import Sight
from agent.drill.recovery import recover
from agent.drill.runner import Means, rehearse, run_drill
from agent.drill.store import KEPT, DrillBusyError, DrillStore
from agent.incident import IncidentState
from runbooks.drill import Drill
from serving.fleet.entity import Entity

VERBS = shipped_verbs()


@pytest.fixture
def store(tmp_path: Path) -> DrillStore:
    return DrillStore(tmp_path)


def run(fleet: ScriptedFleet, store: DrillStore, which: Drill | None = None, seed: int = 0) -> Card:
    return run_drill(which or drill(), fleet, Means(store, VERBS, lambda _line: None), seed)


def test_a_repair_as_expected_passes_with_its_times(store: DrillStore) -> None:
    fleet = ScriptedFleet()
    card = run(fleet, store)
    assert (card.verdict, card.reasons) == (Verdict.PASSED, [])
    (row,) = card.incidents
    assert (row.detected_after, row.isolated_after, row.recovered_after) == (10.0, 21.0, 60.0)
    assert (row.first_action, row.first_action_right, row.cause_right) == ("door.drain", True, True)
    assert fleet.log[-1] == "clear"
    assert fleet.on_record == {}
    assert store.under_way() is None
    assert store.history()[0] == (card,)
    assert [note.kind for note in fleet.notes] == ["drill.started", "drill.finished"]


@pytest.mark.parametrize(
    ("life", "reason"),
    [
        (Life(acts=(("process.restart", "target", 20.0),)), "the first action was process.restart, not door.drain"),
        (Life(opened=70.0, acts=(("door.drain", "target", 80.0),), ended=120.0), "opened after 70 s, not within 45 s"),
        (Life(ended=260.0), "resolved after 260 s, not within 240 s"),
        (Life(state=IncidentState.ESCALATED), "it is escalated (as scripted), not resolved"),
        (Life(cause="engine.slow", acts=(), ended=None), "is taken for engine.slow"),
        (Life(acts=(("door.drain", "engine/sim-9", 20.0),)), "door.drain was done to engine/sim-9, which needed no repair"),
    ],
)
def test_what_the_warden_does_otherwise_fails_with_its_reason(store: DrillStore, life: Life, reason: str) -> None:
    card = run(ScriptedFleet((life,)), store)
    assert card.verdict is Verdict.FAILED
    assert any(reason in each for each in card.reasons), card.reasons
    assert card.undone


def test_nothing_found_fails_after_the_whole_watch(store: DrillStore) -> None:
    fleet = ScriptedFleet(())
    card = run(fleet, store)
    assert card.verdict is Verdict.FAILED
    assert "no incident engine.hung on" in card.reasons[0]
    assert card.ended_at - (card.injected_at or 0.0) >= 300


def test_a_wrong_first_guess_that_is_mended_before_anything_is_done_is_told_and_no_failure(store: DrillStore) -> None:
    card = run(ScriptedFleet((Life(first_cause="engine.slow"),)), store)
    assert card.verdict is Verdict.PASSED
    assert (card.incidents[0].first_cause, card.incidents[0].cause) == ("engine.slow", "engine.hung")


@pytest.mark.parametrize("on", ["engine/sim-9", "model/sim"])
def test_a_real_incident_calls_it_off_at_once(store: DrillStore, on: str) -> None:
    fleet = ScriptedFleet((Life(ended=None), Life(cause="engine.dead", on=on, opened=30.0, acts=(), ended=None, id="i-2")))
    card = run(fleet, store)
    assert card.verdict is Verdict.ABORTED
    assert "a real incident: engine.dead" in card.reasons[0]
    assert card.ended_at - (card.injected_at or 0.0) <= 32
    assert fleet.on_record == {}


def test_an_abort_condition_calls_it_off(store: DrillStore) -> None:
    fleet = ScriptedFleet((Life(ended=None),))
    fleet.failing_per_s = 5.0
    card = run(fleet, store)
    assert card.verdict is Verdict.ABORTED
    assert card.reasons[0].startswith("too many users fail: `failed > 50.0` is true")
    assert fleet.on_record == {}


def test_damage_beyond_the_blast_radius_calls_it_off(store: DrillStore) -> None:
    fleet = ScriptedFleet((Life(ended=None),))

    def spread() -> None:
        if fleet.began is not None and fleet.clock.now() > fleet.began + 20:
            fleet.engine("sim-0", "down")
            fleet.engine("sim-1", "down")

    fleet.always = spread
    card = run(fleet, store)
    assert card.verdict is Verdict.ABORTED
    assert "2 engines are out of service" in card.reasons[0]


def test_a_warden_that_stops_looking_calls_it_off(store: DrillStore) -> None:
    fleet = ScriptedFleet((Life(ended=None),))

    def stop_looking() -> None:
        if fleet.began is not None:
            fleet.frozen_page_at = fleet.began

    fleet.always = stop_looking
    card = run(fleet, store)
    assert card.verdict is Verdict.ABORTED
    assert "the warden has not looked at the fleet for" in card.reasons[0]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda f: f.engine("sim-1", "down"), "not every engine serves: sim-1 is down"),
        (lambda f: setattr(f, "page", replace_page(f, open=("i-7",))), "an incident is open: i-7"),
        (lambda f: setattr(f, "page", replace_page(f, paused="anna")), "the warden is paused"),
        (lambda f: setattr(f, "page", replace_page(f, breaker="open, 3 repairs did not help")), "breaker is open"),
        (lambda f: setattr(f, "page", replace_page(f, autonomy="recommend")), "autonomy is recommend"),
        (lambda f: setattr(f, "frozen_page_at", 0.0), "has not looked at the fleet"),
    ],
)
def test_nothing_is_broken_where_the_fleet_is_not_steady(store: DrillStore, change: object, why: str) -> None:
    fleet = ScriptedFleet()
    change(fleet)  # type: ignore[operator]
    card = run(fleet, store)
    assert card.verdict is Verdict.NOT_STEADY
    assert any(why in each for each in card.reasons), card.reasons
    assert fleet.log == []
    assert store.under_way() is None


def replace_page(fleet: ScriptedFleet, **changes: object) -> Sight:
    return replace(fleet.page, **changes)


def test_nothing_is_broken_beyond_the_headroom(store: DrillStore) -> None:
    lone = drill(fleet={"engines": 1})
    card = run(ScriptedFleet(engines=1), store, lone)
    assert card.verdict is Verdict.NOT_STEADY
    assert "100% of what serves sim would be hit" in card.reasons[0]
    allowed = drill(fleet={"engines": 1}, blast_radius={"engines": 1, "share": 1.0})
    assert run(ScriptedFleet(engines=1), store, allowed).verdict is Verdict.PASSED


def test_a_decoy_passes_when_nothing_is_repaired_and_fails_when_something_is(store: DrillStore) -> None:
    told = Life(cause="clients.leaving", acts=(), ended=None)
    passed = run(ScriptedFleet((told,)), store, drill(DECOY))
    assert (passed.verdict, passed.decoy) == (Verdict.PASSED, True)
    assert passed.others == [f"clients.leaving on {passed.faults[0].target} (i-1, open)"]
    repaired = Life(cause="clients.leaving", acts=(("door.drain", "target", 20.0),))
    failed = run(ScriptedFleet((repaired,)), store, drill(DECOY))
    assert failed.verdict is Verdict.FAILED
    assert "which needed no repair" in failed.reasons[0]


def test_more_failed_users_than_allowed_fail_it(store: DrillStore) -> None:
    fleet = ScriptedFleet()
    fleet.failing_per_s = 0.5
    card = run(fleet, store)
    assert card.verdict is Verdict.FAILED
    assert "30 user requests failed; at most 20 were allowed" in card.reasons


def test_what_cannot_be_undone_is_told_and_tried_again(store: DrillStore) -> None:
    fleet = ScriptedFleet()
    fleet.refuses_undo = True
    card = run(fleet, store)
    assert (card.verdict, card.undone) == (Verdict.FAILED, False)
    assert store.under_way() is not None
    fleet.refuses_undo = False
    with store.lock():
        again = recover(fleet, store, lambda _line: None)
    assert again is not None
    assert again.undone
    assert fleet.on_record == {}
    assert store.under_way() is None


def test_a_fault_that_cannot_be_made_aborts_and_leaves_nothing(store: DrillStore) -> None:
    fleet = ScriptedFleet()
    fleet.refuses_injection = True
    card = run(fleet, store)
    assert card.verdict is Verdict.ABORTED
    assert "a fault could not be made" in card.reasons[0]
    assert store.under_way() is None


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, RuntimeError])
def test_whatever_ends_the_watch_everything_is_undone_first(store: DrillStore, error: type[BaseException]) -> None:
    fleet = ScriptedFleet((Life(ended=None),))

    def strike() -> None:
        if fleet.began is not None and fleet.clock.now() > fleet.began + 15:
            fleet.always = lambda: None
            raise error

    fleet.always = strike
    with pytest.raises(error):
        run(fleet, store)
    assert fleet.on_record == {}
    assert store.under_way() is None
    (card,), _ = store.history()
    assert (card.verdict, card.undone) == (Verdict.INTERRUPTED, True)


def test_a_fault_lasts_as_long_as_it_is_told_to(store: DrillStore) -> None:
    fleet = ScriptedFleet((Life(ended=100.0),))
    card = run(fleet, store, drill(faults=[{"fault": "engine-hang", "lasts": 30}]))
    assert card.verdict is Verdict.PASSED
    assert fleet.log.count("clear") == 1  # undone in the middle, and not once more at the end


def test_a_pair_of_faults_goes_to_different_engines() -> None:
    pair = drill(
        faults=[{"fault": "engine-hang"}, {"fault": "engine-kill", "after": 5}], blast_radius={"share": 0.7, "engines": 2}
    )
    aims, why = rehearse(pair, ScriptedFleet())
    assert why == ()
    assert aims[0].target != aims[1].target


def test_the_same_seed_breaks_the_same_engine_and_the_busiest_is_the_busiest() -> None:
    fleet = ScriptedFleet(engines=40)
    chosen = {seed: rehearse(drill(), fleet, seed)[0][0].target for seed in range(20)}
    assert all(rehearse(drill(), fleet, seed)[0][0].target == target for seed, target in chosen.items())
    assert len(set(chosen.values())) > 5
    busiest = drill(faults=[{"fault": "engine-hang", "target": "busiest"}])
    assert rehearse(busiest, fleet)[0][0].target == Entity.engine("sim-39")


def test_one_drill_at_a_time(store: DrillStore) -> None:
    with store.lock(), pytest.raises(DrillBusyError, match="another drill is under way"):
        run(ScriptedFleet(), store)


def test_a_rehearsal_breaks_nothing_and_says_what_is_missing() -> None:
    fleet = ScriptedFleet()
    fleet.engine("sim-2", "drained")
    aims, why = rehearse(drill(faults=[{"fault": "engine-hang", "target": "engine/sim-7"}]), fleet)
    assert aims == ()
    assert any("sim-2 is drained" in each for each in why)
    assert any("there is no engine/sim-7" in each for each in why)
    assert fleet.log == []


def test_the_history_is_bounded_and_survives_a_line_that_was_cut_short(store: DrillStore) -> None:
    card = run(ScriptedFleet(), store)
    with store.history_file.open("a") as file:
        file.write('{"run": "cut sho')
    store.add(card)
    cards, damaged = store.history()
    assert (len(cards), damaged) == (2, 1)
    store.history_file.write_text((card.model_dump_json() + "\n") * (KEPT + 5))
    store.add(card)
    assert len(store.history()[0]) == KEPT
