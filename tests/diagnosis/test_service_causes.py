"""Whole services: which cause stands behind what the service-level detectors find, and what they leave to others."""

import pytest
from test_diagnosis import CATALOGUE, DOOR, ENGINES, MODEL, SOURCE, finding, names, window

from agent.diagnosis.rank import diagnose
from detectors.finding import Finding, Symptom
from serving.fleet.entity import Entity

S = Symptom


def causes(found: list[Finding]) -> list[tuple[str, str]]:
    return names(tuple(one for one in diagnose(window(), found, CATALOGUE) if one.enough))


def test_a_stuck_queue_is_no_hang_although_nothing_steps() -> None:
    found = [
        finding(S.QUEUE_STUCK, ENGINES[0], 0.8),
        finding(S.STEPS_FROZEN, ENGINES[0], 0.8),
        finding(S.QUEUE_GROWING, ENGINES[0]),
        finding(S.SERVED_BELOW_ARRIVALS, ENGINES[0]),
        finding(S.ARRIVALS_RAISED, ENGINES[1]),
    ]
    assert causes(found) == [("engine.queue_stuck", "e-0")]


def test_a_stuck_queue_with_a_full_cache_is_no_pressure_and_with_a_full_batch_no_overload() -> None:
    for other in (S.KV_FULL, S.BATCH_FULL):
        found = [finding(S.QUEUE_STUCK, ENGINES[0]), finding(S.QUEUE_GROWING, ENGINES[0]), finding(other, ENGINES[0])]
        assert causes(found) == [("engine.queue_stuck", "e-0")]


def test_endless_answers_explain_the_load_that_they_make() -> None:
    found = [
        finding(S.OUTPUT_ENDLESS, ENGINES[0], 0.85),
        *(finding(symptom, ENGINES[0]) for symptom in (S.LONG_GENERATIONS, S.QUEUE_GROWING, S.BATCH_FULL, S.TTFT_RAISED)),
    ]
    assert causes(found) == [("engine.bad_output", "e-0")]


def test_a_leak_is_named_before_the_pressure_that_it_makes() -> None:
    found = [finding(symptom, ENGINES[0]) for symptom in (S.KV_HELD, S.KV_FULL, S.PREEMPTING, S.QUEUE_GROWING)]
    assert causes(found) == [("engine.kv_leak", "e-0")]


@pytest.mark.parametrize("refused", [True, False])
def test_orphans_memory_blocks_a_start_whatever_else_it_shows(*, refused: bool) -> None:
    found = [finding(S.START_MEMORY_HELD, ENGINES[0], 0.9), finding(S.START_SLOW, ENGINES[0])]
    found += [finding(S.TARGET_REFUSED, ENGINES[0], 0.9), finding(S.REQUESTS_FAILING, ENGINES[0])] if refused else []
    assert causes(found) == [("engine.start_blocked", "e-0")]


def test_a_slow_start_alone_is_a_slow_start() -> None:
    assert causes([finding(S.START_SLOW, ENGINES[0], 0.7)]) == [("engine.slow_start", "e-0")]


def bad_rollout(new: tuple[Entity, ...]) -> list[Finding]:
    found = [finding(S.REVISION_WORSE, MODEL, 0.9)]
    for engine in new:
        found += [
            finding(S.REVISION_SUSPECT, engine, 0.3),
            finding(S.SLOWER_THAN_PEERS, engine),
            finding(S.TTFT_RAISED, engine),
        ]
    return found


def test_a_bad_rollout_is_one_incident_of_the_model_and_not_many_of_its_engines() -> None:
    assert causes(bad_rollout(ENGINES[:2])) == [("rollout.bad", "m")]


def test_a_hang_of_an_engine_that_has_the_old_revision_is_another_matter() -> None:
    found = [*bad_rollout(ENGINES[:2]), finding(S.STEPS_FROZEN, ENGINES[4], 0.9)]
    assert set(causes(found)) == {("rollout.bad", "m"), ("engine.hung", "e-4")}


@pytest.mark.parametrize("sign", [S.DOOR_FAILING, S.DOOR_STARVES])
def test_a_broken_door_explains_what_its_engines_show_of_it(sign: Symptom) -> None:
    found = [finding(sign, DOOR, 0.8)]
    for engine in ENGINES:
        found += [finding(S.QUEUE_GROWING, engine), finding(S.BATCH_FULL, engine), finding(S.SERVED_BELOW_ARRIVALS, engine)]
    assert causes(found) == [("gateway.broken", "door")]


def test_a_dead_engine_behind_a_broken_door_is_dead_all_the_same() -> None:
    found = [finding(S.DOOR_STARVES, DOOR, 0.8), finding(S.TARGET_REFUSED, ENGINES[0], 0.9)]
    assert set(causes(found)) == {("gateway.broken", "door"), ("engine.dead", "e-0")}


def test_a_lost_name_hides_no_death_and_is_no_blindness() -> None:
    found = [finding(S.SERIES_VANISHED, SOURCE, 0.8), finding(S.TARGET_REFUSED, ENGINES[0], 0.9)]
    assert set(causes(found)) == {("telemetry.renamed", "scrape"), ("engine.dead", "e-0")}


def test_what_counts_twice_explains_rates_that_look_raised() -> None:
    found = [
        finding(S.SERIES_DOUBLED, SOURCE, 0.8),
        finding(S.PREFILL_BUSY, ENGINES[0]),
        finding(S.LONG_PROMPTS, ENGINES[0]),
    ]
    assert causes(found) == [("telemetry.doubled", "scrape")]
