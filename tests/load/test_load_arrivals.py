"""Who comes when and wants what: pure, seeded and bounded; and a summary that stays small."""

from itertools import pairwise
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.load.arrivals import Arrival, LoadError, LoadPlan, arrivals
from serving.load.patterns import PATTERNS, Lengths, Pattern
from serving.load.tally import Finished, Spread, Tally

URL = "http://127.0.0.1:1"


def plan(pattern: str = "steady", **more: object) -> LoadPlan:
    return LoadPlan(PATTERNS[pattern], URL, "m", **more)  # type: ignore[arg-type]


def test_the_same_seed_makes_the_same_arrivals_and_another_seed_others() -> None:
    assert list(arrivals(plan(seed=3))) == list(arrivals(plan(seed=3)))
    assert list(arrivals(plan(seed=3))) != list(arrivals(plan(seed=4)))


def test_clients_come_at_the_given_rate_and_independently() -> None:
    gaps = np.diff([a.at for a in arrivals(plan(rps=50, seconds=100, prompt_tokens=1))])
    assert gaps.mean() == pytest.approx(1 / 50, rel=0.05)
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.1)  # as an exponential spread has it


def test_a_surge_is_eight_times_the_rate() -> None:
    assert plan("surge", rps=2).rate == 16
    assert len(list(arrivals(plan("surge", rps=2, seconds=60)))) == pytest.approx(8 * 120, rel=0.15)


@given(st.floats(0.1, 100), st.floats(0.1, 20), st.integers(1, 50), st.integers(0, 9), st.sampled_from(sorted(PATTERNS)))
def test_arrivals_are_in_order_and_within_every_bound(
    rps: float, seconds: float, most: int, seed: int, pattern: str
) -> None:
    made = list(arrivals(plan(pattern, rps=rps, seconds=seconds, max_requests=most, seed=seed)))
    assert len(made) <= most
    assert all(0 <= a.at < seconds for a in made)
    assert all(a.at <= b.at for a, b in pairwise(made))
    wanted = PATTERNS[pattern]
    for arrival in made:
        assert wanted.prompt.low <= len(arrival.prompt) <= wanted.prompt.high
        assert wanted.output.low <= arrival.max_tokens <= wanted.output.high


def test_lengths_given_replace_the_patterns() -> None:
    made: list[Arrival] = list(arrivals(plan("kv-flood", prompt_tokens=7, output_tokens=9)))
    assert {(len(a.prompt), a.max_tokens) for a in made} == {(7, 9)}


def test_lengths_spread_around_their_median() -> None:
    rng, lengths = Random(0), Lengths(100, 0.5, 10, 1000)
    drawn = [lengths.draw(rng) for _ in range(2000)]
    assert np.median(drawn) == pytest.approx(100, rel=0.1)
    assert min(drawn) < 50
    assert max(drawn) > 200


@pytest.mark.parametrize("pattern", PATTERNS.values(), ids=lambda p: p.name)
def test_every_pattern_is_bounded_unless_told_otherwise(pattern: Pattern) -> None:
    assert 0 < pattern.rps * pattern.factor * pattern.seconds < 5000
    assert pattern.summary


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"rps": 0.0}, "rps is 0"),
        ({"rps": -1.0}, "rps is -1"),
        ({"rps": float("nan")}, "rps is nan"),
        ({"rps": 1e9}, "rps is 1e\\+09"),
        ({"seconds": 0.0}, "seconds is 0"),
        ({"prompt_tokens": 0}, "prompt_tokens is 0"),
        ({"max_in_flight": 0}, "max_in_flight is 0"),
    ],
)
def test_a_load_without_bounds_is_refused(more: dict[str, float], says: str) -> None:
    with pytest.raises(LoadError, match=says):
        plan(**more)


@pytest.mark.parametrize("url", ["http://example.com", "http://10.0.0.1:8100", "http://0.0.0.0:1"])
def test_load_stays_on_this_machine_unless_it_is_allowed_elsewhere(url: str) -> None:
    with pytest.raises(LoadError, match="--allow-remote"):
        LoadPlan(PATTERNS["steady"], url, "m")
    LoadPlan(PATTERNS["steady"], url, "m", allow_remote=True)


@pytest.mark.parametrize("url", ["", "127.0.0.1:8100", "ftp://127.0.0.1", "http://"])
def test_what_is_no_base_url_is_refused(url: str) -> None:
    with pytest.raises(LoadError, match="is not a base URL"):
        LoadPlan(PATTERNS["steady"], url, "m")


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "http://localhost:1/", "http://[::1]:1"])
def test_this_machine_has_several_names(url: str) -> None:
    LoadPlan(PATTERNS["steady"], url, "m")


@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=300), st.sampled_from([0.5, 0.95, 0.99, 1.0]))
def test_a_quantile_is_within_a_bin_of_the_truth(times: list[float], share: float) -> None:
    spread = Spread()
    for seconds in times:
        spread.add(seconds)
    truth = float(np.quantile(times, share, method="inverted_cdf"))
    assert spread.quantile(share) == pytest.approx(truth, rel=0.03)


def test_a_spread_stays_small_however_many_times_it_holds() -> None:
    spread = Spread()
    for n in range(100_000):
        spread.add((n % 10_000) / 10)
    assert len(spread.bins) < 350
    assert Spread().quantile(0.5) is None


def test_a_tally_tells_failures_from_clients_that_left() -> None:
    tally = Tally(sent=4)
    for outcome in ("ok", "client_closed", "http_503", "timeout"):
        tally.add(Finished(outcome, 1.0, 0.1, "sim-0"))
    assert (tally.ok, tally.failed) == (1, 2)
    assert tally.summary()["outcomes"] == {"client_closed": 1, "http_503": 1, "ok": 1, "timeout": 1}
    assert tally.summary()["by_engine"] == {"sim-0": 4}
    assert "1 http_503" in tally.line(3.0)
    assert "no first token yet" in Tally().line(0.0)
