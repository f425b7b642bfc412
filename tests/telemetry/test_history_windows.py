"""The history: what each tick's window shows of what the sources said."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.fleet.entity import Entity, EntityKind
from serving.fleet.topology import EngineFacts, Topology
from serving.telemetry.history import CLOCK_JUMPED, History
from serving.telemetry.reading import FailureKind, HistogramReading, Reading, RequestSpan, TargetFailure
from serving.telemetry.scripted import reading_of
from serving.telemetry.stages import Stage
from serving.telemetry.window import Event, Window

NAN = math.nan
NOW = 1_800_000_000.0
FIRST = Entity(EntityKind.TELEMETRY, "first")
SECOND = Entity(EntityKind.TELEMETRY, "second")


def engines(*names: str) -> Topology:
    return Topology([EngineFacts(name, "http://h", "m") for name in names])


AB = engines("a", "b")


def said(
    now: float, source: Entity = FIRST, *, sampled_at: float | None = None, topology: Topology = AB, **steps: float
) -> Reading:
    """A reading that gives engine.steps of the engines named."""
    by_engine = {name: {"engine.steps": value} for name, value in steps.items()}
    return reading_of(source, topology, now, by_engine, sampled_at=sampled_at)


def steps(window: Window) -> np.ndarray:
    return window.values("engine.steps")


def test_a_window_shows_one_column_for_each_tick_and_missing_stays_missing() -> None:
    history = History(AB)
    history.window(NOW, AB, (said(NOW, a=1, b=5),))
    history.window(NOW + 2, AB, (said(NOW + 2, a=3),))
    window = history.window(NOW + 4, AB, (said(NOW + 4, a=4, b=0),))
    np.testing.assert_equal(window.times, [NOW, NOW + 2, NOW + 4])
    np.testing.assert_equal(steps(window), [[1, 3, 4], [5, NAN, 0]])
    assert np.isnan(window.values("engine.waiting")).all()


def test_a_signal_that_first_appears_later_is_missing_before() -> None:
    history = History(AB)
    history.window(NOW, AB, ())
    window = history.window(NOW + 2, AB, (said(NOW + 2, a=3),))
    np.testing.assert_equal(steps(window), [[NAN, 3], [NAN, NAN]])


def test_nothing_older_than_the_horizon_or_the_capacity_is_shown() -> None:
    history = History(AB, horizon_seconds=10, tick_capacity=4)
    for tick in range(20):
        window = history.window(NOW + tick, AB, (said(NOW + tick, a=tick),))
    np.testing.assert_equal(window.times, NOW + np.arange(16, 20))
    window = history.window(NOW + 27, AB, ())
    np.testing.assert_equal(window.times, [NOW + 17, NOW + 18, NOW + 19, NOW + 27])
    np.testing.assert_equal(steps(window)[0], [17, 18, 19, NAN])


def test_a_window_is_frozen_and_stays_what_it_was_while_ticks_go_on() -> None:
    history = History(AB, tick_capacity=5)
    windows = []
    for tick in range(40):
        window = history.window(NOW + tick, AB, (said(NOW + tick, a=tick, b=-tick),))
        windows.append((window, steps(window).copy()))
    for window, as_it_was in windows:
        np.testing.assert_equal(steps(window), as_it_was)
    matrix = windows[-1][0].signals["engine.steps"]
    for array in (matrix.values, matrix.sampled_at, windows[-1][0].times):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0
    with pytest.raises(TypeError):
        windows[-1][0].signals["engine.steps"] = matrix  # type: ignore[index]


def test_a_later_source_fills_only_what_is_missing() -> None:
    history = History(AB)
    window = history.window(NOW, AB, (said(NOW, a=1), said(NOW, SECOND, sampled_at=NOW - 1, a=100, b=7)))
    np.testing.assert_equal(steps(window)[:, -1], [1, 7])
    np.testing.assert_equal(window.age("engine.steps"), [0, 1])


def test_the_same_sample_seen_again_grows_old() -> None:
    history = History(AB)
    for tick in range(5):
        window = history.window(NOW + 2 * tick, AB, (said(NOW + 2 * tick, sampled_at=NOW, a=1),))
    assert window.age("engine.steps")[0] == 8
    assert math.isnan(window.latest("engine.steps", within=7)[0])
    assert window.latest("engine.steps", within=8)[0] == 1
    np.testing.assert_equal(steps(window)[0], [1, NAN, NAN, NAN, NAN])


def test_an_older_sample_from_another_source_is_no_counter_reset() -> None:
    history = History(AB)
    history.window(NOW, AB, (said(NOW, SECOND, a=100),))
    history.window(NOW + 2, AB, (said(NOW + 2, FIRST, sampled_at=NOW - 10, a=40), said(NOW + 2, SECOND, a=110)))
    window = history.window(NOW + 4, AB, (said(NOW + 4, FIRST, sampled_at=NOW + 1, a=105),))
    assert window.increase("engine.steps", 60)[0] == 10


def test_a_sample_stamped_after_its_reading_is_not_younger_than_the_reading() -> None:
    history = History(AB)
    history.window(NOW, AB, (said(NOW, sampled_at=NOW + 3600, a=1),))
    window = history.window(NOW + 60, AB, ())
    assert window.age("engine.steps")[0] == 60


def test_rates_use_the_time_between_samples_not_between_ticks() -> None:
    history = History(AB)
    for tick, taken in enumerate([0, 0, 15, 15, 30]):
        window = history.window(NOW + 8 * tick, AB, (said(NOW + 8 * tick, sampled_at=NOW + taken, a=taken * 2),))
    assert window.rate("engine.steps", 60)[0] == 2


def test_a_restart_is_known_by_the_process_start() -> None:
    history = History(AB)
    for tick, (start, count) in enumerate([(100, 50), (100, 60), (900, 70)]):
        now = NOW + 2 * tick
        reading = reading_of(FIRST, AB, now, {"a": {"engine.process_start": start, "engine.steps": count}})
        window = history.window(now, AB, (reading,))
    assert window.increase("engine.steps", 60)[0] == 10 + 70


def histogram(now: float, bounds: list[float], counts: list[list[float]], source: Entity = FIRST) -> Reading:
    table = np.array(counts, dtype=float)
    reading = HistogramReading(np.array(bounds), table, table[:, -1] * 2)
    return Reading(source, now, np.full(2, now), histograms={"engine.ttft": reading})


def test_quantiles_and_means_come_from_what_was_observed_in_between() -> None:
    history = History(AB)
    history.window(NOW, AB, (histogram(NOW, [1, 2, math.inf], [[10, 10, 10], [NAN, NAN, NAN]]),))
    window = history.window(NOW + 2, AB, (histogram(NOW + 2, [1, 2, math.inf], [[10, 20, 20], [1, 1, 1]]),))
    np.testing.assert_equal(window.quantile("engine.ttft", 0.5, 60), [1.5, NAN])
    np.testing.assert_equal(window.mean("engine.ttft", 60), [2, NAN])


def test_a_histogram_goes_over_to_finer_bounds_when_an_engine_brings_them() -> None:
    history = History(AB)
    history.window(NOW, AB, (histogram(NOW, [2, math.inf], [[0, 0], [NAN, NAN]]),))
    window = history.window(NOW + 2, AB, (histogram(NOW + 2, [1, 2, math.inf], [[4, 8, 8], [1, 1, 1]]),))
    np.testing.assert_equal(window.histograms["engine.ttft"].bounds, [1, 2, math.inf])
    assert window.quantile("engine.ttft", 0.5, 60)[0] == 1.0
    window = history.window(NOW + 4, AB, (histogram(NOW + 4, [2, math.inf], [[16, 16], [NAN, NAN]]),))
    assert window.quantile("engine.ttft", 1.0, 60)[0] == 2.0


def test_engines_keep_their_past_by_name_when_the_map_changes() -> None:
    history = History(AB)
    history.window(NOW, AB, (said(NOW, a=1, b=2), histogram(NOW, [1, math.inf], [[1, 1], [2, 2]], SECOND)))
    changed = engines("c", "b")
    window = history.window(NOW + 2, changed, (said(NOW + 2, topology=changed, c=9, b=3),))
    np.testing.assert_equal(steps(window), [[NAN, 9], [2, 3]])
    np.testing.assert_equal(window.histograms["engine.ttft"].sums, [[NAN, NAN], [4, NAN]])
    assert window.topology is changed


def test_a_fleet_may_have_no_engines_at_first_and_again_later() -> None:
    history, nobody = History(engines()), engines()
    history.window(NOW, nobody, (said(NOW, topology=nobody), reading_of(SECOND, nobody, NOW, {})))
    window = history.window(NOW + 2, AB, (said(NOW + 2, a=1, b=2),))
    np.testing.assert_equal(steps(window)[:, -1], [1, 2])
    assert history.window(NOW + 4, nobody, (said(NOW + 4, topology=nobody),)).rows == 0
    np.testing.assert_equal(steps(history.window(NOW + 6, AB, (said(NOW + 6, a=3, b=4),)))[:, -1], [3, 4])


def test_a_clock_that_goes_back_starts_history_anew_and_is_told() -> None:
    history = History(AB)
    history.window(NOW, AB, (said(NOW, a=1),))
    window = history.window(NOW - 3600, AB, (said(NOW - 3600, a=2),))
    np.testing.assert_equal(steps(window)[0], [2])
    assert [event.kind for event in window.events] == [CLOCK_JUMPED]
    assert "3600.0 s" in window.events[0].text
    window = history.window(NOW - 3598, AB, (said(NOW - 3598, a=3),))
    assert window.increase("engine.steps", 60)[0] == 1


def test_what_still_fails_after_the_clock_went_back_is_told_again() -> None:
    history = History(AB)
    gone = {"a": TargetFailure(FailureKind.REFUSED, "no one there")}
    history.window(NOW, AB, (replace(said(NOW, b=1), failures=gone),))
    window = history.window(NOW - 60, AB, (replace(said(NOW - 60, b=1), failures=gone),))
    assert [event.kind for event in window.events] == [CLOCK_JUMPED, "scrape.refused"]


def test_a_failed_source_is_told_and_what_it_said_before_is_kept() -> None:
    history = History(AB)
    history.window(NOW, AB, (said(NOW, a=1),))
    broken = Reading(FIRST, NOW + 2, np.full(2, NAN), error="it is gone")
    window = history.window(NOW + 2, AB, (broken, said(NOW + 2, SECOND, b=2)))
    assert [(each.source, each.answered_at, each.error) for each in window.sources] == [
        (FIRST, NOW, "it is gone"),
        (SECOND, NOW + 2, ""),
    ]
    np.testing.assert_equal(steps(window), [[1, NAN], [NAN, 2]])


def test_a_reading_with_the_wrong_number_of_rows_is_its_sources_error() -> None:
    history = History(AB)
    wrong = reading_of(FIRST, engines("a", "b", "c"), NOW, {"c": {"engine.steps": 1}})
    window = history.window(NOW, AB, (wrong,))
    assert "(3,) for 2 engines" in window.sources[0].error
    assert not window.signals


def test_a_targets_failure_is_an_event_when_it_begins_changes_or_ends_and_not_at_each_tick() -> None:
    history = History(AB)
    refused, late = TargetFailure(FailureKind.REFUSED, "no one there"), TargetFailure(FailureKind.TIMEOUT, "no answer")
    told: list[tuple[str, str]] = []
    for tick, failures in enumerate([{}, {"a": refused}, {"a": refused, "door": late}, {"a": late}, {"a": late}, {}]):
        now = NOW + tick
        window = history.window(now, AB, (replace(said(now, b=tick), failures=failures),))
        told += [(event.kind, str(event.entity)) for event in window.events if event.at == now]
    assert told == [
        ("scrape.refused", "engine/a"),
        ("scrape.timeout", "gateway/door"),
        ("scrape.timeout", "engine/a"),
        ("scrape.recovered", "gateway/door"),
        ("scrape.recovered", "engine/a"),
    ]


def test_events_come_in_the_order_of_their_time_and_leave_with_the_horizon() -> None:
    history = History(AB, horizon_seconds=10)
    events = tuple(Event(NOW + at, "k", Entity.engine("a"), str(at)) for at in (5, -3, 0))
    window = history.window(NOW + 6, AB, (Reading(FIRST, NOW + 6, np.full(2, NAN), events=events),))
    assert [event.text for event in window.events] == ["-3", "0", "5"]
    window = history.window(NOW + 12, AB, ())
    assert [event.text for event in window.events] == ["5"]


def finished(engine: str, end: float, queue: float | None = None, decode: float | None = None) -> RequestSpan:
    return RequestSpan(engine, end - 1, end, queue, None, decode, None, 10, 10)


def with_spans(now: float, *spans: RequestSpan, in_flight: float | None = None) -> Reading:
    reading = reading_of(FIRST, AB, now, {} if in_flight is None else {"a": {"door.in_flight": in_flight}})
    return replace(reading, spans=spans)


def test_stage_statistics_stand_beside_the_requests_in_flight() -> None:
    history = History(AB, span_seconds=60)
    spans = [finished("a", NOW - age, queue=float(age), decode=0.5) for age in range(50)]
    window = history.window(NOW, AB, (with_spans(NOW, *spans, finished("stranger", NOW), in_flight=3),))
    stages = window.stages
    assert stages is not None
    np.testing.assert_equal(stages.finished, [50, NAN])
    np.testing.assert_equal(stages.in_flight, [3, NAN])
    assert stages.mean[Stage.QUEUE][0] == 24.5
    assert stages.p95[Stage.QUEUE][0] == pytest.approx(np.percentile(np.arange(50), 95))
    assert stages.mean[Stage.DECODE][0] == 0.5
    assert np.isnan(stages.mean[Stage.TRANSFER]).all()
    later = history.window(NOW + 30, AB, ()).stages
    assert later is not None
    assert later.finished[0] == 30, "requests that ended over 60 s ago no longer count"
    later = history.window(NOW + 100, AB, ()).stages
    assert later is not None
    assert later.finished[0] == 0, "an engine that traces and finished nothing finished zero"
    assert np.isnan(later.in_flight).all(), "an old count of requests in flight is missing"


def test_without_traces_and_without_a_door_there_are_no_stage_statistics() -> None:
    assert History(AB).window(NOW, AB, (said(NOW, a=1),)).stages is None


def test_stage_statistics_follow_an_engine_over_a_change_of_the_map() -> None:
    history = History(AB)
    history.window(NOW, AB, (with_spans(NOW, finished("a", NOW), finished("b", NOW), finished("b", NOW)),))
    stages = history.window(NOW + 1, engines("b", "c"), ()).stages
    assert stages is not None
    np.testing.assert_equal(stages.finished, [2, NAN])


@given(
    st.lists(st.lists(st.one_of(st.none(), st.integers(0, 5)), min_size=2, max_size=2), min_size=1, max_size=30),
    st.integers(2, 6),
)
@settings(max_examples=50)
def test_a_window_is_the_tail_of_all_that_was_said(ticks: list[list[int | None]], capacity: int) -> None:
    history = History(AB, horizon_seconds=1000, tick_capacity=capacity)
    for tick, (a, b) in enumerate(ticks):
        given_steps = {name: float(value) for name, value in (("a", a), ("b", b)) if value is not None}
        window = history.window(NOW + tick, AB, (said(NOW + tick, **given_steps),))
    expected = np.array([[NAN if value is None else value for value in tick] for tick in ticks[-capacity:]], dtype=float).T
    np.testing.assert_equal(steps(window), expected)


@pytest.mark.parametrize("arguments", [{"horizon_seconds": 0}, {"tick_capacity": 1}, {"span_seconds": -1}])
def test_a_history_without_a_past_is_refused(arguments: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="a history needs"):
        History(AB, **arguments)  # type: ignore[arg-type]
