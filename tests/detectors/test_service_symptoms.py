"""Stuck queues, bad answers, leaks, starts, doors and lying series: each painted, beside its decoys."""

from collections.abc import Callable
from dataclasses import replace
from types import MappingProxyType

import numpy as np
import pytest
from synthetic import DOOR, NOW, SCRAPE, Fleet

from detectors.finding import Finding, Symptom
from serving.fleet.entity import Entity, EntityKind
from serving.fleet.topology import EngineFacts, Relation, Topology
from serving.telemetry.columns import SignalMatrix
from serving.telemetry.window import Table, Window

Seen = Callable[[Window], dict[str, set[Symptom]]]
Find = Callable[[Window], tuple[Finding, ...]]
Floats = np.ndarray
GIB = 2.0**30
NEW = {
    Symptom.QUEUE_STUCK,
    Symptom.OUTPUT_CORRUPT,
    Symptom.OUTPUT_ENDLESS,
    Symptom.KV_HELD,
    Symptom.MEMORY_RISING,
    Symptom.START_SLOW,
    Symptom.START_MEMORY_HELD,
    Symptom.DOOR_FAILING,
    Symptom.DOOR_STARVES,
    Symptom.SERIES_VANISHED,
    Symptom.SERIES_DOUBLED,
}


def shown(found: tuple[Finding, ...]) -> dict[str, set[Symptom]]:
    """What these detectors found, by the name of the entity."""
    by_name: dict[str, set[Symptom]] = {}
    for one in found:
        if one.symptom in NEW:
            by_name.setdefault(one.entity.name, set()).add(one.symptom)
    return by_name


def counter(fleet: Fleet, a_second: Floats) -> Floats:
    """A counter that has long been counting."""
    return 1000.0 + np.cumsum(a_second * fleet.interval, axis=1)


# --- queues -----------------------------------------------------------------------------------------------------------


def closed_queue(seconds: float = 20.0) -> Fleet:
    """Engine 1 lets nobody in any more: what runs ends, and what arrives waits. Its gauges go on being written."""
    fleet = Fleet(engines=5)
    lately = fleet.last(seconds)
    fleet.running = fleet._full(3.0)
    fleet.running[1, lately] = 0.0
    fleet.waiting[1, lately] = np.arange(1, fleet.waiting[1, lately].size + 1) * 2.0
    fleet.arrivals[1, lately] = 0.0  # nothing is worked on, so nothing steps
    return fleet


def test_a_queue_that_grows_with_nobody_running_is_stuck(findings: Find) -> None:
    found = [one for one in findings(closed_queue().window()) if one.symptom is Symptom.QUEUE_STUCK]
    assert [one.entity.name for one in found] == ["e-1"]
    assert "none runs" in found[0].evidence[0].says


def test_a_core_that_stands_still_writes_no_gauges_and_is_no_stuck_queue(findings: Find) -> None:
    fleet = closed_queue()
    fleet.waiting[1, fleet.last(20)] = 6.0
    fleet.standing[1, fleet.last(18)] = True
    assert shown(findings(fleet.window())) == {}


def test_a_queue_that_is_worked_off_is_not_stuck(findings: Find) -> None:
    fleet = closed_queue()
    fleet.waiting[1, fleet.last(20)] = fleet.waiting[1, fleet.last(20)][::-1]
    assert shown(findings(fleet.window())) == {}


def test_an_engine_that_sleeps_by_order_may_let_its_queue_wait(findings: Find) -> None:
    fleet = closed_queue()
    fleet.awake[1, fleet.last(30)] = 0.0
    assert shown(findings(fleet.window())) == {}


def test_a_small_batch_with_room_and_no_first_tokens_is_stuck_and_one_that_gives_them_is_not(findings: Find) -> None:
    for answers, stuck in ((0.0, True), (2.0, False)):
        fleet = Fleet(engines=5)
        fleet.running = fleet._full(12.0)
        fleet.running[1, fleet.last(50)] = 2.0
        fleet.waiting[1, fleet.last(50)] = 8.0
        fleet.arrivals[1, fleet.last(50)] = answers
        found = shown(findings(fleet.window()))
        assert (found.get("e-1") == {Symptom.QUEUE_STUCK}) is stuck


def test_a_batch_at_its_ceiling_or_a_full_cache_is_not_a_stuck_queue(findings: Find) -> None:
    for running, usage in ((12.0, 0.1), (2.0, 0.95)):
        fleet = Fleet(engines=5)
        fleet.running = fleet._full(12.0)
        fleet.running[1, fleet.last(50)] = running
        fleet.waiting[1, fleet.last(50)] = 8.0
        fleet.kv[1, fleet.last(50)] = usage
        fleet.arrivals[1, fleet.last(50)] = 0.0
        assert shown(findings(fleet.window())) == {}


def test_deferred_requests_that_never_come_out_are_stuck_and_those_on_their_way_are_not(findings: Find) -> None:
    fleet = Fleet(engines=5)
    passing = fleet.rng.integers(0, 4, fleet.shape).astype(float)
    for add, stuck in ((5.0, {"e-1": {Symptom.QUEUE_STUCK}}), (0.0, {})):
        deferred = passing.copy()
        deferred[1, fleet.last(70)] += add
        fleet.changed["engine.waiting.deferred"] = deferred
        assert shown(findings(fleet.window())) == stuck


# --- answers ----------------------------------------------------------------------------------------------------------


def corrupt(rows: list[int]) -> Fleet:
    fleet = Fleet(engines=6)
    a_second = fleet._full(0.0)
    for row in rows:
        a_second[row, fleet.last(60)] = 0.3
    fleet.changed["engine.corrupted"] = counter(fleet, a_second)
    return fleet


def test_garbage_that_one_engine_counts_is_its_own(findings: Find) -> None:
    assert shown(findings(corrupt([1]).window())) == {"e-1": {Symptom.OUTPUT_CORRUPT}}


def test_garbage_of_all_engines_alike_is_no_engines(findings: Find) -> None:
    assert shown(findings(corrupt(list(range(6))).window())) == {}


def endless(rows: list[int], output: float = 30.0) -> Fleet:
    fleet = Fleet(engines=6)
    share = fleet._full(0.1)
    for row in rows:
        fleet.output[row, fleet.last(60)] = output
        share[row, fleet.last(60)] = 0.95
    ended = fleet.arrivals
    fleet.changed["engine.finished.length"] = counter(fleet, ended * share)
    fleet.changed["engine.finished.stop"] = counter(fleet, ended * (1.0 - share))
    return fleet


def test_answers_that_run_to_their_limit_on_one_engine_are_endless(findings: Find) -> None:
    assert shown(findings(endless([1], 100.0).window())) == {"e-1": {Symptom.OUTPUT_ENDLESS}}


@pytest.mark.parametrize(("rows", "output"), [(list(range(6)), 100.0), ([1], 30.0)], ids=["all alike", "as long as ever"])
def test_a_fleets_change_and_a_lower_limit_are_no_engines_bad_answers(
    rows: list[int], output: float, findings: Find
) -> None:
    assert shown(findings(endless(rows, output).window())) == {}


# --- leaks ------------------------------------------------------------------------------------------------------------


def test_a_cache_that_is_full_with_nothing_running_over_fresh_steps_leaks(findings: Find) -> None:
    fleet = Fleet(engines=5)
    fleet.running = fleet._full(1.0)
    fleet.running[:, ::4] = 0.0
    fleet.kv[1, fleet.last(200)] = 0.4
    assert shown(findings(fleet.window())) == {"e-1": {Symptom.KV_HELD}}


def test_a_cache_that_empties_when_nothing_runs_and_old_gauges_of_an_idle_engine_are_no_leak(findings: Find) -> None:
    busy = Fleet(engines=5)
    busy.running = busy._full(1.0)
    busy.running[:, ::4] = 0.0
    busy.kv[1] = np.where(busy.running[1] > 0, 0.4, 0.0)
    idle = Fleet(engines=5)
    idle.running = idle._full(1.0)
    idle.arrivals[1, idle.last(220)] = 0.0
    idle.running[1, idle.last(220)], idle.kv[1, idle.last(220)] = 0.0, 0.4
    window = idle.window()
    steps = window.signals["engine.steps"].values
    steps[1, idle.last(220)] = steps[1, idle.last(220)][0]
    assert shown(findings(busy.window())) == shown(findings(window)) == {}


def test_a_prefill_engine_that_holds_blocks_for_a_decoder_is_let_wait_for_its_lease(findings: Find) -> None:
    fleet = Fleet(engines=5)
    fleet.running = fleet._full(1.0)
    fleet.running[:, ::4] = 0.0
    fleet.kv[1, fleet.last(200)] = 0.4
    window = fleet.window()
    facts = [replace(window.topology.facts(engine), role="prefill") for engine in window.topology.engines]
    assert shown(findings(replace(window, topology=Topology(facts)))) == {}


def busy_cache(prompt: float) -> Fleet:
    fleet = Fleet(engines=6)
    fleet.running = 8.0 + fleet.rng.integers(-2, 3, fleet.shape)
    fleet.kv = 0.02 * fleet.running
    fleet.kv[1, fleet.last(200)] += 0.4
    fleet.prompt[1, fleet.last(200)] = prompt
    return fleet


def test_a_busy_engine_leaks_when_its_requests_do_not_explain_what_it_holds(findings: Find) -> None:
    assert shown(findings(busy_cache(80.0).window())) == {"e-1": {Symptom.KV_HELD}}


def test_longer_prompts_explain_a_fuller_cache(findings: Find) -> None:
    assert shown(findings(busy_cache(600.0).window())) == {}


def memory(a_minute: float, engines: int = 5) -> Fleet:
    fleet = Fleet(engines=engines)
    working = fleet._full(20.0 * GIB) + fleet.rng.normal(0.0, 0.02 * GIB, fleet.shape)
    working[1] += a_minute / 60.0 * (fleet.times - fleet.times[0])
    fleet.changed["engine.memory_working_set"] = working
    fleet.changed["engine.memory_limit"] = fleet._full(40.0 * GIB)
    fleet.running = fleet._full(3.0)
    return fleet


def test_memory_that_rises_towards_its_limit_is_told_with_the_time_that_is_left(findings: Find) -> None:
    found = [one for one in findings(memory(0.4 * GIB).window()) if one.symptom in NEW]
    assert [(one.symptom, one.entity.name) for one in found] == [(Symptom.MEMORY_RISING, "e-1")]
    assert "full in" in found[0].evidence[0].says


def _slowly(fleet: Fleet) -> None:
    """0.05 GiB a minute would take more than six hours."""
    working = fleet.changed["engine.memory_working_set"]
    working[1] = working[0] + 0.05 * GIB / 60.0 * (fleet.times - fleet.times[0])


def _with_its_load(fleet: Fleet) -> None:
    assert fleet.running is not None
    fleet.running[1] = np.linspace(3.0, 12.0, fleet.shape[1])


def _in_one_jump(fleet: Fleet) -> None:
    working = fleet.changed["engine.memory_working_set"]
    working[1] = working[0]
    working[1, fleet.last(100)] += 8.0 * GIB


def _just_started(fleet: Fleet) -> None:
    fleet.start[1] = fleet.times[0] - 60.0


@pytest.mark.parametrize("decoy", [_slowly, _with_its_load, _in_one_jump, _just_started])
def test_memory_that_does_other_than_leak_is_left_alone(decoy: Callable[[Fleet], None], findings: Find) -> None:
    fleet = memory(0.4 * GIB)
    decoy(fleet)
    assert shown(findings(fleet.window())) == {}


def test_without_a_container_the_api_process_tells_against_its_peers(findings: Find) -> None:
    fleet = Fleet(engines=5)
    fleet.running = fleet._full(3.0)
    fleet.changed["engine.rss"] = fleet._full(3.0 * GIB)
    fleet.changed["engine.rss"][1] *= np.linspace(1.0, 1.6, fleet.shape[1])
    assert shown(findings(fleet.window())) == {"e-1": {Symptom.MEMORY_RISING}}
    fleet.changed["engine.rss"][:] *= np.linspace(1.0, 1.6, fleet.shape[1])
    assert shown(findings(fleet.window())) == {}


# --- starts -----------------------------------------------------------------------------------------------------------


def starting(seconds: float, peer_took: float | None = 60.0) -> Fleet:
    """Engine 1 has been starting for so long; engine 2 took `peer_took` for it, a while ago."""
    fleet = Fleet(engines=4, seconds=600)
    told = fleet._full(0.0)
    lately = fleet.last(seconds)
    told[1, lately] = seconds - (NOW - fleet.times[lately])
    fleet.up[1, lately], fleet.took[1, lately] = 0.0, 0.001
    fleet.arrivals[1, lately] = 0.0
    if peer_took is not None:
        told[2, 40 : 40 + round(peer_took / 2)] = 2.0 * np.arange(1, round(peer_took / 2) + 1)
        fleet.up[2, 40 : 40 + round(peer_took / 2)] = 0.0
        fleet.took[2] = 0.001
    fleet.changed["engine.starting_seconds"] = told
    return fleet


def test_a_start_that_takes_far_longer_than_a_peers_is_slow_and_neither_dead_nor_silent(seen: Seen) -> None:
    assert seen(starting(180).window())["e-1"] == {Symptom.START_SLOW}


@pytest.mark.parametrize(("seconds", "peer"), [(80, 60.0), (300, None), (100, 90.0)])
def test_a_start_within_what_starts_take_is_let_go_on(seconds: float, peer: float | None, seen: Seen) -> None:
    assert "e-1" not in seen(starting(seconds, peer).window())


def test_with_nothing_to_compare_a_start_is_slow_after_minutes(seen: Seen) -> None:
    assert seen(starting(500, None).window())["e-1"] == {Symptom.START_SLOW}


def test_one_start_after_the_other_is_a_death_again(seen: Seen) -> None:
    fleet = starting(120)
    fleet.changed["engine.starting_seconds"][1, fleet.last(120)] = np.tile([2.0, 4.0, 6.0, 8.0], 15)
    assert Symptom.TARGET_REFUSED in seen(fleet.window())["e-1"]


def gpus(fleet: Fleet, used: Floats, own: Floats) -> Window:
    """The window with one GPU an engine."""
    window = fleet.window()
    things = tuple(Entity(EntityKind.GPU, f"n-{row}:0") for row in range(fleet.engines))
    relations = [(engine, Relation.RUNS_ON, gpu) for engine, gpu in zip(window.topology.engines, things, strict=True)]
    facts = [EngineFacts(engine.name, "http://x", "m-0") for engine in window.topology.engines]
    at = np.broadcast_to(fleet.times, fleet.shape)
    told = {"gpu.memory_used": used, "gpu.memory_own": own, "gpu.memory_total": fleet._full(80.0 * GIB)}
    table = Table(NOW, things, fleet.times, {name: SignalMatrix(value, at) for name, value in told.items()})
    return replace(window, topology=Topology(facts, relations), tables=MappingProxyType({EntityKind.GPU: table}))


@pytest.mark.parametrize("known", [True, False], ids=["whose memory is known", "whose memory is not known"])
def test_memory_that_was_held_before_a_start_and_all_through_it_blocks_it(*, known: bool, findings: Find) -> None:
    fleet = starting(60)
    used, own = fleet._full(70.0 * GIB), fleet._full(70.0 * GIB)
    own[1, fleet.last(60)] = 0.0
    found = findings(gpus(fleet, used, own if known else own * np.nan))
    assert Symptom.START_MEMORY_HELD in shown(found).get("e-1", set())


@pytest.mark.parametrize("known", [True, False], ids=["whose memory is known", "whose memory is not known"])
def test_memory_that_the_start_itself_takes_does_not_block_it(*, known: bool, findings: Find) -> None:
    fleet = starting(60)
    used = fleet._full(70.0 * GIB)
    used[1, fleet.last(60)] = np.linspace(1.0, 70.0, 30) * GIB
    assert shown(findings(gpus(fleet, used, used.copy() if known else used * np.nan))) == {}


# --- doors ------------------------------------------------------------------------------------------------------------


def idle_behind(rows: list[int]) -> Window:
    fleet = Fleet(engines=5)
    fleet.running = fleet._full(3.0)
    for row in rows:
        fleet.running[row, fleet.last(30)] = 0.0
    window = fleet.window()
    window.signals["door.in_flight"].values[np.ix_(rows, range(fleet.shape[1] - 15, fleet.shape[1]))] = 9.0
    return window


def test_requests_that_hang_at_the_door_of_idle_engines_are_the_doors(findings: Find) -> None:
    found = [one for one in findings(idle_behind(list(range(5)))) if one.symptom is Symptom.DOOR_FAILING]
    assert [one.entity for one in found] == [DOOR]
    assert "idle" in found[0].evidence[0].says


def test_one_idle_engine_with_requests_at_the_door_is_not_the_doors(findings: Find) -> None:
    assert Symptom.DOOR_FAILING not in {one.symptom for one in findings(idle_behind([2]))}


def forgotten(*, queued: bool, drained: bool = False) -> Window:
    fleet = Fleet(engines=4)
    fleet.arrivals[3] = 0.0
    fleet.running = fleet._full(4.0)
    fleet.running[3] = 0.0
    if queued:
        fleet.waiting[:3, fleet.last(150)] = 5.0
    gate = fleet._full(0.0)
    gate[3] = float(drained)
    fleet.changed["door.drained"] = gate
    return fleet.window()


def test_several_engines_that_stop_getting_anything_at_once_are_forgotten_though_nobody_queues(findings: Find) -> None:
    for rows, told in (([2, 3], True), ([3], False)):
        fleet = Fleet(engines=6)
        fleet.running = fleet._full(4.0)
        for row in rows:
            fleet.arrivals[row, fleet.last(140)] = 0.0
            fleet.running[row, fleet.last(138)] = 0.0
        assert (Symptom.DOOR_STARVES in {one.symptom for one in findings(fleet.window())}) is told


@pytest.mark.parametrize(("weight", "told"), [(1.0, True), (0.05, False), (0.0, False)])
def test_a_door_that_tells_its_weights_is_found_out_at_less_traffic(weight: float, *, told: bool, findings: Find) -> None:
    fleet = Fleet(engines=6)
    fleet.running, fleet.arrivals[:] = fleet._full(1.0), 0.6
    fleet.changed["door.weight"] = fleet._full(1.0)
    for row in (2, 3):
        fleet.arrivals[row, fleet.last(140)], fleet.running[row, fleet.last(138)] = 0.0, 0.0
        fleet.changed["door.weight"][row] = weight
    assert (Symptom.DOOR_STARVES in {one.symptom for one in findings(fleet.window())}) is told


def test_where_all_weights_are_zero_nobody_was_forgotten(findings: Find) -> None:
    fleet = Fleet(engines=4)
    fleet.arrivals[:], fleet.running = 0.0, fleet._full(0.0)
    fleet.changed["door.weight"] = fleet._full(0.0)
    assert Symptom.DOOR_STARVES not in {one.symptom for one in findings(fleet.window())}


def test_an_engine_that_the_door_forgot_while_others_queue_is_told_of_the_door(findings: Find) -> None:
    found = [one for one in findings(forgotten(queued=True)) if one.symptom is Symptom.DOOR_STARVES]
    assert [one.entity for one in found] == [DOOR]
    assert "e-3" in found[0].evidence[0].says


@pytest.mark.parametrize(("queued", "drained"), [(False, False), (True, True)], ids=["nobody queues", "drained by order"])
def test_an_engine_without_traffic_for_a_reason_is_not_forgotten(*, queued: bool, drained: bool, findings: Find) -> None:
    assert Symptom.DOOR_STARVES not in {one.symptom for one in findings(forgotten(queued=queued, drained=drained))}


def test_a_limit_before_all_engines_keeps_their_batches_small(findings: Find) -> None:
    fleet = Fleet(engines=5)
    fleet.running = fleet._full(12.0)
    fleet.running[:, fleet.last(60)] = 1.0
    fleet.waiting[:, fleet.last(60)] = 20.0
    found = [one for one in findings(fleet.window()) if one.symptom is Symptom.DOOR_FAILING]
    assert [one.entity for one in found] == [DOOR]
    assert "too few" in found[0].evidence[0].says


@pytest.mark.parametrize(("prompt", "told"), [(80.0, True), (400.0, False)], ids=["as much work as before", "long prompts"])
def test_a_crowd_before_half_empty_batches_is_a_limit_unless_there_is_more_to_compute(
    prompt: float, *, told: bool, findings: Find
) -> None:
    fleet = Fleet(engines=5)
    fleet.running = fleet._full(5.0)
    lately = fleet.last(60)
    fleet.running[:, lately], fleet.waiting[:, lately], fleet.prompt[:, lately] = 2.0, 20.0, prompt
    assert (Symptom.DOOR_FAILING in {one.symptom for one in findings(fleet.window())}) is told


# --- series -----------------------------------------------------------------------------------------------------------


def without_since(window: Window, names: tuple[str, ...], seconds: float) -> Window:
    """The window in which these scalar signals stopped coming, for all engines at once."""
    gone = window.times > NOW - seconds
    signals = dict(window.signals)
    for name in names:
        matrix = signals[name]
        signals[name] = SignalMatrix(np.where(gone, np.nan, matrix.values), np.where(gone, np.nan, matrix.sampled_at))
    return replace(window, signals=MappingProxyType(signals))


@pytest.mark.parametrize("name", ["engine.kv_usage", "engine.running", "engine.steps", "engine.generation_tokens"])
def test_a_name_that_vanishes_everywhere_at_once_was_renamed_and_no_engine_is_ill(name: str, findings: Find) -> None:
    found = findings(without_since(Fleet(engines=5).window(), (name,), 40.0))
    assert [(one.symptom, one.entity) for one in found] == [(Symptom.SERIES_VANISHED, SCRAPE)]
    assert name in found[0].evidence[0].says


def test_a_source_that_falls_silent_lost_no_name(findings: Find) -> None:
    window = Fleet(engines=5).window()
    own = tuple(name for name in window.signals if name.startswith("engine."))
    gone = replace(without_since(window, own, 40.0), histograms=MappingProxyType({}))
    assert Symptom.SERIES_VANISHED not in {one.symptom for one in findings(gone)}


def test_a_name_that_one_engine_lacks_was_not_renamed(findings: Find) -> None:
    window = Fleet(engines=5).window()
    matrix = window.signals["engine.kv_usage"]
    matrix.values[2, window.times > NOW - 40.0] = np.nan
    assert shown(findings(window)) == {}


def doubled(seconds: float) -> Window:
    fleet = Fleet(engines=4)
    window = fleet.window()
    for name, matrix in window.signals.items():
        if name.startswith("engine.") and name not in {"engine.process_start", "engine.awake", "engine.kv_usage"}:
            matrix.values[1, fleet.last(seconds)] *= 2.0
    return window


@pytest.mark.parametrize("seconds", [10.0, 60.0, 150.0])
def test_counters_that_jump_to_twice_their_value_together_are_counted_twice(seconds: float, findings: Find) -> None:
    found = [one for one in findings(doubled(seconds)) if one.symptom is Symptom.SERIES_DOUBLED]
    assert [one.entity for one in found] == [SCRAPE]
    assert "e-1" in found[0].evidence[0].says


def test_a_doubling_that_is_over_is_over(findings: Find) -> None:
    fleet = Fleet(engines=4)
    window = fleet.window()
    for name, matrix in window.signals.items():
        if name.startswith("engine.") and name not in {"engine.process_start", "engine.awake", "engine.kv_usage"}:
            matrix.values[1, slice(60, 90)] *= 2.0
    assert Symptom.SERIES_DOUBLED not in {one.symptom for one in findings(window)}


def test_users_who_come_back_to_a_young_engine_double_no_series(findings: Find) -> None:
    fleet = Fleet(engines=5)
    fleet.start[1, fleet.last(60)] = NOW - 60.0
    fleet.arrivals[1, fleet.last(60)] = 0.0
    fleet.arrivals[1, fleet.last(10)] = fleet.arrivals[0, 0]
    window = fleet.window()
    young, back = fleet.last(60), fleet.last(10)
    for name in ("engine.steps", "engine.step_tokens", "engine.prompt_tokens", "engine.generation_tokens"):
        own = window.signals[name].values[1]
        own[young] = 300.0
        own[back] = 600.0 + 20.0 * np.arange(own[back].size)
        window.signals[name].values[[0, 2, 3, 4]] = 5000.0 + 290.0 * np.arange(own.size)
    assert Symptom.SERIES_DOUBLED not in {one.symptom for one in findings(window)}


@pytest.mark.parametrize("engines", [1, 2, 5])
def test_few_peers_hide_no_doubled_counters(engines: int, findings: Find) -> None:
    fleet = Fleet(engines=engines)
    window = fleet.window()
    for name in ("engine.steps", "engine.step_tokens", "engine.prompt_tokens", "engine.generation_tokens"):
        window.signals[name].values[0] = 50_000.0 + 290.0 * np.arange(fleet.shape[1])
        window.signals[name].values[0, fleet.last(20)] *= 2.0
    assert Symptom.SERIES_DOUBLED in {one.symptom for one in findings(window)}


@pytest.mark.parametrize("engines", [1, 4])
def test_a_restart_and_a_doubled_load_double_no_series(engines: int, findings: Find) -> None:
    fleet = Fleet(engines=engines)
    fleet.start[0, fleet.last(100)] = NOW - 100.0
    fleet.arrivals[:, fleet.last(80)] *= 2.0
    assert Symptom.SERIES_DOUBLED not in {one.symptom for one in findings(fleet.window())}
