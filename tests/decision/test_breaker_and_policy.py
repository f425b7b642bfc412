"""The breaker as a fold over past repairs, and what the settings of a policy come to."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from agent.decision.breaker import BreakerState, Repair, folded
from agent.decision.policy import BreakerSettings, Freeze, Grant, Minimum, Policy, ServingBudget
from runbooks.runbook import Autonomy, Runbook

SETTINGS = BreakerSettings(span=600, max_repairs=4, max_unhelpful=2, open_for=100)
RUNBOOK = Runbook.model_validate(
    {
        "name": "r",
        "cause": "c",
        "summary": "s",
        "autonomy": "approve",
        "verify": {"require": ["ready"], "hold": 1, "within": 2},
        "escalate": "call",
    }
)


def repair(at: float, *, helped: bool) -> Repair:
    return Repair(at, at - 10, f"i-{at}", helped)


def test_it_is_closed_without_history() -> None:
    assert folded([], SETTINGS, 1_000).state is BreakerState.CLOSED


def test_repairs_that_do_not_help_open_it_then_one_may_try() -> None:
    history = [repair(100, helped=False), repair(200, helped=False)]
    opened = folded(history, SETTINGS, 250)
    assert (opened.state, opened.since) == (BreakerState.OPEN, 200)
    assert "2 repairs in 10 min did not help (limit 2)" in opened.says
    assert folded(history, SETTINGS, 300).state is BreakerState.HALF_OPEN


def test_too_many_repairs_open_it_even_when_all_helped() -> None:
    history = [repair(100.0 + 10 * number, helped=True) for number in range(4)]
    assert folded(history[:3], SETTINGS, 140).state is BreakerState.CLOSED
    assert folded(history, SETTINGS, 140).state is BreakerState.OPEN


def test_old_repairs_are_forgotten() -> None:
    assert folded([repair(100, helped=False), repair(900, helped=False)], SETTINGS, 950).state is BreakerState.CLOSED


def test_the_trial_closes_it_or_opens_it_again() -> None:
    history = [repair(100, helped=False), repair(200, helped=False)]
    assert folded([*history, repair(350, helped=True)], SETTINGS, 360).state is BreakerState.CLOSED
    again = folded([*history, repair(350, helped=False)], SETTINGS, 360)
    assert (again.state, again.since, again.voids_before) == (BreakerState.OPEN, 350, 350)


def test_a_repair_begun_before_it_opened_is_no_trial() -> None:
    history = [repair(100, helped=False), repair(200, helped=False), Repair(350, 150, "old", helped=True)]
    assert folded(history, SETTINGS, 360).state is BreakerState.HALF_OPEN


@given(st.lists(st.tuples(st.floats(0, 10_000), st.booleans()), max_size=40), st.floats(0, 12_000))
def test_after_the_last_failure_that_fills_the_count_it_is_never_closed(past: list[tuple[float, bool]], now: float) -> None:
    history = sorted(repair(at, helped=helped) for at, helped in past if at <= now)
    state = folded(history, SETTINGS, now)
    assert state == folded(history, SETTINGS, now)
    ends = [r for r in history if r.finished_at > now - min(SETTINGS.span, SETTINGS.open_for)]
    if len(ends) >= SETTINGS.max_unhelpful and not any(r.helped for r in ends):
        assert state.state is not BreakerState.CLOSED


def test_the_most_specific_grant_wins_but_never_beyond_the_runbook() -> None:
    policy = Policy(
        grants=[
            Grant(autonomy=Autonomy.OBSERVE),
            Grant(cell="a", autonomy=Autonomy.RECOMMEND),
            Grant(runbook="r", autonomy=Autonomy.AUTO),
            Grant(runbook="r", cell="b", autonomy=Autonomy.OBSERVE),
        ]
    )
    other = RUNBOOK.model_copy(update={"name": "other", "autonomy": Autonomy.AUTO})
    assert policy.granted(RUNBOOK, "a") is Autonomy.APPROVE
    assert policy.granted(RUNBOOK, "b") is Autonomy.OBSERVE
    assert policy.granted(other, "a") is Autonomy.RECOMMEND
    assert policy.granted(other, "c") is Autonomy.OBSERVE
    assert Policy().granted(other, "a") is Autonomy.RECOMMEND


@given(st.integers(1, 500), st.floats(0, 1), st.integers(0, 600))
def test_a_model_always_keeps_at_least_one_engine_and_never_more_than_it_has(total: int, share: float, count: int) -> None:
    budget = ServingBudget(models={"m": Minimum(engines=count, share=share)})
    minimum = budget.for_model("m", total)
    assert 1 <= minimum <= total
    assert minimum >= min(total, count)
    assert minimum >= share * total - 1e-6


def test_half_of_the_engines_stay_by_default() -> None:
    assert [ServingBudget().for_model("m", total) for total in (1, 2, 3, 4, 5)] == [1, 1, 2, 2, 3]


@pytest.mark.parametrize(
    "wrong", [{"opt_outs": ["sim-0"]}, {"max_concurent_repairs": 2}, {"freezes": [{"begins": 2, "ends": 1}]}]
)
def test_a_wrong_policy_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Policy.model_validate(wrong)


def test_a_freeze_is_a_span() -> None:
    assert Freeze(begins=1, ends=2).cell == "*"
