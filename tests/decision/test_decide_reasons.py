"""Each reason of a decision, met on a small fleet with the shipped runbooks and the real verbs."""

from typing import Any

import pytest

from actuators.action import OutcomeStatus
from agent.decision.decide import advance, decide, ending_of
from agent.decision.decision import Reason, Verdict
from agent.decision.policy import BreakerSettings, Freeze, Grant, Policy, ServingBudget
from agent.decision.state import Switches
from agent.incident import (
    ApprovalAnswered,
    ApprovalAsked,
    Ending,
    Incident,
    IncidentState,
    RollbackStarted,
    StepPassed,
    SymptomsGone,
    VerificationStarted,
    apply,
)
from runbooks.runbook import Autonomy
from serving.fleet.entity import Entity


def granted(autonomy: Autonomy, **more: Any) -> Policy:
    return Policy(grants=[Grant(autonomy=autonomy)], **more)


def test_a_hung_engine_is_probed_first(world: Any) -> None:
    decision = world.decided(world.fleet(4), world.opened("engine.hung"))
    assert (decision.verdict, decision.reason) == (Verdict.ACT, Reason.STEP_DUE)
    assert (decision.step, decision.action.verb, decision.action.target) == (
        "probe",
        "engine.canary",
        Entity.engine("sim-0"),
    )
    assert "deadline_s 10.0" in decision.says


def test_the_default_policy_only_recommends_and_says_what_it_would_do(world: Any) -> None:
    decision = world.decided(world.fleet(4), world.opened("engine.hung"), policy=Policy())
    assert (decision.verdict, decision.reason) == (Verdict.REFUSE, Reason.AUTONOMY_RECOMMEND)
    assert decision.action.verb == "engine.canary"
    assert "only recommended" in decision.says


def test_observing_refuses(world: Any) -> None:
    decision = world.decided(world.fleet(4), world.opened("engine.hung"), policy=granted(Autonomy.OBSERVE))
    assert decision.reason is Reason.AUTONOMY_OBSERVE


def test_a_cause_without_steps_tells_people_whatever_was_granted(world: Any) -> None:
    decision = world.decided(world.fleet(4), world.opened("overload"))
    assert decision.reason is Reason.AUTONOMY_RECOMMEND
    assert world.library.for_cause("overload").escalate in decision.says


def test_without_a_runbook_a_person_must_look(world: Any) -> None:
    assert world.decided(world.fleet(4), world.opened("engine.hung"), runbook=None).reason is Reason.NO_RUNBOOK


@pytest.mark.parametrize("paused", [True, None])
def test_the_red_button_stops_everything_even_when_it_cannot_be_read(world: Any, *, paused: bool | None) -> None:
    decision = world.decided(world.fleet(4), world.opened("engine.hung"), switches=Switches(paused=paused))
    assert (decision.verdict, decision.reason) == (Verdict.WAIT, Reason.PAUSED)


def test_an_engine_of_which_nothing_is_known_is_left_alone(world: Any) -> None:
    decision = world.decided(world.fleet(4).silence(0), world.opened("engine.hung"))
    assert (decision.verdict, decision.reason) == (Verdict.WAIT, Reason.TARGET_BLIND)


def test_a_blind_source_holds_the_repairs_behind_it(world: Any) -> None:
    blind = world.opened("telemetry.blind", "telemetry/scrape", "i-0")
    assert world.decided(world.fleet(4), world.opened("engine.hung"), blind).reason is Reason.TARGET_BLIND


@pytest.mark.parametrize("opt_out", ["engine/sim-0", "model/m"])
def test_what_opted_out_is_left_alone(world: Any, opt_out: str) -> None:
    policy = granted(Autonomy.AUTO, opt_outs=[opt_out])
    assert world.decided(world.fleet(4), world.opened("engine.hung"), policy=policy).reason is Reason.OPTED_OUT


def test_opt_outs_seen_on_the_fleet_count_too(world: Any) -> None:
    switches = Switches(opted_out=frozenset({Entity.engine("sim-0")}))
    assert world.decided(world.fleet(4), world.opened("engine.hung"), switches=switches).reason is Reason.OPTED_OUT


def test_thin_evidence_waits(world: Any) -> None:
    assert world.decided(world.fleet(4), world.opened("engine.dead", score=0.3)).reason is Reason.EVIDENCE_THIN
    assert world.decided(world.fleet(4), world.opened("engine.hung", enough=False)).reason is Reason.EVIDENCE_THIN


def test_a_weak_diagnosis_may_be_probed_by_the_runbook_that_begins_with_the_probe(world: Any) -> None:
    assert (
        world.decided(world.fleet(4), world.opened("engine.hung", score=0.3, probe="engine.canary")).verdict is Verdict.ACT
    )


def test_a_cause_that_went_away_is_not_repaired(world: Any) -> None:
    incident = world.opened("engine.hung")
    gone = apply(incident, SymptomsGone(incident.id, world.now - 1))
    assert world.decided(world.fleet(4), gone).reason is Reason.EVIDENCE_THIN


def test_a_guard_that_is_false_refuses_with_its_reason(world: Any) -> None:
    decision = world.decided(world.fleet(4), world.opened("engine.dead"))
    assert decision.reason is Reason.GUARD_FALSE
    assert "come back by itself" in decision.says
    assert 'signal["scrape.up"] = 1' in decision.says


def test_a_guard_that_cannot_be_read_is_not_taken_for_true(world: Any) -> None:
    book = world.library.for_cause("engine.hung")
    guard = book.guards[0].model_copy(update={"require": 'signal["engine.awake"] == 1.0'})
    decision = world.decided(
        world.fleet(4), world.opened("engine.hung"), runbook=book.model_copy(update={"guards": [guard]})
    )
    assert decision.reason is Reason.GUARD_UNREADABLE


def test_one_repair_at_a_time(world: Any) -> None:
    other = world.begun(world.opened("engine.hung", "sim-1", "i-0"), "engine-hung")
    decision = world.decided(world.fleet(4), world.opened("engine.hung"), other)
    assert (decision.verdict, decision.reason) == (Verdict.WAIT, Reason.TOO_MANY_REPAIRS)
    assert "i-0 on engine/sim-1" in decision.says


def test_two_may_run_where_two_are_granted(world: Any) -> None:
    other = world.begun(world.opened("engine.hung", "sim-1", "i-0"), "engine-hung")
    policy = granted(Autonomy.AUTO, max_concurrent_repairs=2)
    assert world.decided(world.fleet(8), world.opened("engine.hung"), other, policy=policy).verdict is Verdict.ACT


def test_a_slow_engine_is_not_restarted_for_a_hot_expert_and_one_that_counts_none_is(world: Any) -> None:
    uncounted, even, hot = (world.fleet(8) for _ in range(3))
    even.set("experts.imbalance", 1.4)
    hot.set("experts.imbalance", 4.0, 0)
    for fleet, verdict in ((uncounted, Verdict.ACT), (even, Verdict.ACT), (hot, Verdict.REFUSE)):
        assert world.decided(fleet, world.opened("engine.slow")).verdict is verdict


def test_a_slow_engine_waits_for_the_serving_budget(world: Any) -> None:
    other = world.opened("engine.slow", "sim-1", "i-0")
    decision = world.decided(world.fleet(3), world.opened("engine.slow"), other)
    assert (decision.verdict, decision.reason) == (Verdict.WAIT, Reason.SERVING_BUDGET)
    assert "would leave 1 healthy engines of model/m: 1 of 3 healthy, at least 2 must stay" in decision.says


def test_the_last_engine_of_a_model_is_never_taken(world: Any) -> None:
    book = world.library.for_cause("engine.slow").model_copy(update={"guards": []})
    policy = granted(Autonomy.AUTO, serving=ServingBudget(models={"m": {"engines": 0}}))
    decision = world.decided(world.fleet(1), world.opened("engine.slow"), policy=policy, runbook=book)
    assert decision.reason is Reason.SERVING_BUDGET


def test_an_engine_probed_in_vain_takes_no_capacity_with_it(world: Any) -> None:
    incident = world.begun(world.opened("engine.hung"), "engine-hung")
    incident = world.did(incident, "probe", "engine.canary", OutcomeStatus.FAILED)
    incident = apply(incident, StepPassed(incident.id, world.now - 9, "probe", "as expected"))
    decision = world.decided(world.fleet(1), incident)
    assert (decision.verdict, decision.step, decision.action.verb) == (Verdict.ACT, "drain", "door.drain")


def test_a_dead_engine_takes_no_capacity_with_it(world: Any) -> None:
    fleet = world.fleet(1).set("scrape.up", 0.0, 0, last=10)
    assert world.decided(fleet, world.opened("engine.dead")).verdict is Verdict.ACT


def test_a_single_missed_scrape_does_not_make_an_engine_dead(world: Any) -> None:
    fleet = world.fleet(1).set("scrape.up", 0.0, 0, last=0)
    assert world.decided(fleet, world.opened("engine.dead")).reason is Reason.SERVING_BUDGET


def test_stated_zones_and_groups_keep_their_minimum_too(world: Any) -> None:
    zones = world.fleet(4, zones=("a", "b", "b", "b"))
    policy = granted(Autonomy.AUTO, serving=ServingBudget(zones={"a": {"engines": 1}}))
    decision = world.decided(zones, world.opened("engine.slow"), policy=policy)
    assert decision.reason is Reason.SERVING_BUDGET
    assert "zone/a of model/m" in decision.says
    policy = granted(Autonomy.AUTO, serving=ServingBudget(groups={"m/unknown/serve": {"engines": 4}}))
    assert "group/m/unknown/serve" in world.decided(zones, world.opened("engine.slow"), policy=policy).says


def test_a_freeze_holds_what_has_not_begun_and_lets_what_has_go_on(world: Any) -> None:
    now = world.now
    policy = granted(Autonomy.AUTO, freezes=[Freeze(begins=now - 1, ends=now + 60, because="launch")])
    incident = world.opened("engine.hung")
    held = world.decided(world.fleet(4), incident, policy=policy)
    assert (held.verdict, held.reason) == (Verdict.WAIT, Reason.CHANGE_FREEZE)
    assert "launch" in held.says
    assert world.decided(world.fleet(4), world.begun(incident, "engine-hung"), policy=policy).verdict is Verdict.ACT


def test_a_target_cools_down_between_repairs(world: Any) -> None:
    now = world.now
    before = world.repaired(world.opened("engine.hung", name="i-0", at=now - 90), now - 30)
    decision = world.decided(world.fleet(4), world.opened("engine.hung"), before)
    assert (decision.verdict, decision.reason) == (Verdict.WAIT, Reason.COOLING_DOWN)
    assert "30 s ago" in decision.says


def test_the_same_repair_again_and_again_goes_to_a_person(world: Any) -> None:
    now = world.now
    before = [
        world.repaired(world.opened("engine.hung", name=f"b-{ago}", at=now - ago - 60), now - ago)
        for ago in (300, 700, 1200)
    ]
    incident = world.opened("engine.hung")
    decision = world.decided(world.fleet(4), incident, *before)
    assert (decision.verdict, decision.reason) == (Verdict.REFUSE, Reason.INEFFECTIVE)
    assert ending_of(incident, decision) == (IncidentState.ESCALATED, Ending.GAVE_UP)


def test_repairs_that_do_not_help_open_the_breaker(world: Any) -> None:
    now = world.now
    before = []
    for number in (1, 2, 3):
        incident = world.opened("engine.hung", f"sim-{number}", f"b-{number}", now - 200)
        before.append(world.given_up(incident, now - 90 + number))
    decision = world.decided(world.fleet(9), world.opened("engine.hung"), *before)
    assert (decision.verdict, decision.reason) == (Verdict.WAIT, Reason.BREAKER_OPEN)
    assert "3 repairs in 30 min did not help" in decision.says


def test_too_much_faulty_at_once_opens_the_breaker(world: Any) -> None:
    others = [world.opened("engine.hung", f"sim-{number}", f"b-{number}") for number in (1, 2)]
    decision = world.decided(world.fleet(4), world.opened("engine.hung"), *others)
    assert decision.reason is Reason.BREAKER_OPEN
    assert "3 of 4 engines are faulty at once" in decision.says


def test_clients_that_leave_do_not_make_engines_faulty(world: Any) -> None:
    others = [world.opened("clients.leaving", f"sim-{number}", f"b-{number}") for number in (1, 2, 3)]
    assert world.decided(world.fleet(4), world.opened("engine.hung"), *others).verdict is Verdict.ACT


def test_an_unreadable_record_stops_repairs(world: Any) -> None:
    incident = world.opened("engine.hung")
    state = world.fleet(4).state(None)
    decision = decide(incident, world.library.for_cause("engine.hung"), state, world.auto, world.specs, now=state.now)
    assert decision.reason is Reason.BREAKER_OPEN


def test_an_open_breaker_lets_recoveries_through(world: Any) -> None:
    now = world.now
    incident = world.begun(world.opened("engine.hung"), "engine-hung")
    for step in ("probe", "drain", "restart", "try"):
        incident = apply(incident, StepPassed(incident.id, now - 5, step, "over"))
    others = [world.opened("engine.hung", f"sim-{number}", f"b-{number}") for number in (1, 2)]
    assert world.fleet(4).state([incident, *others]).breaker.state == "open"
    decision = world.decided(world.fleet(4), incident, *others)
    assert (decision.verdict, decision.action.verb) == (Verdict.ACT, "door.undrain")


def test_an_open_breaker_holds_a_step_that_takes_something_away(world: Any) -> None:
    now = world.now
    incident = world.begun(world.opened("engine.hung"), "engine-hung")
    incident = apply(incident, StepPassed(incident.id, now - 5, "probe", "over"))
    others = [world.opened("engine.hung", f"sim-{number}", f"b-{number}") for number in (1, 2)]
    assert world.decided(world.fleet(4), incident, *others).reason is Reason.BREAKER_OPEN


def test_half_open_lets_one_repair_try(world: Any) -> None:
    now = world.now
    policy = granted(Autonomy.AUTO, max_concurrent_repairs=5, breaker=BreakerSettings(max_unhelpful=1, open_for=60))
    failed = world.given_up(world.opened("engine.hung", "sim-3", "b-1", now - 400), now - 100)
    assert world.decided(world.fleet(8), world.opened("engine.hung"), failed, policy=policy).verdict is Verdict.ACT
    trying = world.begun(world.opened("engine.hung", "sim-2", "b-2"), "engine-hung")
    decision = world.decided(world.fleet(8), world.opened("engine.hung"), failed, trying, policy=policy)
    assert decision.reason is Reason.BREAKER_OPEN
    assert "that is incident b-2" in decision.says


def test_another_repair_of_the_target_explains_its_looks(world: Any) -> None:
    other = world.begun(world.opened("engine.hung", name="i-0"), "engine-hung")
    decision = world.decided(world.fleet(4), world.opened("engine.dead"), other)
    assert (decision.verdict, decision.reason) == (Verdict.WAIT, Reason.EXPLAINED_BY_REPAIR)


def test_another_action_that_covers_this_one_makes_it_needless(world: Any) -> None:
    other = world.begun(world.opened("engine.hung", name="i-0"), "engine-hung")
    other = world.did(other, "restart", "process.restart")
    decision = world.decided(world.fleet(4), world.opened("engine.slow"), other)
    assert (decision.verdict, decision.reason) == (Verdict.REFUSE, Reason.ALREADY_COVERED)
    assert "process.restart" in decision.says


def test_attempts_are_bounded_and_the_person_is_told_what_is_left(world: Any) -> None:
    now = world.now
    incident = world.begun(attempt_under_rollback(world), "engine-hung", 2)
    incident = apply(incident, RollbackStarted(incident.id, now - 9, "failed"))
    incident = apply(incident, StepPassed(incident.id, now - 8, "rollback", "over"))
    decision = world.decided(world.fleet(4), incident)
    assert (decision.verdict, decision.reason) == (Verdict.REFUSE, Reason.ATTEMPTS_SPENT)
    assert "2 of 2 attempts" in decision.says
    assert "door.drain on engine/sim-0 still holds" in decision.says
    assert ending_of(incident, decision) == (IncidentState.ESCALATED, Ending.GAVE_UP)


def attempt_under_rollback(world: Any) -> Incident:
    now = world.now
    incident = world.begun(world.opened("engine.hung", at=now - 500), "engine-hung", at=now - 480)
    incident = world.did(incident, "drain", "door.drain", at=now - 470)
    return apply(incident, RollbackStarted(incident.id, now - 400, "failed"))


def test_consent_is_asked_used_once_and_expires(world: Any) -> None:
    now = world.now
    policy = granted(Autonomy.APPROVE)
    incident = world.opened("engine.hung")
    asked = world.decided(world.fleet(4), incident, policy=policy)
    assert (asked.verdict, asked.reason, asked.action.verb) == (Verdict.ASK, Reason.NEEDS_APPROVAL, "engine.canary")
    waiting = apply(incident, ApprovalAsked(incident.id, now - 5, now + 60, "may I"))
    assert world.decided(world.fleet(4), waiting, policy=policy).reason is Reason.NEEDS_APPROVAL
    approved = apply(waiting, ApprovalAnswered(incident.id, now - 1, approved=True, by="ann"))
    assert world.decided(world.fleet(4), approved, policy=policy).verdict is Verdict.ACT
    rejected = apply(waiting, ApprovalAnswered(incident.id, now - 1, approved=False, by="ann"))
    decision = world.decided(world.fleet(4), rejected, policy=policy)
    assert (decision.reason, ending_of(rejected, decision)) == (
        Reason.REJECTED,
        (IncidentState.SUPPRESSED, Ending.REJECTED),
    )
    assert "ann said no" in decision.says
    expired = apply(incident, ApprovalAsked(incident.id, now - 50, now - 1, "may I"))
    assert world.decided(world.fleet(4), expired, policy=policy).reason is Reason.APPROVAL_EXPIRED


def test_consent_given_before_the_breaker_opened_is_void(world: Any) -> None:
    now = world.now
    policy = granted(Autonomy.APPROVE, breaker=BreakerSettings(max_unhelpful=1, open_for=10))
    failed = world.given_up(world.opened("engine.hung", "sim-3", "b-1", now - 400), now - 15)
    incident = world.opened("engine.hung", at=now - 60)
    incident = apply(incident, ApprovalAsked(incident.id, now - 50, now + 60, "may I"))
    incident = apply(incident, ApprovalAnswered(incident.id, now - 40, approved=True, by="ann"))
    assert world.decided(world.fleet(8), incident, policy=policy).verdict is Verdict.ACT
    assert world.decided(world.fleet(8), incident, failed, policy=policy).reason is Reason.NEEDS_APPROVAL


def test_an_unknown_outcome_is_never_repeated_and_in_the_end_a_person_is_called(world: Any) -> None:
    now = world.now
    incident = world.begun(world.opened("engine.hung", at=now - 900), "engine-hung", at=now - 880)
    for status in (None, OutcomeStatus.UNKNOWN):
        fresh = world.did(incident, "drain", "door.drain", status, at=now - 10)
        decision = world.decided(world.fleet(4), fresh)
        assert (decision.verdict, decision.reason) == (Verdict.WAIT, Reason.OUTCOME_UNKNOWN)
        old = world.did(incident, "drain", "door.drain", status, at=now - 400)
        decision = world.decided(world.fleet(4), old)
        assert decision.verdict is Verdict.REFUSE
        assert ending_of(old, decision) == (IncidentState.ESCALATED, Ending.GAVE_UP)


def test_a_probe_that_answers_rules_a_hang_out(world: Any) -> None:
    incident = world.begun(world.opened("engine.hung"), "engine-hung")
    incident = world.did(incident, "probe", "engine.canary", OutcomeStatus.DONE)
    decision = world.decided(world.fleet(4), incident)
    assert (decision.verdict, decision.reason) == (Verdict.REFUSE, Reason.CAUSE_RULED_OUT)
    assert ending_of(incident, decision) == (IncidentState.SUPPRESSED, Ending.RULED_OUT)


def test_nothing_is_decided_about_what_has_ended(world: Any) -> None:
    incident = world.ended(world.opened("engine.hung"), world.now - 1, Ending.HEALED)
    state = world.fleet(4).state([incident])
    with pytest.raises(ValueError, match="has ended"):
        decide(incident, None, state, world.auto, world.specs, now=state.now)


def test_the_same_inputs_give_the_same_decision(world: Any) -> None:
    once, again = (world.decided(world.fleet(4), world.opened("engine.hung")) for _ in range(2))
    assert once == again


def test_verification_begins_when_every_step_is_over(world: Any) -> None:
    now = world.now
    incident = world.begun(world.opened("engine.hung"), "engine-hung")
    book = world.library.for_cause("engine.hung")
    for step in book.steps:
        incident = apply(incident, StepPassed(incident.id, now - 5, step.id, "over"))
    state = world.fleet(4).state([incident])
    event = advance(incident, book, state, world.specs, now=now)
    assert event == VerificationStarted(incident.id, now)
    verifying = apply(incident, event)
    decision = decide(verifying, book, world.fleet(4).state([verifying]), world.auto, world.specs, now=now)
    assert (decision.verdict, decision.reason) == (Verdict.WAIT, Reason.VERIFYING)


@pytest.mark.parametrize(
    ("waiting", "usage", "acts"), [(0.0, 0.3, True), (1.0, 0.8, True), (4.0, 0.3, False), (0.0, 0.9, False)]
)
def test_a_full_engine_is_given_less_only_where_a_peer_has_room(
    world: Any, waiting: float, usage: float, *, acts: bool
) -> None:
    fleet = world.fleet(3).set("engine.waiting", waiting).set("engine.kv_usage", usage)
    decision = world.decided(
        fleet.set("engine.waiting", 20.0, 0).set("engine.kv_usage", 1.0, 0), world.opened("engine.kv_pressure")
    )
    assert (decision.verdict is Verdict.ACT) == acts
    assert acts or decision.reason is Reason.GUARD_FALSE


def test_a_peer_that_does_not_tell_its_room_has_none(world: Any) -> None:
    fleet = world.fleet(3)
    del fleet.rows["engine.kv_usage"]
    decision = world.decided(fleet, world.opened("engine.kv_pressure"))
    assert decision.reason is Reason.GUARD_FALSE
