"""The pure parts of the door: choice among engines, ejection, and the retry budget."""

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.gateway.balance import Load, choose
from serving.gateway.ejection import EjectionPolicy, Failure, Health, after_answer, after_failure
from serving.gateway.retry_budget import RetryBudget

POLICY = EjectionPolicy(connection_failures=2, failures=5, base_s=10, factor=2, most_s=60, forget_s=100)
loads = st.lists(
    st.builds(Load, st.uuids().map(str), st.integers(0, 1000), st.floats(0.01, 100)), max_size=8, unique_by=lambda x: x.name
)


def shares(candidates: list[Load], draws: int = 4000) -> dict[str, float]:
    rng = Random(7)
    counts = Counter(choose(candidates, rng) for _ in range(draws))
    return {load.name: counts[load.name] / draws for load in candidates}


@given(loads, st.integers(0, 2**32))
def test_one_of_the_candidates_is_chosen_and_never_the_most_loaded_of_several(candidates: list[Load], seed: int) -> None:
    name = choose(candidates, Random(seed))
    assert (name is None) == (not candidates)
    if len(candidates) > 1:
        worst = max(load.pressure for load in candidates)
        rest = [load for load in candidates if load.pressure < worst]
        if len(rest) == len(candidates) - 1:
            assert name in {load.name for load in rest}


@given(loads, st.integers(0, 2**32))
def test_the_same_seed_chooses_the_same(candidates: list[Load], seed: int) -> None:
    assert choose(candidates, Random(seed)) == choose(candidates, Random(seed))


def test_an_idle_fleet_is_shared_evenly() -> None:
    assert all(abs(share - 0.25) < 0.03 for share in shares([Load(name, 0) for name in "abcd"]).values())


def test_an_idle_fleet_is_shared_by_weight() -> None:
    assert shares([Load("a", 0, 0.25), Load("b", 0, 1.0)])["a"] == pytest.approx(0.2, abs=0.03)


def test_a_busy_fleet_evens_out_requests_for_each_unit_of_weight() -> None:
    rng, flying = Random(1), {"light": 0, "heavy": 0}
    for _ in range(300):
        name = choose([Load("light", flying["light"], 1.0), Load("heavy", flying["heavy"], 2.0)], rng)
        flying[str(name)] += 1
    assert flying["heavy"] == pytest.approx(200, abs=4)


def test_the_lesser_loaded_of_two_keeps_the_largest_load_near_the_mean() -> None:
    rng, flying = Random(1), dict.fromkeys(map(str, range(50)), 0)
    for _ in range(50 * 100):
        flying[str(choose([Load(name, n) for name, n in flying.items()], rng))] += 1
    assert max(flying.values()) <= 104


def failed(health: Health, *failures: Failure, now: float = 0.0, last: bool = False) -> Health:
    for failure in failures:
        health = after_failure(health, failure, now, POLICY, last=last)
    return health


def test_two_refused_connections_eject() -> None:
    assert not failed(Health(), Failure.CONNECTION).ejected(0)
    assert failed(Health(), Failure.CONNECTION, Failure.CONNECTION).ejected(9.9)
    assert not failed(Health(), Failure.CONNECTION, Failure.CONNECTION).ejected(10)


def test_errors_and_timeouts_need_five_in_a_row() -> None:
    mixed = [Failure.SERVER_ERROR, Failure.TIMEOUT, Failure.CONNECTION, Failure.TIMEOUT]
    assert not failed(Health(), *mixed).ejected(0)
    assert failed(Health(), *mixed, Failure.SERVER_ERROR).ejected(0)
    assert not failed(after_answer(failed(Health(), *mixed)), Failure.SERVER_ERROR).ejected(0)


def test_each_ejection_on_end_lasts_longer_up_to_a_limit() -> None:
    health, now, lasted = Health(), 0.0, []
    for _ in range(5):
        health = failed(health, Failure.CONNECTION, Failure.CONNECTION, now=now)
        lasted.append(health.until - now)
        now = health.until
    assert lasted == [10, 20, 40, 60, 60]


def test_on_trial_one_failure_ejects_again_and_one_answer_ends_the_trial() -> None:
    health = failed(Health(), Failure.CONNECTION, Failure.CONNECTION)
    assert failed(health, Failure.TIMEOUT, now=11).ejected(30)
    assert not failed(after_answer(health), Failure.TIMEOUT, now=11).ejected(11)


def test_an_old_ejection_is_forgotten() -> None:
    health = after_answer(failed(Health(), Failure.CONNECTION, Failure.CONNECTION))
    again = failed(health, Failure.CONNECTION, Failure.CONNECTION, now=111)
    assert again.until - 111 == 10


def test_tries_sent_before_the_ejection_add_nothing() -> None:
    health = failed(Health(), Failure.CONNECTION, Failure.CONNECTION)
    assert failed(health, *[Failure.TIMEOUT] * 20, now=5) == health


@given(st.lists(st.tuples(st.sampled_from([*Failure, None]), st.floats(0, 50)), max_size=60))
def test_the_last_engine_is_never_ejected(history: list[tuple[Failure | None, float]]) -> None:
    health, now = Health(), 0.0
    for failure, later in history:
        now += later
        health = after_answer(health) if failure is None else after_failure(health, failure, now, POLICY, last=True)
        assert not health.ejected(now)


@given(st.lists(st.booleans(), max_size=300), st.floats(0, 20), st.floats(0, 1, allow_subnormal=False), st.floats(1, 20))
def test_retries_never_outrun_their_share_of_requests(events: list[bool], saved: float, ratio: float, burst: float) -> None:
    budget, requests, retries = RetryBudget(min(saved, burst), ratio, burst), 0, 0
    for is_request in events:
        if is_request:
            requests, budget = requests + 1, budget.after_request()
        elif (left := budget.spend()) is not None:
            retries, budget = retries + 1, left
        assert retries <= min(saved, burst) + ratio * requests + 1e-6
        assert 0 <= budget.tokens <= burst
