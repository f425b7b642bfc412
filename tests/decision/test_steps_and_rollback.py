"""Where an attempt stands, which action is due next, and what is taken back when it fails."""

from typing import Any

import pytest

from actuators.action import OutcomeStatus
from agent.decision.decide import advance, decide
from agent.decision.decision import Reason, Verdict
from agent.decision.rollback import rollback_progress
from agent.decision.state import FleetState
from agent.decision.steps import Stage, changes, progress, step_key
from agent.incident import (
    Ended,
    Ending,
    Incident,
    IncidentState,
    RollbackStarted,
    StepPassed,
    SymptomsGone,
    Withdrawn,
    apply,
)
from runbooks.runbook import Runbook

FAILED, DONE = OutcomeStatus.FAILED, OutcomeStatus.DONE


def hung(world: Any, *passed: str) -> Incident:
    incident = world.begun(world.opened("engine.hung", at=world.now - 600), "engine-hung", at=world.now - 590)
    return world.passed(incident, *passed, at=world.now - 580)


def stands(world: Any, incident: Incident, fleet: Any = None) -> Any:
    state = (fleet or world.fleet(4)).state([incident])
    return progress(incident, world.library.for_cause(incident.cause), state, world.specs, now=state.now)


def back(world: Any, incident: Incident, fleet: Any = None) -> Any:
    state = (fleet or world.fleet(4)).state([incident])
    return rollback_progress(incident, world.library.for_cause(incident.cause), state, world.specs, now=state.now)


def rolling(incident: Incident, at: float) -> Incident:
    return apply(incident, RollbackStarted(incident.id, at, "failed"))


def test_a_probe_that_fails_as_the_cause_predicts_is_passed(world: Any) -> None:
    assert stands(world, world.did(hung(world), "probe", "engine.canary", FAILED)).stage is Stage.PASSED


def test_until_is_only_told_by_samples_taken_after_the_action(world: Any) -> None:
    incident = hung(world, "probe", "drain")
    just_now = world.did(incident, "restart", "process.restart", at=world.now)
    waiting = stands(world, just_now)
    assert waiting.stage is Stage.HOLDING
    assert "ready could not be read" in waiting.says
    earlier = world.did(incident, "restart", "process.restart", at=world.now - 3)
    assert stands(world, earlier).stage is Stage.PASSED


def test_a_step_that_is_late_fails_or_goes_on_as_its_runbook_says(world: Any) -> None:
    down = world.fleet(4).set("scrape.up", 0.0, 0)
    incident = world.did(hung(world, "probe", "drain"), "restart", "process.restart", at=world.now - 430)
    late = stands(world, incident, down)
    assert late.stage is Stage.LATE
    assert "allowed 420 s" in late.says
    slow = world.begun(world.opened("engine.slow", at=world.now - 600), "engine-slow", at=world.now - 590)
    slow = world.did(slow, "drain", "door.drain", at=world.now - 100)
    went_on = stands(world, slow)
    assert went_on.stage is Stage.PASSED
    assert "goes on all the same" in went_on.says


def test_nothing_is_late_while_the_target_cannot_be_seen(world: Any) -> None:
    incident = world.did(hung(world, "probe", "drain"), "restart", "process.restart", at=world.now - 430)
    assert stands(world, incident, world.fleet(4).silence(0)).stage is Stage.HOLDING


def test_a_failure_that_may_pass_is_tried_again_at_growing_distances_under_new_keys(world: Any) -> None:
    incident = world.did(hung(world, "probe", "drain"), "restart", "process.restart", FAILED, at=world.now - 3)
    assert stands(world, incident).stage is Stage.HOLDING
    incident = world.did(hung(world, "probe", "drain"), "restart", "process.restart", FAILED, at=world.now - 6)
    again = stands(world, incident)
    assert (again.stage, again.action.verb) == (Stage.DUE, "process.restart")
    assert step_key(incident, 1, "restart") == "i-1/1/restart/2"
    incident = world.did(incident, "restart", "process.restart", FAILED, at=world.now - 5)
    assert stands(world, incident).stage is Stage.HOLDING
    old = world.did(hung(world, "probe", "drain"), "restart", "process.restart", FAILED, at=world.now - 400)
    assert stands(world, old).stage is Stage.FAILED
    for_good = world.did(hung(world, "probe", "drain"), "restart", "process.restart", FAILED, permanent=True)
    assert stands(world, for_good).stage is Stage.FAILED


def test_a_withdrawn_operation_makes_its_step_due_again_under_a_new_key(world: Any) -> None:
    incident = world.did(hung(world, "probe"), "drain", "door.drain", None)
    key = incident.operations[-1].key
    incident = apply(incident, Withdrawn(incident.id, world.now, key, "paused"))
    assert stands(world, incident).stage is Stage.DUE
    assert step_key(incident, 1, "drain") != step_key(hung(world), 1, "drain")


def test_a_step_held_back_for_long_is_given_up_as_stale(world: Any) -> None:
    incident = world.begun(world.opened("engine.slow", at=world.now - 2_000), "engine-slow", at=world.now - 1_000)
    given_up = stands(world, incident)
    assert given_up.stage is Stage.FAILED
    assert "stale" in given_up.says


def test_a_runbook_that_is_gone_fails_the_attempt(world: Any) -> None:
    incident = hung(world)
    state = world.fleet(4).state([incident])
    event = advance(incident, None, state, world.specs, now=state.now)
    assert isinstance(event, RollbackStarted)


def test_undo_restores_what_was_found_and_does_nothing_where_nothing_changed(world: Any) -> None:
    incident = world.begun(world.opened("prefill.saturated"), "prefill-saturated")
    lowered = world.did(
        incident, "lower", "door.set_weight", before={"weight": 0.7}, after={"weight": 0.25}, arguments={"weight": 0.25}
    )
    due = stands(world, world.passed(lowered, "lower"))
    assert (due.action.verb, dict(due.action.arguments)) == ("door.set_weight", {"weight": 0.7})
    same = world.did(incident, "lower", "door.set_weight", before={"weight": 0.25}, after={"weight": 0.25})
    passed = stands(world, world.passed(same, "lower"))
    assert passed.stage is Stage.PASSED
    assert "nothing to take back" in passed.says


def test_what_was_changed_and_not_taken_back_is_known_newest_first(world: Any) -> None:
    incident = world.begun(world.opened("engine.slow"), "engine-slow")
    incident = world.did(incident, "drain", "door.drain")
    incident = world.did(
        incident, "lower", "door.set_weight", before={"weight": 1.0}, after={"weight": 0.5}, arguments={"weight": 0.5}
    )
    assert [c.undo.verb for c in changes(incident, world.specs)] == ["door.set_weight", "door.undrain"]
    incident = world.did(incident, "undrain", "door.undrain", before={"drained": True}, after={"drained": False})
    assert [c.undo.verb for c in changes(incident, world.specs)] == ["door.set_weight"]


def test_giving_back_what_somebody_else_had_taken_is_not_taken_back(world: Any) -> None:
    incident = world.begun(world.opened("engine.slow"), "engine-slow")
    incident = world.did(incident, "undrain", "door.undrain", before={"drained": True}, after={"drained": False})
    assert changes(incident, world.specs) == ()


def test_a_failed_attempt_puts_a_working_engine_back_into_rotation(world: Any) -> None:
    incident = world.begun(world.opened("engine.slow", at=world.now - 600), "engine-slow", at=world.now - 590)
    incident = world.did(incident, "drain", "door.drain", at=world.now - 500)
    incident = world.passed(incident, "drain", at=world.now - 450)
    incident = world.did(incident, "restart", "process.restart", FAILED, at=world.now - 10, permanent=True)
    undo = back(world, rolling(incident, world.now - 9))
    assert (undo.stage, undo.step, undo.action.verb) == (Stage.DUE, "undo.drain", "door.undrain")


def test_an_engine_that_was_not_seen_to_work_stays_out_of_rotation(world: Any) -> None:
    incident = world.did(hung(world, "probe"), "drain", "door.drain", at=world.now - 500)
    incident = world.passed(incident, "drain", at=world.now - 499)
    incident = world.did(incident, "restart", "process.restart", FAILED, at=world.now - 40, permanent=True)
    fresh = back(world, rolling(incident, world.now - 5))
    assert fresh.stage is Stage.HOLDING
    settled = back(world, rolling(incident, world.now - 35))
    assert settled.stage is Stage.COMPLETE
    assert "door.drain on engine/sim-0 still holds" in settled.says


def test_a_failed_undo_is_tried_a_few_times_and_then_told(world: Any) -> None:
    incident = world.begun(world.opened("prefill.saturated", at=world.now - 600), "prefill-saturated", at=world.now - 590)
    incident = world.did(
        incident,
        "lower",
        "door.set_weight",
        before={"weight": 1.0},
        after={"weight": 0.25},
        arguments={"weight": 0.25},
        at=world.now - 500,
    )
    incident = rolling(incident, world.now - 300)
    for tries in range(3):
        undo = back(world, incident)
        assert undo.stage is Stage.DUE, tries
        incident = world.did(incident, undo.step, "door.set_weight", FAILED, at=world.now - 200 + tries)
    assert "door.set_weight on engine/sim-0 still holds" in back(world, incident).says
    assert back(world, incident).stage is Stage.COMPLETE


def test_a_rollback_is_done_although_the_breaker_is_open_and_others_are_at_work(world: Any) -> None:
    incident = world.begun(world.opened("engine.slow", at=world.now - 600), "engine-slow", at=world.now - 590)
    incident = world.did(incident, "drain", "door.drain", at=world.now - 500)
    incident = rolling(incident, world.now - 9)
    others = [world.begun(world.opened("engine.hung", f"sim-{n}", f"b-{n}"), "engine-hung") for n in (1, 2, 3)]
    state = world.fleet(4).state([incident, *others])
    assert state.breaker.state == "open"
    decision = decide(incident, world.library.for_cause("engine.slow"), state, world.auto, world.specs, now=state.now)
    assert (decision.verdict, decision.reason, decision.action.verb) == (Verdict.ACT, Reason.ROLLBACK_DUE, "door.undrain")


def test_the_end_of_a_rollback_is_written_and_frees_its_place(world: Any) -> None:
    incident = rolling(hung(world, "probe"), world.now - 50)
    state = world.fleet(4).state([incident])
    assert state.repairs_under_way(besides="") == (incident,)
    event = advance(incident, world.library.for_cause("engine.hung"), state, world.specs, now=state.now)
    assert isinstance(event, StepPassed)
    assert state.with_incidents([apply(incident, event)]).repairs_under_way(besides="") == ()


def test_after_a_rollback_a_cause_that_stays_away_is_over(world: Any) -> None:
    incident = rolling(hung(world, "probe"), world.now - 300)
    incident = world.passed(incident, "rollback", at=world.now - 299)
    incident = apply(incident, SymptomsGone(incident.id, world.now - 130))
    book, state = world.library.for_cause("engine.hung"), world.fleet(4).state([incident])
    event = advance(incident, book, state, world.specs, now=state.now)
    assert isinstance(event, Ended)
    assert (event.state, event.ending) == (IncidentState.RESOLVED, Ending.HEALED)


def test_the_next_attempt_begins_after_the_cool_down(world: Any) -> None:
    incident = world.did(hung(world), "probe", "engine.canary", FAILED, at=world.now - 200)
    incident = world.did(world.passed(incident, "probe", at=world.now - 190), "drain", "door.drain", at=world.now - 180)
    incident = world.passed(rolling(incident, world.now - 120), "rollback", at=world.now - 100)
    decision = world.decided(world.fleet(4), incident)
    assert (decision.verdict, decision.step) == (Verdict.ACT, "probe")
    assert step_key(incident, 2, "probe") == "i-1/2/probe"


@pytest.mark.parametrize("name", ["engine.hung", "engine.dead", "engine.slow", "prefill.saturated"])
def test_templates_are_filled_in_from_the_target(world: Any, name: str) -> None:
    book: Runbook = world.library.for_cause(name)
    step = book.steps[0].model_copy(update={"do": "engine.pause", "arguments": {"mode": "${engine} of ${model}, ${node}"}})
    incident = world.begun(world.opened(name), book.name)
    state: FleetState = world.fleet(4).state([incident])
    templated = book.model_copy(update={"steps": [step]})
    due = progress(incident, templated, state, world.specs, now=state.now)
    assert dict(due.action.arguments) == {"mode": "sim-0 of m, -"}
