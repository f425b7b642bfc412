"""Recovery is what users get, held for a while, with enough answers; no data is not success."""

from typing import Any

import pytest

from agent.decision.cost import cost_between, cost_to_users
from agent.decision.decide import advance
from agent.decision.verify import Recovery, Verified, judge_recovery
from agent.incident import Ending, IncidentState, RollbackStarted, VerificationStarted, apply
from serving.fleet.entity import Entity


def judged(world: Any, fleet: Any, cause: str = "engine.hung", waited: float = 60.0) -> Recovery:
    book = world.library.for_cause(cause)
    incident = world.begun(world.opened(cause, at=world.now - 500), book.name, at=world.now - 490)
    incident = world.did(incident, "undrain", "door.undrain", at=world.now - waited - 1)
    incident = apply(incident, VerificationStarted(incident.id, world.now - waited))
    state = fleet.state([incident])
    return judge_recovery(incident, book, state, now=state.now, since=world.now - waited)


def test_good_answers_for_long_enough_are_recovery(world: Any) -> None:
    recovery = judged(world, world.fleet(4))
    assert recovery.verified is Verified.RECOVERED
    assert 'slo["success"] = 1' in recovery.says


def test_recovery_must_hold(world: Any) -> None:
    assert judged(world, world.fleet(4), waited=10).verified is Verified.NOT_YET


def test_a_condition_that_was_false_a_moment_ago_does_not_hold_yet(world: Any) -> None:
    fleet = world.fleet(4).set("scrape.up", 0.0, 0).set("scrape.up", 1.0, 0, last=6)
    recovery = judged(world, fleet)
    assert recovery.verified is Verified.NOT_YET
    assert "ago `ready` is false" in recovery.says


def test_without_answers_nothing_is_recovered(world: Any) -> None:
    quiet = world.fleet(4).count("door.finished.ok", 0.0, 0).observe("door.ttft", 0.0, 0.1, 0)
    waiting = judged(world, quiet)
    assert waiting.verified is Verified.NOT_YET
    assert "0 answers in 20 s, 3 are needed to tell" in waiting.says
    assert judged(world, quiet, waited=110).verified is Verified.NOT_YET
    over = world.fleet(4, now=world.now + 300).count("door.finished.ok", 0.0, 0).observe("door.ttft", 0.0, 0.1, 0)
    assert judged_late(world, over).verified is Verified.NO_DATA


def judged_late(world: Any, fleet: Any) -> Recovery:
    book = world.library.for_cause("engine.hung")
    incident = world.begun(world.opened("engine.hung", at=world.now - 500), book.name, at=world.now - 490)
    state = fleet.state([incident])
    return judge_recovery(incident, book, state, now=state.now, since=world.now)


def test_failing_answers_are_not_recovery_however_many(world: Any) -> None:
    fleet = world.fleet(4).count("door.finished.timeout", 0.2, 0)
    assert judged(world, fleet).verified is Verified.NOT_YET
    late = judged_late(world, world.fleet(4, now=world.now + 300).count("door.finished.timeout", 0.2, 0))
    assert late.verified is Verified.FAILED
    assert "allowed 240 s" in late.says


def test_slow_first_tokens_are_not_recovery_unless_everybody_is_slow(world: Any) -> None:
    assert judged(world, world.fleet(4).observe("door.ttft", 1.0, 4.0, 0)).verified is Verified.NOT_YET
    assert judged(world, world.fleet(4).observe("door.ttft", 1.0, 4.0)).verified is Verified.RECOVERED


def test_a_slow_engine_is_judged_against_its_peers(world: Any) -> None:
    assert judged(world, world.fleet(4), "engine.slow").verified is Verified.RECOVERED
    slow = world.fleet(4).observe("engine.inter_token", 10.0, 0.09, 0).observe("engine.inter_token", 10.0, 0.04, 1)
    recovery = judged(world, slow.observe("engine.inter_token", 10.0, 0.3, 0), "engine.slow")
    assert recovery.verified is Verified.NOT_YET
    assert "inter_token_vs_peers" in recovery.says


def test_what_cannot_be_seen_has_not_recovered_and_has_not_failed(world: Any) -> None:
    recovery = judged(world, world.fleet(4).silence(0), waited=400)
    assert recovery.verified is Verified.NOT_YET
    assert "cannot be seen" in recovery.says


@pytest.mark.parametrize("cause", ["engine.frozen_gauges", "prefill.saturated", "engine.kv_pressure", "engine.gc_stall"])
def test_every_repaired_cause_can_be_verified_on_a_healthy_fleet(world: Any, cause: str) -> None:
    assert judged(world, world.fleet(4), cause).verified is Verified.RECOVERED


def test_recovery_resolves_and_failure_rolls_back(world: Any) -> None:
    book = world.library.for_cause("engine.hung")
    incident = world.begun(world.opened("engine.hung", at=world.now - 500), book.name, at=world.now - 490)
    well = apply(incident, VerificationStarted(incident.id, world.now - 30))
    event: Any = advance(well, book, world.fleet(4).state([well]), world.specs, now=world.now)
    assert (event.state, event.ending) == (IncidentState.RESOLVED, Ending.REPAIRED)
    ill = apply(incident, VerificationStarted(incident.id, world.now - 300))
    down = world.fleet(4).set("scrape.up", 0.0, 0)
    assert isinstance(advance(ill, book, down.state([ill]), world.specs, now=world.now), RollbackStarted)


def test_the_cost_is_told_in_words_and_numbers(world: Any) -> None:
    fleet = world.fleet(2).count("door.finished.timeout", 0.1, 0).count("door.finished.client_closed", 0.05)
    said = cost_between(fleet.window(), Entity.engine("sim-0"), world.now - 100, world.now)
    assert "10 of 210 tries to answer failed (10 timed out)" in said
    assert "10 clients left before their answer was whole" in said
    assert "95 % of first bytes came within 0.10 s at sim-0, 0.10 s elsewhere" in said


def test_a_harmless_incident_costs_nothing(world: Any) -> None:
    incident = world.opened("engine.frozen_gauges")
    assert "no answer failed at the front door" in cost_to_users(incident, world.fleet(2).state([incident]))


def test_an_unknown_cost_is_said_to_be_unknown(world: Any) -> None:
    fleet = world.fleet(2)
    for counter in ("door.finished.ok", "door.started"):
        fleet.rows.pop(counter)
    assert "unknown" in cost_between(fleet.window(), Entity.engine("sim-0"), world.now - 100, world.now)


def test_a_cost_that_began_before_the_window_says_so(world: Any) -> None:
    said = cost_between(world.fleet(2).window(), Entity.engine("sim-0"), world.now - 500, world.now)
    assert "counted from 380 s after it began" in said


def test_failures_whose_counter_was_born_in_the_span_are_counted(world: Any) -> None:
    fleet = world.fleet(2)
    fleet.set("door.finished.connection", 7.0, 0, last=30)
    said = cost_between(fleet.window(), Entity.engine("sim-0"), world.now - 100, world.now)
    assert "7 lost their connection" in said
