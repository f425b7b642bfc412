"""The executor writes what it intends before it touches the world, and never does one thing twice."""

from collections.abc import Iterable
from dataclasses import replace
from threading import Event, Thread
from typing import Any

import pytest

from actuators.action import Action, Outcome, OutcomeStatus
from actuators.scripted import Cue, ScriptedCrash
from agent.act import ExecutorParameters
from agent.decision.decision import Decision, Reason, Verdict
from agent.incident import (
    AttemptStarted,
    Decided,
    Ended,
    Ending,
    Finished,
    IncidentEvent,
    IncidentState,
    Intended,
    RollbackStarted,
    Withdrawn,
)
from agent.journal.port import PAUSE, JournalError

SETTLE = ExecutorParameters().settle


def kinds(events: Iterable[IncidentEvent]) -> list[type]:
    return [type(event) for event in events]


def test_attempt_and_intent_are_written_before_the_world_is_touched(stage: Any) -> None:
    seen: list[tuple[list[type], object]] = []
    stage.actuator.before = lambda _key: seen.append(
        (kinds(entry.event for entry in stage.journal.events())[1:], stage.world.facts(stage.incident.entity)["drained"])
    )
    events = stage.perform()
    assert seen == [([Decided, AttemptStarted, Intended], False)]
    assert kinds(events) == [Decided, AttemptStarted, Intended, Finished]
    assert events == tuple(entry.event for entry in stage.journal.events())[1:]
    assert stage.world.facts(stage.incident.entity)["drained"] is True
    after = stage.now_is()
    assert (after.attempt, after.runbook, after.state) == (1, "engine-hung", IncidentState.ACTING)
    assert after.operations[0].outcome.status is OutcomeStatus.DONE


def test_the_outcome_carries_the_time_at_which_the_action_was_over(stage: Any) -> None:
    began = stage.clock.now()
    stage.actuator.before = lambda _key: stage.clock.advance(7.0)
    stage.executor.perform(stage.incident, stage.drain, attempt=1, runbook="r", now=began)
    operation = stage.now_is().operations[0]
    assert (operation.intended_at, operation.finished_at) == (began, began + 7.0)


def test_a_clock_set_back_meanwhile_does_not_end_an_action_before_it_began(stage: Any) -> None:
    began = stage.clock.now()
    stage.actuator.before = lambda _key: stage.clock.jump(-3_600.0)
    stage.executor.perform(stage.incident, stage.drain, attempt=1, runbook="r", now=began)
    assert stage.now_is().operations[0].finished_at == began


def test_a_decision_that_is_written_already_is_not_written_again(stage: Any) -> None:
    stage.journal.append(Decided("a", stage.clock.now(), stage.drain))
    events = stage.perform()
    assert kinds(events) == [AttemptStarted, Intended, Finished]


def test_a_probe_before_any_attempt_uses_none_up(stage: Any) -> None:
    probe = replace(stage.drain, step="probe", action=Action("engine.canary", stage.incident.entity))
    stage.executor.perform(stage.incident, probe, attempt=0, runbook="r", now=stage.clock.now())
    after = stage.now_is()
    assert (after.attempt, after.state, after.operations[0].step) == (0, IncidentState.OPEN, "probe")


def test_a_step_that_is_tried_again_gets_a_key_of_its_own(stage: Any) -> None:
    stage.world.cue("door.drain", Cue.FAIL)
    stage.perform()
    stage.perform()
    operations = stage.now_is().operations
    assert [operation.outcome.status for operation in operations] == [OutcomeStatus.FAILED, OutcomeStatus.DONE]
    assert max(stage.world.calls.values()) == 1
    assert len(stage.world.calls) == 2


def test_while_paused_nothing_is_intended_and_the_reason_is_on_record(stage: Any) -> None:
    stage.journal.set_switch(PAUSE, on=True, by="ada", at=stage.clock.now(), why="a rollout")
    events = stage.perform()
    says = "paused by ada: a rollout"
    assert events == (
        Decided("a", stage.clock.now(), Decision(Verdict.WAIT, Reason.PAUSED, says, stage.drain.step, stage.drain.action)),
    )
    assert stage.perform() == ()
    assert not stage.world.calls


def test_the_big_red_button_takes_effect_between_intent_and_side_effect(stage: Any) -> None:
    append = stage.journal.append

    def pressed_after_intent(event: IncidentEvent) -> int:
        seq = append(event)
        if isinstance(event, Intended):
            stage.journal.set_switch(PAUSE, on=True, by="ada", at=stage.clock.now())
        return seq

    stage.journal.append = pressed_after_intent  # type: ignore[method-assign]
    events = stage.perform()
    assert kinds(events) == [Decided, AttemptStarted, Intended, Withdrawn]
    assert not stage.world.calls
    stage.journal.append = append  # type: ignore[method-assign]
    stage.journal.set_switch(PAUSE, on=False, by="ada", at=stage.clock.now())
    stage.perform()
    after = stage.now_is()
    assert [operation.outcome.status for operation in after.operations] == [OutcomeStatus.DONE]
    assert sum(stage.world.effects.values()) == 1


def test_an_actuator_that_raises_leaves_an_unknown_outcome_that_names_the_error(stage: Any) -> None:
    def broken(_key: str) -> None:
        raise ZeroDivisionError("by nothing")

    stage.actuator.before = broken
    stage.perform()
    after = stage.now_is()
    assert after.pending is not None
    assert after.pending.outcome == Outcome(OutcomeStatus.UNKNOWN, "door.drain raised ZeroDivisionError: by nothing")


def test_nothing_is_done_when_the_intent_cannot_be_written(stage: Any) -> None:
    append = stage.journal.append

    def full(event: IncidentEvent) -> int:
        if isinstance(event, Intended):
            raise JournalError("the disk is full")
        return append(event)

    stage.journal.append = full  # type: ignore[method-assign]
    with pytest.raises(JournalError, match="disk is full"):
        stage.perform()
    assert not stage.world.calls


def test_nothing_is_done_for_an_incident_that_ended_or_moved_on_meanwhile(stage: Any) -> None:
    stage.perform()
    assert stage.executor.perform(stage.incident, stage.drain, attempt=3, runbook="r", now=stage.clock.now()) == ()
    stage.journal.append(RollbackStarted("a", stage.clock.now(), "no help"))
    stage.journal.append(Ended("a", stage.clock.now(), IncidentState.ESCALATED, Ending.GAVE_UP, "over"))
    assert stage.perform() == ()
    assert (
        stage.executor.perform(replace(stage.incident, id="b"), stage.drain, attempt=1, runbook="r", now=stage.clock.now())
        == ()
    )
    assert sum(stage.world.calls.values()) == 1


@pytest.mark.parametrize("missing", [{"verdict": Verdict.WAIT}, {"action": None}, {"step": None}])
def test_only_a_decision_to_act_can_be_performed(stage: Any, missing: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="only a decision to act"):
        stage.executor.perform(
            stage.incident, replace(stage.drain, **missing), attempt=1, runbook="r", now=stage.clock.now()
        )


def test_recovery_writes_as_done_what_the_world_shows_as_done(stage: Any) -> None:
    stage.world.cue("door.drain", Cue.CRASH_AFTER)
    with pytest.raises(ScriptedCrash):
        stage.perform()
    assert kinds(stage.recover()) == [Finished]
    assert stage.now_is().operations[0].outcome.status is OutcomeStatus.DONE
    assert max(stage.world.effects.values()) == max(stage.world.calls.values()) == 1
    assert stage.recover() == ()


def test_recovery_withdraws_what_never_happened_once_nothing_can_be_on_its_way_any_more(stage: Any) -> None:
    stage.world.cue("door.drain", Cue.CRASH_BEFORE)
    with pytest.raises(ScriptedCrash):
        stage.perform()
    assert stage.recover() == ()
    stage.clock.advance(SETTLE)
    assert kinds(stage.recover()) == [Withdrawn]
    stage.perform()
    assert max(stage.world.calls.values()) == 1
    assert [operation.outcome.status for operation in stage.now_is().operations] == [OutcomeStatus.DONE]


def test_an_answer_that_got_lost_is_looked_up_until_somebody_can_tell(stage: Any) -> None:
    stage.world.cue("door.drain", Cue.LOST_ANSWER)
    stage.world.lookups_blocked = True
    stage.perform()
    stage.clock.advance(60.0)
    assert stage.recover() == ()
    assert stage.now_is().pending is not None
    stage.world.lookups_blocked = False
    assert kinds(stage.recover()) == [Finished]
    assert max(stage.world.effects.values()) == max(stage.world.calls.values()) == 1


def test_an_intent_of_a_dead_warden_that_nobody_can_tell_of_is_written_as_unknown_once(stage: Any) -> None:
    stage.world.cue("door.drain", Cue.CRASH_BEFORE)
    with pytest.raises(ScriptedCrash):
        stage.perform()
    stage.world.lookups_blocked = True
    assert kinds(stage.recover()) == [Finished]
    assert stage.recover() == ()
    assert stage.now_is().pending.outcome.status is OutcomeStatus.UNKNOWN


def test_what_an_escalated_incident_left_unknown_is_still_found_out(stage: Any) -> None:
    stage.world.cue("door.drain", Cue.LOST_ANSWER)
    stage.perform()
    stage.journal.append(Ended("a", stage.clock.now(), IncidentState.ESCALATED, Ending.GAVE_UP, "look at it"))
    stage.recover()
    assert stage.now_is().operations[0].outcome.status is OutcomeStatus.DONE


def test_a_step_that_never_happens_counts_as_failed_after_some_withdrawals(stage: Any) -> None:
    limit = ExecutorParameters().withdrawals
    stage.world.cue("door.drain", *[Cue.LOST_REQUEST] * (limit + 1))
    for _ in range(limit + 1):
        stage.perform()
        stage.clock.advance(SETTLE)
        stage.recover()
    after = stage.now_is()
    assert len(after.withdrawn) == limit
    assert [operation.outcome.status for operation in after.operations] == [OutcomeStatus.FAILED]
    assert max(stage.world.calls.values()) == 1


def test_a_look_up_that_raises_tells_nothing(stage: Any) -> None:
    def broken(_action: Action, _key: str) -> Outcome:
        raise OSError("no route")

    stage.world.cue("door.drain", Cue.CRASH_AFTER)
    with pytest.raises(ScriptedCrash):
        stage.perform()
    stage.actuator.look_up = broken
    stage.recover()
    assert stage.now_is().pending.outcome.detail == "looking it up raised OSError: no route"


def test_recovery_leaves_alone_what_another_thread_is_doing_right_now(stage: Any) -> None:
    begun, go_on = Event(), Event()

    def slow(_key: str) -> None:
        begun.set()
        assert go_on.wait(timeout=30)

    stage.actuator.before = slow
    acting = Thread(
        target=stage.executor.perform,
        args=(stage.incident, stage.drain),
        kwargs={"attempt": 1, "runbook": "r", "now": stage.clock.now()},
    )
    acting.start()
    assert begun.wait(timeout=30)
    stage.clock.advance(SETTLE)
    assert stage.recover() == ()
    assert stage.perform() == ()
    go_on.set()
    acting.join(timeout=30)
    assert stage.now_is().operations[0].outcome.status is OutcomeStatus.DONE
