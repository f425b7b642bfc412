"""Rows held against the truth: what counts as found, right, missed, false, and dangerous."""

import pytest

from agent.replay.judge import AFTERMATH, Judgement, Verdict, judge
from agent.replay.rows import NamedCause, Row, WouldDo
from agent.replay.truth import Fault, expected_of, faults_in
from serving.faults.catalogue import catalogue
from serving.fleet.entity import EntityKind
from serving.telemetry.recording import Happening

RESTART = WouldDo(step="restart", verb="process.restart", target="engine/e0", arguments={}, destructive=True)
CANARY = WouldDo(step="probe", verb="engine.canary", target="engine/e0", arguments={}, harmless=True)


def fault(kind: str = "engine_hang", target: str = "e0", start: float = 100.0, end: float = 160.0) -> Fault:
    return Fault(kind, target, start, end, expected_of(Happening(start, kind, target, "start")))


def row(
    cause: str = "engine.hung",
    entity: str = "engine/e0",
    at: float = 110.0,
    *,
    enough: bool = True,
    until: float | None = None,
    spells: tuple[tuple[float, float], ...] = (),
    would_do: tuple[WouldDo, ...] = (),
) -> Row:
    return Row(
        incident=f"{cause}-{entity}-{at}",
        entity=entity,
        first_seen=at,
        after=at,
        enough_at=at if enough else None,
        until=until,
        spells=spells,
        cause=cause,
        score=0.8,
        enough=enough,
        course=(NamedCause(at=at, cause=cause, score=0.8, enough=enough),),
        rivals=(),
        evidence=(),
        missing=(),
        verdict="act",
        reason="step_due",
        says="",
        decided_at=at,
        would_do=would_do,
        advice="",
    )


def verdict(judged: Judgement) -> Verdict:
    (only,) = judged.faults
    return only.verdict


def test_a_fault_that_is_found_by_its_name_is_right_and_its_delay_counts_from_its_start() -> None:
    judged = judge([row()], [fault()])
    assert verdict(judged) is Verdict.RIGHT
    assert judged.faults[0].detect_seconds == 10.0
    assert judged.good
    assert judged.totals.model_dump() == {
        "faults": 1,
        "found": 1,
        "right_cause_first": 1,
        "not_enough_evidence": 0,
        "false_incidents": 0,
        "destructive_steps_on_healthy": 0,
        "detect_seconds_p50": 10.0,
        "detect_seconds_max": 10.0,
    }


def test_only_the_first_name_counts_and_what_follows_is_told() -> None:
    judged = judge([row(at=120.0), row("engine.slow", at=110.0)], [fault()])
    assert verdict(judged) is Verdict.WRONG
    assert judged.faults[0].also == ("engine.hung on engine/e0",)
    assert (judged.totals.found, judged.totals.right_cause_first) == (1, 0)


def test_the_right_name_on_another_engine_is_a_miss_and_a_false_incident() -> None:
    judged = judge([row(entity="engine/e1")], [fault()])
    assert verdict(judged) is Verdict.MISSED
    assert judged.totals.false_incidents == 1
    assert not judged.good


def test_what_is_thin_is_not_found_but_not_missed_either() -> None:
    judged = judge([row(enough=False)], [fault()])
    assert verdict(judged) is Verdict.NOT_ENOUGH
    assert not judged.good


@pytest.mark.parametrize("rows", [[], [row("engine.slow", enough=False)]])
def test_near_the_noise_saying_nothing_or_not_enough_is_good(rows: list[Row]) -> None:
    judged = judge(rows, [fault("slow_worker")])
    assert judged.good
    assert (judged.totals.found, judged.totals.not_enough_evidence) == (0, 1)


def test_near_the_noise_a_wrong_name_is_still_wrong() -> None:
    assert not judge([row("engine.hung")], [fault("slow_worker")]).good


@pytest.mark.parametrize(("at", "false"), [(160.0 + AFTERMATH, 0), (160.5 + AFTERMATH, 1), (99.0, 1)])
def test_after_effects_end_and_nothing_before_a_fault_is_about_it(at: float, false: int) -> None:
    assert judge([row(at=110.0), row("engine.slow", at=at)], [fault()]).totals.false_incidents == false


def test_a_thin_incident_outside_all_faults_is_false_too() -> None:
    assert judge([row(at=500.0, enough=False)], [fault()]).totals.false_incidents == 1


def test_an_incident_in_the_time_of_two_faults_belongs_to_the_later_one() -> None:
    first, second = fault("gc_stall", start=50.0, end=90.0), fault(start=100.0)
    judged = judge([row("engine.gc_stall", at=60.0), row(at=112.0)], [first, second])
    assert [one.verdict for one in judged.faults] == [Verdict.RIGHT, Verdict.RIGHT]
    assert judged.faults[0].also == ()


def test_a_fault_that_comes_while_its_incident_is_still_open_is_found_when_it_shows_again() -> None:
    known = row(at=60.0, spells=((60.0, 80.0), (115.0, 150.0)))
    judged = judge([known], [fault(start=50.0, end=70.0), fault(start=100.0)])
    assert [one.verdict for one in judged.faults] == [Verdict.RIGHT, Verdict.RIGHT]
    assert [one.detect_seconds for one in judged.faults] == [10.0, 15.0]


def test_a_fault_of_the_whole_fleet_is_found_on_the_model_and_nowhere_else() -> None:
    surge = fault("traffic_surge", "all")
    assert verdict(judge([row("overload", "model/m")], [surge])) is Verdict.RIGHT
    assert verdict(judge([row("overload", "engine/e0")], [surge])) is Verdict.WRONG


def test_a_restart_is_right_for_a_sick_engine_and_counts_against_us_for_a_healthy_one() -> None:
    plan = (CANARY, RESTART)
    assert judge([row(would_do=plan)], [fault()]).totals.destructive_steps_on_healthy == 0
    flooded = judge([row("prefill.saturated", would_do=plan)], [fault("prefill_saturation")])
    assert flooded.totals.destructive_steps_on_healthy == 1
    assert flooded.destructive == ("prefill.saturated-engine/e0-110.0",)
    assert not flooded.good
    assert judge([row(would_do=plan, at=900.0)], [fault()]).totals.destructive_steps_on_healthy == 1


def test_without_any_fault_there_is_nothing_to_find_and_no_delay() -> None:
    totals = judge([], []).totals
    assert (totals.faults, totals.detect_seconds_p50, totals.detect_seconds_max) == (0, None, None)


def test_starts_and_ends_make_faults_and_what_is_benign_or_a_remark_does_not() -> None:
    told = (
        Happening(0.0, "baseline", "all", "start", benign=True),
        Happening(50.0, "baseline", "all", "end"),
        Happening(100.0, "engine_hang", "e0", "start"),
        Happening(120.0, "engine_hang", "e0", "health"),
        Happening(130.0, "engine_hang", "e1", "end"),
        Happening(160.0, "engine_hang", "e0", "end"),
        Happening(200.0, "api-hang", "e1", "start"),
    )
    hang, api = faults_in(told, ended=300.0)
    assert (hang.start, hang.end, hang.on) == (100.0, 160.0, EntityKind.ENGINE)
    assert (api.end, api.expected.causes, api.expected.sick) == (300.0, ("engine.api_hung",), True)


def test_every_fault_that_can_be_made_on_purpose_has_a_name_to_be_found_by() -> None:
    for name, known in catalogue().items():
        assert expected_of(Happening(0.0, name, "e0", "start")).causes == known.causes


def test_what_a_label_says_itself_goes_before_the_tables() -> None:
    said = Happening(0.0, "engine_hang", "e0", "start", causes=("engine.slow",))
    assert expected_of(said).causes == ("engine.slow",)
    assert expected_of(Happening(0.0, "meteor", "e0", "start")).causes == ()
