"""Reset-aware counters and histogram quantiles, judged by plain arithmetic, numpy, and Prometheus' own rules."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.telemetry.counters import increase, increments, last_present, newest_present, quantile, rebucket

NAN = math.nan
INF = math.inf

cells = st.one_of(st.just(NAN), st.floats(0, 1e6))
tables = st.integers(1, 6).flatmap(
    lambda width: st.lists(st.lists(cells, min_size=width, max_size=width), min_size=1, max_size=4)
)


def row(*values: float) -> np.ndarray:
    return np.array([values], dtype=float)


@pytest.mark.parametrize(
    ("values", "starts", "grown"),
    [
        ((1, 3, 6), None, 5),
        ((5, 2, 4), None, 4),  # fell to 2: the new process counted 2, then 2 more
        ((NAN, 3, NAN, 7), None, 4),
        ((3, NAN, NAN), None, NAN),
        ((NAN, NAN), None, NAN),
        ((5, 9), (100, 200), 9),  # overtook its old value after a restart: only the start time tells
        ((5, 9), (100, 100.01), 4),
        ((5, NAN, 9), (100, 200, 200), 9),  # the new start was seen before the counter was
        ((5, 9), (NAN, NAN), 4),
        ((5, 6, 9), (100, NAN, 200), 10),
    ],
)
def test_an_increase_counts_across_gaps_and_restarts(
    values: tuple[float, ...], starts: tuple[float, ...] | None, grown: float
) -> None:
    found = increase(row(*values), None if starts is None else row(*starts))
    np.testing.assert_equal(found, [grown])


@given(st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=5), min_size=1, max_size=4))
def test_an_increase_over_any_lives_of_a_process_is_all_it_counted_after_the_first_sample(lives: list[list[int]]) -> None:
    totals = [np.cumsum(steps) for steps in lives]
    values = np.concatenate(totals).astype(float)
    starts = np.concatenate([np.full(len(steps), 100.0 * (life + 1)) for life, steps in enumerate(lives)])
    expected = sum(sum(steps) for steps in lives) - lives[0][0]
    if len(values) > 1:
        assert increase(values[None, :], starts[None, :])[0] == expected


@given(tables)
def test_the_newest_present_column_is_where_a_plain_search_finds_it(table: list[list[float]]) -> None:
    values = np.array(table)
    expected = [max((column for column, value in enumerate(each) if not math.isnan(value)), default=-1) for each in table]
    assert newest_present(values).tolist() == expected
    filled = last_present(values)[:, -1]
    np.testing.assert_equal(
        filled, [each[column] if column >= 0 else NAN for each, column in zip(table, expected, strict=True)]
    )


def test_increments_stand_at_the_sample_that_brought_them() -> None:
    np.testing.assert_equal(increments(row(1, NAN, 4, 4)), row(NAN, NAN, 3, 0))


def prometheus_quantile(bounds: list[float], counts: list[float], q: float) -> float:
    """histogram_quantile() of Prometheus, written out one bucket at a time."""
    if len(bounds) < 2 or counts[-1] == 0:
        return NAN
    rank = q * counts[-1]
    bucket = next(place for place, count in enumerate(counts) if count >= rank)
    if bucket == len(bounds) - 1:
        return bounds[-2]
    if bucket == 0 and bounds[0] <= 0:
        return bounds[0]
    start = bounds[bucket - 1] if bucket else 0.0
    before = counts[bucket - 1] if bucket else 0.0
    inside = counts[bucket] - before
    return start + (bounds[bucket] - start) * ((rank - before) / inside if inside else 0.0)


histograms = st.integers(1, 6).flatmap(
    lambda size: st.tuples(
        st.lists(st.integers(-3, 50), min_size=size, max_size=size, unique=True).map(sorted),
        st.lists(st.integers(0, 9), min_size=size + 1, max_size=size + 1),
    )
)


@given(histograms, st.floats(0, 1))
def test_a_quantile_is_what_prometheus_would_say(histogram: tuple[list[int], list[int]], q: float) -> None:
    finite, observed = histogram
    bounds = [*map(float, finite), INF]
    counts = np.cumsum(observed).astype(float).tolist()
    found = quantile(np.array(bounds), np.array([counts]), q)[0]
    np.testing.assert_allclose(found, prometheus_quantile(bounds, counts, q), rtol=1e-9, atol=1e-9)


def test_a_quantile_of_fine_buckets_is_what_numpy_finds_in_the_raw_observations() -> None:
    observed = np.random.default_rng(7).gamma(2.0, 0.5, 5_000)
    bounds = np.append(np.linspace(0.01, 10, 1_000), INF)
    counts = np.array([[np.sum(observed <= bound) for bound in bounds]], dtype=float)
    for q in (0.05, 0.5, 0.95, 0.99):
        assert quantile(bounds, counts, q)[0] == pytest.approx(np.quantile(observed, q), abs=0.02)


def test_a_histogram_of_no_observation_or_no_finite_bucket_has_no_quantile() -> None:
    bounds = np.array([1.0, INF])
    assert np.isnan(quantile(bounds, np.array([[0.0, 0.0], [NAN, NAN]]), 0.5)).all()
    assert np.isnan(quantile(np.array([INF]), np.array([[3.0]]), 0.5)).all()
    with pytest.raises(ValueError, match="between 0 and 1"):
        quantile(bounds, np.array([[0.0, 1.0]]), 1.5)


@given(histograms, st.lists(st.integers(1, 60), max_size=4, unique=True), st.floats(0, 1))
def test_finer_bounds_leave_every_quantile_as_it_was(
    histogram: tuple[list[int], list[int]], more: list[int], q: float
) -> None:
    finite = [bound for bound in histogram[0] if bound > 0] or [1]
    bounds = np.array([*finite, INF], dtype=float)
    counts = np.cumsum([*histogram[1]][: len(bounds)], dtype=float)[None, :]
    inside = [bound for bound in more if bound < finite[-1]]  # beyond its last finite bound a histogram knows nothing
    wanted = np.union1d(bounds, np.array(inside, dtype=float))
    finer = rebucket(bounds, counts, wanted)
    assert (np.diff(finer, axis=1) >= 0).all(), "a cumulative count never falls"
    before, after = quantile(bounds, counts, q), quantile(wanted, finer, q)
    inside_one_bucket = not np.isclose(q * counts[0, -1], counts[0]).any()  # at an edge both ends of a gap are right
    if inside_one_bucket:
        np.testing.assert_allclose(after, before, rtol=1e-6)


def test_a_missing_histogram_stays_missing_over_other_bounds() -> None:
    assert np.isnan(rebucket(np.array([1.0, INF]), np.full((1, 2), NAN), np.array([0.5, 1.0, INF]))).all()
