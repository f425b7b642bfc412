"""A hot expert: nothing is touched where nobody feels it; else experts are spread anew where they can be, or the traffic."""

from pathlib import Path
from typing import Any

import pytest

from actuators.action import VerbSpec
from agent.decision.decide import advance
from agent.decision.decision import Reason, Verdict
from agent.diagnosis.catalogue import load_catalogue
from agent.incident import StepPassed
from runbooks.lint import Known
from runbooks.loader import load_library, load_runbook
from serving.yaml_file import FileError

REBALANCE = VerbSpec("experts.rebalance", "Spread the experts anew.", {}, takes_capacity=True)


class Hot:
    """A fleet with a hot expert on sim-0; `slow` when its users feel it."""

    def __init__(self, world: Any, *, slow: bool, balancing: float = 0.0, rebalance_seconds: float = 0.0) -> None:
        self.fleet = world.fleet(3).set("experts.imbalance", 1.4).set("experts.imbalance", 6.8, 0)
        self.fleet.set("experts.balancing", balancing).set("experts.rebalance_seconds", rebalance_seconds)
        if slow:
            self.fleet.observe("engine.inter_token", 10.0, 0.2, 0)


@pytest.fixture(scope="module")
def balanced(world: Any) -> Any:
    """The world of a fleet that offers experts.rebalance."""
    made = type(world)()
    made.specs = {**made.specs, REBALANCE.verb: REBALANCE}
    made.library = load_library(made.specs, load_catalogue().names)
    return made


def test_where_users_are_served_as_promised_nothing_is_touched(world: Any) -> None:
    decision = world.decided(Hot(world, slow=False).fleet, world.opened("experts.hot"))
    assert (decision.verdict, decision.reason) == (Verdict.REFUSE, Reason.GUARD_FALSE)
    assert "a hot expert harms nobody" in decision.says


def test_where_users_feel_it_the_traffic_is_spread_over_the_peers(world: Any) -> None:
    decision = world.decided(Hot(world, slow=True).fleet, world.opened("experts.hot"))
    assert (decision.verdict, decision.step, decision.action.verb) == (Verdict.ACT, "spread", "door.set_weight")
    assert dict(decision.action.arguments) == {"weight": 0.25}


def test_an_engine_that_balances_its_experts_is_asked_to_where_that_is_offered(balanced: Any) -> None:
    decision = balanced.decided(Hot(balanced, slow=True, balancing=1.0).fleet, balanced.opened("experts.hot"))
    assert (decision.step, decision.action.verb) == ("rebalance", "experts.rebalance")


@pytest.mark.parametrize("more", [{"balancing": 0.0}, {"balancing": 1.0, "rebalance_seconds": 45.0}])
def test_one_that_cannot_or_stands_still_for_too_long_over_it_is_not(balanced: Any, more: dict[str, float]) -> None:
    decision = balanced.decided(Hot(balanced, slow=True, **more).fleet, balanced.opened("experts.hot"))
    assert decision.action.verb == "door.set_weight"


def test_a_step_that_is_not_for_this_case_is_passed_over_and_says_why(balanced: Any) -> None:
    incident = balanced.begun(balanced.opened("experts.hot"), "experts-hot")
    state = Hot(balanced, slow=True).fleet.state([incident])
    event = advance(incident, balanced.library.for_cause("experts.hot"), state, balanced.specs, now=state.now)
    assert isinstance(event, StepPassed)
    assert event.step == "rebalance"
    assert 'signal["experts.balancing"] = 0' in event.says


def test_a_model_that_is_asked_for_it_everywhere_is_left_to_people(world: Any) -> None:
    decision = world.decided(Hot(world, slow=True).fleet, world.opened("experts.hot", "model/m"))
    assert decision.verdict is Verdict.REFUSE
    assert "who sends it must be found" in decision.says


def test_a_step_for_some_cases_that_nobody_can_do_is_left_out_and_said(world: Any) -> None:
    loaded = world.library.by_cause["experts.hot"]
    assert [step.id for step in loaded.runbook.steps] == ["spread", "restore"]
    assert loaded.left_out == ("rebalance: nobody here offers experts.rebalance",)


def test_any_other_step_that_nobody_can_do_is_a_mistake_still(world: Any, tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(
        "name: own\ncause: experts.hot\nsummary: Own.\nsteps: [{id: a, do: experts.rebalance}]\n"
        "verify: {require: [ready], hold: 1, within: 9}\nescalate: Call.\n"
    )
    with pytest.raises(FileError, match=r"experts\.rebalance"):
        load_runbook(path, Known(world.specs, load_catalogue().names))
