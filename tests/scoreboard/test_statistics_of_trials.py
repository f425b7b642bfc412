"""Rates, counts and quantiles: against published values, and what must hold for all."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.scoreboard.statistics import Quantile, at_most, frequency, poisson_bounds, quantile, rate


@pytest.mark.parametrize(
    ("hits", "of", "low", "high"),
    [
        (0, 10, 0.0, 0.2775),  # Newcombe 1998, table of Wilson's intervals without continuity correction
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_a_rate_has_the_interval_of_wilson(hits: int, of: int, low: float, high: float) -> None:
    found = rate(hits, of)
    assert found.value == hits / of
    assert found.low == pytest.approx(low, abs=5e-5)
    assert found.high == pytest.approx(high, abs=5e-5)


@pytest.mark.parametrize(
    ("count", "low", "high"),
    [(0, 0.0, 3.6889), (1, 0.0253, 5.5716), (3, 0.6187, 8.7673), (10, 4.7954, 18.3904), (100, 81.3639, 121.6275)],
)
def test_a_count_has_the_exact_interval_of_poissons_law(count: int, low: float, high: float) -> None:
    assert poisson_bounds(count) == pytest.approx((low, high), abs=1e-3)


def test_no_event_in_some_years_bounds_the_frequency_from_above_only() -> None:
    found = frequency(0, exposure=50.0, per=1_000.0)
    assert (found.value, found.low) == (0.0, 0.0)
    assert found.high == pytest.approx(3.6889 * 20, rel=1e-4)


def test_nothing_counted_is_no_figure_and_never_a_perfect_one() -> None:
    assert rate(0, 0).value is None
    assert frequency(0, 0.0).high is None
    assert quantile([], 0.5, seed=1).value is None


@pytest.mark.parametrize(("hits", "of"), [(3, 2), (-1, 2)])
def test_more_hits_than_tries_are_refused(hits: int, of: int) -> None:
    with pytest.raises(ValueError, match="no share"):
        rate(hits, of)


@given(st.integers(1, 5_000).flatmap(lambda of: st.tuples(st.integers(0, of), st.just(of))))
def test_a_rate_lies_within_its_interval_and_the_interval_within_nought_and_one(counted: tuple[int, int]) -> None:
    found = rate(*counted)
    assert found.value is not None
    assert found.low is not None
    assert found.high is not None
    assert 0.0 <= found.low <= found.value <= found.high <= 1.0


@given(st.integers(0, 400), st.floats(0.1, 400.0))
def test_the_probability_of_at_most_so_many_events_adds_up(count: int, mean: float) -> None:
    terms = math.fsum(math.exp(k * math.log(mean) - mean - math.lgamma(k + 1)) for k in range(count + 1))
    assert at_most(count, mean) == pytest.approx(min(1.0, terms), abs=1e-9)


@given(st.integers(0, 300))
def test_at_the_bounds_of_a_count_each_tail_has_its_half_of_the_doubt(count: int) -> None:
    low, high = poisson_bounds(count)
    assert low <= count <= high
    assert at_most(count, high) == pytest.approx(0.025, abs=1e-6)
    if count:
        assert 1 - at_most(count - 1, low) == pytest.approx(0.025, abs=1e-6)


@given(st.lists(st.floats(0.0, 1e4), min_size=1, max_size=60), st.sampled_from([0.5, 0.99]))
def test_a_quantile_lies_among_its_values_and_is_the_same_for_the_same_seed(values: list[float], share: float) -> None:
    found = quantile(values, share, seed=7)
    assert found == quantile(list(reversed(values)), share, seed=7)
    assert found.value is not None
    assert found.low is not None
    assert found.high is not None
    assert min(values) - 1e-9 <= found.low <= found.high <= max(values) + 1e-9


def test_the_interval_of_a_median_covers_the_true_one_about_as_often_as_it_says() -> None:
    drawn = np.random.default_rng(3).exponential(10.0, (200, 60))
    found: list[Quantile] = [quantile(list(values), 0.5, seed=1) for values in drawn]
    covered = sum(one.low <= 10.0 * math.log(2) <= one.high for one in found if one.low is not None and one.high is not None)
    assert 0.88 <= covered / 200 <= 1.0
