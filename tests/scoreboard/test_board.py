"""The sums over trials, how they are shown, and how they are held against an earlier run."""

from pathlib import Path

import orjson
import pytest
from made_results import fault, made, trial
from rich.console import Console

from agent.scoreboard.board import Totals, read_board
from agent.scoreboard.compare import compare, lost_rows
from agent.scoreboard.pictures import NoPicturesError, draw
from agent.scoreboard.tables import decoy_table, fault_table, markdown, sentences
from agent.scoreboard.trial import TrialKind

K = TrialKind
PROMISED = {
    *("drills", "recall", "right_cause_first", "right_first_action", "decoys", "false_incidents"),
    *("destructive_actions_on_decoys", "healthy_gpu_years", "false_destructive_per_1000_gpu_years", "seconds"),
}
MIXED = (
    trial(0, K.FAULT, fault(detect=10.0)),
    trial(1, K.FAULT, fault(detect=20.0, right=False)),
    trial(2, K.FAULT, fault(detect=None)),
    trial(3, K.FAULT, fault("slow", detect=90.0, acted=None)),
    trial(4, K.PAIR, fault(detect=10.0), fault("slow", detect=30.0)),
    trial(5, K.DECOY, names=("night",)),
    trial(6, K.DECOY, names=("night",), said=("engine.hung on engine/e1",), done=("process.restart on engine/e1",)),
    trial(7, K.DECOY_PAIR, names=("night", "cap")),
    trial(8, K.HEALTHY, names=(), years=2.0, said=("engine.slow on engine/e3",)),
)


def test_the_totals_have_the_promised_keys_and_count_faults_drills_and_decoys() -> None:
    totals = made(*MIXED).totals
    assert set(Totals.model_fields) == PROMISED | {"data"}
    assert (totals.data, totals.drills, totals.decoys) == ("simulated", 5, 3)
    assert totals.recall == pytest.approx(5 / 6)  # of faults: the pair has two
    assert totals.right_cause_first == pytest.approx(4 / 5)  # of those found
    assert totals.right_first_action == pytest.approx(4 / 5)
    assert totals.false_incidents == 2
    assert totals.destructive_actions_on_decoys == 1
    assert totals.healthy_gpu_years == pytest.approx(2.0)
    assert totals.false_destructive_per_1000_gpu_years == pytest.approx(0.0)
    assert totals.seconds == 12.0


def test_every_row_says_that_it_is_simulated() -> None:
    shown = orjson.loads(made(*MIXED).model_dump_json())
    rows = [*shown["faults"], *shown["groups"], shown["overall"], *shown["decoys"], shown["healthy"], shown["totals"], shown]
    assert {row["data"] for row in rows} == {"simulated"}


def test_a_kind_of_fault_counts_its_own_drills_alone_and_names_the_trials_that_went_wrong() -> None:
    hang, slow = made(*MIXED).faults
    assert (hang.fault, hang.drills, hang.recall.hits, hang.recall.of) == ("hang", 3, 2, 3)
    assert hang.missed_in == (2,)
    assert hang.misnamed_in == (1,)
    assert hang.mistaken_for == {"engine.dead": 1}
    assert hang.detect_p50.value == 15.0
    assert slow.wrong_actions == {"nothing": 1}


def test_faults_with_a_physical_tell_are_summed_apart_from_those_without_and_from_pairs() -> None:
    physical, others, pairs = made(*MIXED).groups
    assert (physical.drills, others.drills, pairs.drills) == (3, 1, 1)
    assert (pairs.recall.hits, pairs.recall.of) == (2, 2)


def test_decoys_are_shown_by_kind_with_what_was_said_and_done() -> None:
    night, both = made(*MIXED).decoys
    assert (night.decoy, night.trials, night.quiet.hits, night.destructive_actions) == ("night", 2, 1, 1)
    assert night.said == {"engine.hung": 1}
    assert night.done == {"process.restart": 1}
    assert night.disturbed == (6,)
    assert (both.trials, both.quiet.value) == (1, 1.0)


def test_a_trial_that_could_not_be_run_is_in_no_figure_but_is_told() -> None:
    shown = made(*MIXED, trial(9, K.FAULT, fault(), error="ValueError: broken"))
    assert shown.totals.drills == 5
    assert shown.run.failed == {9: "ValueError: broken"}
    assert any("trial 9: ValueError: broken" in said for said in sentences(shown))


def test_nothing_tried_is_nothing_known() -> None:
    totals = made().totals
    assert totals.recall is None
    assert totals.false_destructive_per_1000_gpu_years is None


def test_the_order_in_which_results_come_does_not_matter() -> None:
    assert made(*MIXED) == made(*reversed(MIXED))


def test_a_board_is_read_back_as_it_was_written() -> None:
    shown = made(*MIXED)
    assert read_board(shown.model_dump_json().encode()) == shown


@pytest.mark.parametrize("text", [b"", b"{}", b'{"format": "fleetwarden-scoreboard/9"}'])
def test_what_is_no_board_is_refused_in_a_sentence(text: bytes) -> None:
    with pytest.raises(ValueError, match="is not a scoreboard"):
        read_board(text)


def test_the_tables_show_every_kind_and_the_page_every_mistake() -> None:
    console = Console(width=200, record=True, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123 - thrown away
    shown = made(*MIXED, planned=20)
    console.print(fault_table(shown), decoy_table(shown))
    text = console.export_text()
    console.file.close()
    for word in ("hang", "slow", "two at once", "night", "66.7 % (21-94)", "15 / 20"):
        assert word in text
    page = markdown(shown)
    assert "* hang: missed 1 times (trials 2); called engine.dead 1x (trials 1)" in page
    assert "| 1 / 0 / 0 |" in markdown(made(trial(0, K.FAULT, fault(), said=("overload on model/m",))))
    assert "Only 9 of 20 trials were run." in page
    assert "simulated" in page


def test_a_rate_just_under_all_is_not_shown_as_all() -> None:
    shown = made(*(trial(n, K.FAULT, fault()) for n in range(2_999)), trial(2_999, K.FAULT, fault(detect=None)))
    assert "| 99.9 % (" in markdown(shown)


def test_what_differs_by_chance_is_no_change_and_what_differs_by_more_is() -> None:
    good = made(*(trial(n, K.FAULT, fault(detect=10.0 + n % 3)) for n in range(100)))
    little = made(*(trial(n, K.FAULT, fault(detect=None if n == 7 else 10.0 + n % 3)) for n in range(100)))
    bad = made(*(trial(n, K.FAULT, fault(detect=None if n % 2 else 40.0)) for n in range(100)))
    assert compare(little, good) == ()
    worse = compare(bad, good)
    assert {("hang", "recall"), ("hang", "detect_p50")} <= {(change.row, change.figure) for change in worse}
    assert not any(change.better for change in worse)
    assert all(change.better for change in compare(good, bad))


def test_a_fault_that_is_tried_no_more_is_said_to_be_lost() -> None:
    assert lost_rows(made(MIXED[0]), made(*MIXED)) == ("slow", "night", "two at once")


def test_the_pictures_are_drawn_the_same_each_time(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    shown = made(*MIXED)
    first = [path.read_bytes() for path in draw(shown, tmp_path)]
    assert [path.read_bytes() for path in draw(shown, tmp_path)] == first
    assert all(b"hang (3)" in content for content in first)


def test_without_matplotlib_it_is_said_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    with pytest.raises(NoPicturesError, match="pip install matplotlib"):
        draw(made(*MIXED), tmp_path)
