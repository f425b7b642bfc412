"""Each detector finds its fault, painted on one engine of a small healthy fleet, and says it in words with numbers."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from synthetic import NOW, SCRAPE, Fleet

from detectors.finding import Finding, Symptom
from serving.telemetry.window import SourceStatus, Window

Seen = Callable[[Window], dict[str, set[Symptom]]]
Find = Callable[[Window], tuple[Finding, ...]]


def test_a_standstill_with_requests_in_flight_is_frozen_and_its_evidence_says_how_long(findings: Find) -> None:
    fleet = Fleet()
    fleet.standing[1, fleet.last(14)] = True
    found = [one for one in findings(fleet.window()) if one.symptom is Symptom.STEPS_FROZEN]
    assert [one.entity.name for one in found] == ["e-1"]
    assert NOW - 16 <= found[0].since <= NOW - 10
    assert "no engine step for" in found[0].evidence[0].says
    assert "in flight" in found[0].evidence[0].says


def test_a_standstill_is_found_within_fifteen_seconds_of_its_first_waiting_request(seen: Seen) -> None:
    delays = []
    for seconds in range(2, 16, 2):
        fleet = Fleet()
        fleet.standing[1, fleet.last(seconds)] = True
        fleet.arrivals[1, fleet.last(seconds)] = 8.0
        if Symptom.STEPS_FROZEN in seen(fleet.window()).get("e-1", set()):
            delays.append(seconds)
    assert delays
    assert delays[0] <= 12


def test_an_engine_stays_frozen_when_the_door_has_turned_away_and_nobody_waits_any_more(findings: Find) -> None:
    fleet = Fleet()
    fleet.standing[1, fleet.last(80)] = True
    fleet.arrivals[1, fleet.last(40)] = 0.0
    window = fleet.window()
    in_flight = window.signals["door.in_flight"].values
    in_flight[1, fleet.last(40)] = 0.0
    found = [one for one in findings(window) if one.symptom is Symptom.STEPS_FROZEN]
    assert [one.entity.name for one in found] == ["e-1"]
    assert "waited for in vain" in found[0].evidence[0].says
    assert NOW - 84 <= found[0].since <= NOW - 70


def test_an_engine_that_was_restarted_is_no_longer_frozen_before_its_first_step(seen: Seen) -> None:
    fleet = Fleet()
    fleet.standing[1, fleet.last(80)] = True
    fleet.arrivals[1, fleet.last(40)] = 0.0
    fleet.start[1, fleet.last(20)] = NOW - 20
    window = fleet.window()
    window.signals["door.in_flight"].values[1, fleet.last(40)] = 0.0
    shown = seen(window)["e-1"]
    assert Symptom.STEPS_FROZEN not in shown
    assert Symptom.RESTARTED in shown


def test_an_engine_that_steps_again_has_returned_and_is_not_frozen(seen: Seen) -> None:
    fleet = Fleet()
    fleet.standing[1, fleet.last(60)] = True
    fleet.standing[1, fleet.last(8)] = False
    shown = seen(fleet.window())["e-1"]
    assert Symptom.RETURNED in shown
    assert Symptom.STEPS_FROZEN not in shown


def test_gauges_that_claim_work_with_nobody_waiting_are_frozen(seen: Seen) -> None:
    fleet = Fleet()
    fleet.running = fleet._full(2.0)
    fleet.arrivals[1, fleet.last(60)] = 0.0
    fleet.standing[1, fleet.last(60)] = True
    assert seen(fleet.window())["e-1"] == {Symptom.GAUGES_FROZEN}


def test_without_a_door_a_standstill_with_claimed_work_shows_both_readings_of_it(seen: Seen) -> None:
    fleet = Fleet()
    fleet.running = fleet._full(2.0)
    fleet.standing[1, fleet.last(60)] = True
    shown = seen(fleet.window(without=("door.",)))["e-1"]
    assert {Symptom.GAUGES_FROZEN, Symptom.STEPS_FROZEN} <= shown


def test_without_a_door_open_files_that_pile_up_show_a_standstill(findings: Find) -> None:
    fleet = Fleet()
    fleet.running = fleet._full(0.0)
    fleet.standing[1, fleet.last(40)] = True
    found = [one for one in findings(fleet.window(without=("door.",))) if one.symptom is Symptom.STEPS_FROZEN]
    assert [one.entity.name for one in found] == ["e-1"]
    assert "open files" in found[0].evidence[0].says


@pytest.mark.parametrize(("took", "symptom"), [(0.002, Symptom.TARGET_REFUSED), (1.9, Symptom.TARGET_SILENT)])
def test_a_target_that_stays_away_refuses_or_is_silent_by_how_its_scrapes_fail(
    seen: Seen, took: float, symptom: Symptom
) -> None:
    fleet = Fleet()
    fleet.up[2, fleet.last(14)] = 0.0
    fleet.took[2, fleet.last(14)] = took
    assert symptom in seen(fleet.window())["e-2"]


def test_a_target_that_answers_again_has_returned_and_a_new_process_is_restarted(seen: Seen) -> None:
    fleet = Fleet()
    fleet.up[2, fleet.last(60)] = 0.0
    fleet.took[2, fleet.last(60)] = 0.001
    fleet.up[2, fleet.last(8)] = 1.0
    fleet.start[2, fleet.last(8)] = NOW - 20
    assert {Symptom.RETURNED, Symptom.RESTARTED} <= seen(fleet.window())["e-2"]


def test_broken_connections_are_failing_requests(seen: Seen) -> None:
    fleet = Fleet()
    fleet.broken[0, fleet.last(20)] = 1.0
    assert Symptom.REQUESTS_FAILING in seen(fleet.window())["e-0"]


def test_an_engine_slower_than_many_true_peers_is_found_within_half_a_minute(findings: Find) -> None:
    fleet = Fleet(engines=8)
    fleet.itl[5, fleet.last(32)] *= 2.5
    found = [one for one in findings(fleet.window()) if one.symptom is Symptom.SLOWER_THAN_PEERS]
    assert [one.entity.name for one in found] == ["e-5"]
    assert "7 peers" in found[0].evidence[0].says


def test_with_few_peers_slowness_needs_a_minute_and_the_past_and_stays_less_certain(findings: Find, seen: Seen) -> None:
    hasty, lasting, many = Fleet(engines=4), Fleet(engines=4), Fleet(engines=8)
    hasty.itl[2, hasty.last(32)] *= 2.5
    lasting.itl[2, lasting.last(70)] *= 2.5
    many.itl[2, many.last(70)] *= 2.5
    assert Symptom.SLOWER_THAN_PEERS not in seen(hasty.window()).get("e-2", set())
    few = next(one for one in findings(lasting.window()) if one.symptom is Symptom.SLOWER_THAN_PEERS)
    sure = next(one for one in findings(many.window()) if one.symptom is Symptom.SLOWER_THAN_PEERS)
    assert few.severity < sure.severity


def test_with_few_peers_a_smaller_slowness_shows_over_two_minutes(seen: Seen) -> None:
    soon, late = Fleet(engines=3), Fleet(engines=3)
    soon.itl[2, soon.last(70)] *= 1.65
    late.itl[2, late.last(130)] *= 1.65
    assert Symptom.SLOWER_THAN_PEERS not in seen(soon.window()).get("e-2", set())
    assert Symptom.SLOWER_THAN_PEERS in seen(late.window())["e-2"]


def test_with_few_peers_pauses_make_no_engine_slow_and_its_tokens_no_less_steady(seen: Seen) -> None:
    fleet = Fleet(engines=3)
    lately = fleet.last(130)
    fleet.gap_share[2, lately], fleet.gap[2, lately], fleet.ttft[2, lately] = 0.04, 0.6, 0.9
    found = seen(fleet.window())["e-2"]
    assert Symptom.SLOWER_THAN_PEERS not in found
    assert {Symptom.STEP_GAPS, Symptom.TTFT_RAISED, Symptom.DECODE_STEADY} <= found


def test_one_standstill_while_a_shape_compiles_slows_no_engine(seen: Seen) -> None:
    fleet = Fleet(engines=8)
    fleet.gap_share[5, -3], fleet.gap[5, -3] = 0.5, 7.0
    assert Symptom.SLOWER_THAN_PEERS not in seen(fleet.window()).get("e-5", set())


def test_pauses_again_and_again_are_gaps_between_steps(findings: Find) -> None:
    fleet = Fleet()
    fleet.gap_share[3, fleet.last(70)] = 0.02
    found = [one for one in findings(fleet.window()) if one.symptom is Symptom.STEP_GAPS]
    assert [one.entity.name for one in found] == ["e-3"]
    assert "200 ms" in found[0].evidence[0].says


def test_pauses_show_even_where_every_engine_often_has_gaps(findings: Find) -> None:
    fleet = Fleet(engines=8)
    fleet.gap_share[:] = 0.006  # a gap in every second reading, as where long prompts are read in one piece
    fleet.gap_share[3, fleet.last(70)] = 0.1  # and in every one
    found = [one for one in findings(fleet.window()) if one.symptom is Symptom.STEP_GAPS]
    assert [one.entity.name for one in found] == ["e-3"]


@pytest.mark.parametrize("gap_share", [0.001, 0.004, 0.01, 0.03])
def test_chance_alone_makes_no_pauses_however_often_gaps_are(gap_share: float, findings: Find) -> None:
    fleet = Fleet(engines=500)
    fleet.gap_share[:] = gap_share
    assert Symptom.STEP_GAPS not in {one.symptom for one in findings(fleet.window())}


@pytest.mark.parametrize("seed", range(3))
def test_long_prompts_that_come_close_together_make_no_pauses_where_readings_are_few(seed: int, findings: Find) -> None:
    fleet = Fleet(engines=3_000, interval=4.0, seed=seed)
    fleet.gap_share[:] = 0.0004  # a gap in every tenth reading, and by chance in seven of the last fifteen here and there
    assert Symptom.STEP_GAPS not in {one.symptom for one in findings(fleet.window())}


def test_pauses_show_where_readings_are_few(findings: Find) -> None:
    fleet = Fleet(engines=8, interval=4.0)
    fleet.gap_share[:] = 0.0004
    fleet.gap_share[3, fleet.last(85)] = 0.02
    found = [one for one in findings(fleet.window()) if one.symptom is Symptom.STEP_GAPS]
    assert [one.entity.name for one in found] == ["e-3"]


@pytest.mark.parametrize(("tokens", "pauses"), [(0.0, True), (14_000.0, False)])
def test_gaps_behind_long_prompts_are_no_pauses(tokens: float, pauses: bool, findings: Find) -> None:  # noqa: FBT001 - a case
    fleet = Fleet(engines=8, interval=4.0)
    fleet.prompt[:], fleet.prefill[:] = 1_000.0, 0.1
    fleet.gap_share[3, fleet.last(85)] = 0.05
    window = fleet.window()
    read = np.zeros(fleet.shape[1])
    read[fleet.last(85)] = tokens
    for name in ("engine.step_tokens", "engine.prompt_tokens"):
        window.signals[name].values[3] += np.cumsum(read)
    assert (Symptom.STEP_GAPS in {one.symptom for one in findings(window)}) is pauses


def test_pauses_of_an_engine_that_has_just_begun_are_no_habit(findings: Find) -> None:
    fleet = Fleet()
    fleet.start[3, :] = NOW - 80.0
    fleet.gap_share[3, fleet.last(70)] = 0.02
    assert Symptom.STEP_GAPS not in {one.symptom for one in findings(fleet.window())}


def test_first_tokens_that_were_late_once_and_are_a_little_late_since_are_not_raised(seen: Seen) -> None:
    fleet = Fleet()
    usual = fleet.ttft[0, 0]
    fleet.ttft[0, fleet.last(64)] = usual * 1.9
    fleet.ttft[0, slice(fleet.last(55).start, fleet.last(45).start)] = 4.0
    assert Symptom.TTFT_RAISED not in seen(fleet.window()).get("e-0", set())


def test_first_tokens_late_for_a_minute_are_raised_and_decoding_went_on(seen: Seen) -> None:
    fleet = Fleet()
    fleet.ttft[0, fleet.last(64)] = 0.9
    assert {Symptom.TTFT_RAISED, Symptom.DECODE_STEADY} <= seen(fleet.window())["e-0"]


def test_time_spent_in_the_queue_is_told_from_other_lateness(seen: Seen) -> None:
    fleet = Fleet()
    fleet.ttft[0, fleet.last(64)], fleet.queue[0, fleet.last(64)] = 3.0, 2.9
    assert Symptom.QUEUE_WAITED in seen(fleet.window())["e-0"]


def test_long_prompts_that_take_the_engines_time_are_both_long_and_busy(seen: Seen) -> None:
    fleet = Fleet()
    lately = fleet.last(40)
    fleet.prompt[1, lately], fleet.prefill[1, lately], fleet.output[1, lately] = 1800.0, 0.5, 8.0
    assert {Symptom.LONG_PROMPTS, Symptom.PREFILL_BUSY} <= seen(fleet.window())["e-1"]


def test_a_full_cache_with_a_queue_and_preemptions_shows_all_three(seen: Seen) -> None:
    fleet = Fleet()
    lately = fleet.last(40)
    fleet.kv[1, lately], fleet.waiting[1, lately], fleet.preempted[1, lately] = 0.96, 9.0, 2.0
    assert {Symptom.KV_FULL, Symptom.QUEUE_GROWING, Symptom.PREEMPTING} <= seen(fleet.window())["e-1"]


def test_a_batch_at_its_ceiling_with_a_queue_is_full(seen: Seen) -> None:
    fleet = Fleet()
    fleet.running = fleet._full(2.0)
    fleet.running[1, fleet.last(30)], fleet.waiting[1, fleet.last(30)] = 16.0, 12.0
    assert {Symptom.BATCH_FULL, Symptom.QUEUE_GROWING} <= seen(fleet.window())["e-1"]


def test_long_answers_are_long_generations(seen: Seen) -> None:
    fleet = Fleet()
    fleet.output[1, fleet.last(30)] = 600.0
    assert Symptom.LONG_GENERATIONS in seen(fleet.window())["e-1"]


def test_a_surge_over_the_fleet_is_found_on_the_model_and_a_flood_on_one_engine_is_not(seen: Seen) -> None:
    surge, flood = Fleet(), Fleet()
    surge.arrivals[:, surge.last(40)], surge.ttft[:, surge.last(40)] = 12.0, 2.0
    flood.arrivals[1, flood.last(40)], flood.ttft[1, flood.last(40)] = 12.0, 2.0
    both = {Symptom.ARRIVALS_RAISED, Symptom.SERVED_BELOW_ARRIVALS}
    assert both <= seen(surge.window())["m-0"]
    assert both <= seen(flood.window())["e-1"]
    assert "m-0" not in seen(flood.window())


def test_clients_that_give_up_are_leaving_and_it_is_said_after_how_long(findings: Find) -> None:
    fleet = Fleet()
    fleet.leaving[2, fleet.last(20)] = 0.95
    found = [one for one in findings(fleet.window()) if one.symptom is Symptom.CLIENTS_LEAVING]
    assert [one.entity.name for one in found] == ["e-2"]
    assert "on average" in found[0].evidence[0].says


def test_clients_that_leave_past_the_door_are_missed_in_the_engines_own_books(findings: Find) -> None:
    fleet = Fleet()
    fleet.leaving[2, fleet.last(20)] = 0.95
    found = [one for one in findings(fleet.window(without=("door.",))) if one.symptom is Symptom.CLIENTS_LEAVING]
    assert [one.entity.name for one in found] == ["e-2"]
    assert "never finished" in found[0].evidence[0].says


@pytest.mark.parametrize("back_after", [6.0, 0.0])
def test_a_book_that_was_lost_and_is_found_again_is_no_crowd_of_clients_that_left(back_after: float, seen: Seen) -> None:
    fleet = Fleet()
    window = fleet.window(without=("door.",))
    begun = window.histograms["engine.ttft"]
    gone = (window.times > NOW - 90.0) & (window.times <= NOW - back_after)
    counts, sums = begun.counts.copy(), begun.sums.copy()
    counts[:, gone], sums[:, gone] = np.nan, np.nan
    renamed = replace(begun, counts=counts, sums=sums)
    found = seen(replace(window, histograms={**window.histograms, "engine.ttft": renamed}))
    assert Symptom.CLIENTS_LEAVING not in set().union(*found.values())


def test_a_source_that_fails_for_long_is_blind_and_one_miss_is_not(seen: Seen) -> None:
    long_gone, one_miss = Fleet(), Fleet()
    long_gone.sources = (SourceStatus(SCRAPE, NOW - 20, "connection refused"),)
    one_miss.sources = (SourceStatus(SCRAPE, NOW - 2, "connection refused"),)
    assert seen(long_gone.window())["scrape"] == {Symptom.SOURCE_BLIND}
    assert "scrape" not in seen(one_miss.window())


def test_most_targets_lost_at_once_while_the_door_serves_points_at_telemetry(findings: Find) -> None:
    fleet = Fleet(engines=6)
    fleet.up[:5, fleet.last(12)] = 0.0
    found = [one for one in findings(fleet.window()) if one.symptom is Symptom.MOST_TARGETS_LOST]
    assert [one.entity for one in found] == [SCRAPE]
    assert "front door" in found[0].evidence[0].says


def test_engines_that_really_died_together_are_not_lost_targets(seen: Seen) -> None:
    fleet = Fleet(engines=6)
    fleet.up[:5, fleet.last(12)], fleet.standing[:5, fleet.last(12)] = 0.0, True
    assert "scrape" not in seen(fleet.window())


def test_old_samples_from_targets_said_to_be_up_are_blindness(seen: Seen) -> None:
    window = Fleet().window()
    later = Window(
        now=NOW + 30,
        topology=window.topology,
        times=np.append(window.times, NOW + 30),
        signals={
            name: type(matrix)(
                np.hstack([matrix.values, np.full((4, 1), 1.0 if name == "scrape.up" else np.nan)]),
                np.hstack([matrix.sampled_at, np.full((4, 1), NOW + 30)]),
            )
            for name, matrix in window.signals.items()
        },
        sources=(SourceStatus(SCRAPE, NOW + 30),),
    )
    assert seen(later)["scrape"] == {Symptom.SOURCE_BLIND}


def test_every_finding_says_its_numbers_in_a_short_clause(findings: Find) -> None:
    fleet = Fleet()
    lately = fleet.last(40)
    fleet.kv[1, lately], fleet.waiting[1, lately], fleet.preempted[1, lately] = 0.96, 9.0, 2.0
    fleet.standing[2, fleet.last(14)] = True
    fleet.leaving[3, fleet.last(20)] = 0.95
    for one in findings(fleet.window()):
        assert 0.0 <= one.severity <= 1.0
        assert one.since <= NOW
        assert one.evidence
        for evidence in one.evidence:
            assert len(evidence.says) < 200
            assert "nan" not in evidence.says
