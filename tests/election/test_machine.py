"""The election as a pure function: one writer whatever the clocks, the store and the scheduler do."""

import itertools
import random

import pytest
from elections import Election, overlaps
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.election.machine import (
    Look,
    Record,
    Refused,
    Resigned,
    Rest,
    Rested,
    Saw,
    Silence,
    State,
    Write,
    Wrote,
    advance,
)
from agent.election.timing import Timing

TIMING = Timing()
OTHER = Record("b", 4, 7, 12)


def chances(seed: int) -> random.Random:
    return random.Random(seed)


def leading(now: float = 100.0) -> State:
    claim = Record("a", 5, 0, 12)
    state, _ = advance(State("a"), Wrote(claim, "v1", now), now, TIMING)
    assert state.mandate is not None
    return state


@settings(max_examples=150, deadline=None)
@given(
    st.integers(0, 2**32),
    st.integers(2, 4),
    st.sampled_from([0.0, 0.02, 0.1, 0.3, 0.6]),
    st.lists(st.floats(1, 60), max_size=4),
)
def test_no_two_lead_at_the_same_time_and_later_terms_are_higher(
    seed: int, count: int, trouble: float, crashes: list[float]
) -> None:
    election = Election(count, chances(seed).random, TIMING, trouble)
    for seconds in [*crashes, 120.0]:
        election.run(election.true + seconds)
        for leader in election.leaders()[: len(election.runners) - 1]:
            leader.crashed = bool(crashes) and sum(not r.crashed for r in election.runners) > 1
    assert overlaps(list(election.reigns.values())) == []


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(2, 3))
def test_a_crashed_leader_is_replaced_in_less_than_twenty_seconds(seed: int, count: int) -> None:
    election = Election(count, chances(seed).random, TIMING, 0.0)
    election.run(60.0)
    (leader,) = election.leaders()
    leader.crashed = True
    election.run(80.0)
    assert len(election.leaders()) == 1


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32))
def test_at_rest_nobody_is_replaced_for_hours(seed: int) -> None:
    election = Election(3, chances(seed).random, TIMING, 0.0)
    election.run(4 * 3600.0)
    assert len(election.reigns) == 1


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32))
def test_single_lost_answers_cost_nobody_the_leadership(seed: int) -> None:
    chance, election = chances(seed), Election(2, lambda: 0.5, TIMING, 0.0)
    lost = itertools.cycle([0.0, 0.9, 0.9, 0.9])  # at most every fourth request is lost
    election.chance = lambda: next(lost) if chance.random() < 0.3 else 0.5
    election.run(600.0)
    assert len({reign.holder for reign in election.reigns.values()}) == 1


def test_where_no_record_is_and_none_ever_was_the_first_claims_term_one() -> None:
    state, wish = advance(State("a"), Saw(None, ""), 0.0, TIMING)
    assert wish == Write(Record("a", 1, 0, 12), None)
    assert state.mandate is None, "a wish is no mandate"


def test_a_record_that_vanished_is_not_claimed_before_its_leader_must_have_stopped() -> None:
    state, _ = advance(State("a"), Saw(OTHER, "v1"), 10.0, TIMING)
    state, wish = advance(state, Saw(None, ""), 20.0, TIMING)
    assert wish == Rest(2.0)
    state, wish = advance(state, Saw(None, ""), 31.9, TIMING)
    assert isinstance(wish, Rest)
    assert wish.seconds == pytest.approx(0.1)
    _, wish = advance(state, Saw(None, ""), 32.0, TIMING)
    assert wish == Write(Record("a", 5, 0, 12), None), "and never a term again that was used"


def test_a_record_is_taken_only_after_it_stood_unchanged_for_the_longer_lease() -> None:
    slow = Record("b", 4, 7, 30)
    state, wish = advance(State("a"), Saw(slow, "v1"), 0.0, TIMING)
    assert wish == Rest(2.0)
    state, wish = advance(state, Saw(slow, "v2"), 29.0, TIMING)
    assert wish == Rest(1.0), "a new version of the same record is no renewal"
    _, wish = advance(state, Saw(slow, "v2"), 30.0, TIMING)
    assert wish == Write(Record("a", 5, 0, 12), "v2")


def test_a_renewal_begins_the_wait_anew() -> None:
    state, _ = advance(State("a"), Saw(OTHER, "v1"), 0.0, TIMING)
    renewed = Record("b", 4, 8, 12)
    state, _ = advance(state, Saw(renewed, "v2"), 11.0, TIMING)
    _, wish = advance(state, Saw(renewed, "v2"), 22.9, TIMING)
    assert isinstance(wish, Rest)


def test_a_record_that_was_given_back_is_claimed_at_once() -> None:
    _, wish = advance(State("a"), Saw(Record("", 4, 8, 12), "v9"), 0.0, TIMING)
    assert wish == Write(Record("a", 5, 0, 12), "v9")


def test_a_mandate_is_counted_from_before_the_write_was_sent() -> None:
    state, _ = advance(State("a"), Wrote(Record("a", 5, 0, 12), "v1", 100.0), 101.4, TIMING)
    assert state.mandate is not None
    assert (state.mandate.term, state.mandate.until) == (5, 108.0)
    assert state.mandate.expires == pytest.approx(111.4)


def test_an_answer_that_was_slept_through_gives_no_mandate() -> None:
    state, _ = advance(State("a"), Wrote(Record("a", 5, 0, 12), "v1", 100.0), 109.0, TIMING)
    assert state.mandate is None


def test_a_leader_renews_without_a_look_and_looks_first_when_an_answer_was_lost() -> None:
    state = leading()
    state, wish = advance(state, Rested(), 102.0, TIMING)
    assert wish == Write(Record("a", 5, 1, 12), "v1")
    state, wish = advance(state, Silence("no answer"), 103.5, TIMING)
    assert wish == Rest(2.0)
    state, wish = advance(state, Rested(), 105.5, TIMING)
    assert wish == Look()
    state, wish = advance(state, Saw(Record("a", 5, 1, 12), "v2"), 105.6, TIMING)
    assert wish == Write(Record("a", 5, 2, 12), "v2"), "the lost renewal had gone through"
    assert state.mandate is not None
    assert state.mandate.until == 108.0, "but what nobody heard of prolongs nothing"


def test_a_leader_that_cannot_renew_stops_before_anybody_can_take_over() -> None:
    state = leading()
    state, _ = advance(state, Silence("no answer"), 107.9, TIMING)
    assert state.mandate is not None
    state, _ = advance(state, Silence("no answer"), 108.0, TIMING)
    assert state.mandate is None
    assert state.trouble == "no answer"


def test_a_leader_that_sees_another_record_leads_no_more() -> None:
    state, wish = advance(leading(), Refused(), 101.0, TIMING)
    assert wish == Rest(2.0)
    state, wish = advance(state, Saw(Record("b", 6, 0, 12), "v7"), 103.0, TIMING)
    assert state.mandate is None
    assert wish == Rest(2.0)


def test_who_finds_its_own_record_without_a_mandate_claims_a_new_term() -> None:
    _, wish = advance(State("a"), Saw(Record("a", 5, 3, 12), "v3"), 0.0, TIMING)
    assert wish == Write(Record("a", 6, 0, 12), "v3")


def test_giving_back_ends_the_mandate_before_the_store_is_told() -> None:
    state, wish = advance(leading(), Resigned(5, give_back=True), 101.0, TIMING)
    assert state.mandate is None
    assert wish == Write(Record("", 5, 1, 12), "v1")
    state, wish = advance(state, Wrote(Record("", 5, 1, 12), "v2", 101.0), 101.1, TIMING)
    assert state.mandate is None


def test_a_deposed_leader_claims_a_term_above_the_one_it_was_deposed_by() -> None:
    state, wish = advance(leading(), Resigned(5, floor=9), 101.0, TIMING)
    assert (state.mandate, wish) == (None, Look())
    _, wish = advance(state, Saw(Record("a", 5, 0, 12), "v1"), 101.1, TIMING)
    assert wish == Write(Record("a", 10, 0, 12), "v1")


def test_a_resignation_from_a_term_that_is_over_changes_nothing() -> None:
    state = leading()
    after, _ = advance(state, Resigned(4), 101.0, TIMING)
    assert after == state


@pytest.mark.parametrize(
    ("durations", "says"),
    [
        ({"request": 2.0}, "request of 2 s is not shorter than retry of 2 s"),
        ({"renew": 5.0}, "renew of 5 s is shorter than 6.3 s"),
        ({"lease": 9.0}, "make it 10 s or more"),
    ],
)
def test_durations_that_do_not_fit_say_why(durations: dict[str, float], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Timing(**durations)
