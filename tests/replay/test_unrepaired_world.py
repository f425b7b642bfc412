"""The recorded world goes on unrepaired: what a replay makes of that."""

import pytest
from made_up import BEGAN, Ill, World, minds, played, rows_of

from agent.cli.runbook import shipped_verbs
from agent.decision.breaker import BreakerState
from agent.incident import Finished, Intended
from agent.loop import StepReport
from agent.replay.hands import Bystander
from agent.replay.play import play
from runbooks.runbook import Autonomy
from serving.clock import SystemClock


def test_a_fault_that_goes_on_for_an_hour_is_one_incident() -> None:
    found = rows_of(World(3_600.0, (Ill("e0", "engine.hung", 60.0, 3_500.0),)))
    assert [(row.entity, row.cause, row.verdict) for row in found] == [("engine/e0", "engine.hung", "act")]
    assert found[0].after == 60.0
    assert found[0].until == BEGAN + 3_500.0


def test_the_same_fault_again_and_again_is_acted_upon_each_time_and_counts_against_no_repair() -> None:
    times = [(start, start + 100.0) for start in range(60, 6_000, 400)]
    found = rows_of(World(6_200.0, tuple(Ill("e0", "engine.hung", begin, end) for begin, end in times)))
    assert len(found) == len(times)
    assert {row.verdict for row in found} == {"act"}


def test_faults_on_many_engines_one_after_the_other_never_open_the_breaker() -> None:
    world = World(3_600.0, tuple(Ill(f"e{n}", "engine.hung", 100.0 + 300.0 * n, 130.0 + 300.0 * n) for n in range(8)))
    states: set[BreakerState] = set()

    def watch(report: StepReport) -> None:
        states.add(report.state.breaker.state)

    play(world, minds(world), shipped_verbs(), horizon=60.0, measuring=SystemClock(), watch=watch)
    assert states == {BreakerState.CLOSED}


def test_two_engines_at_once_are_repaired_one_after_the_other_as_the_live_warden_would() -> None:
    ills = (Ill("e0", "engine.hung", 60.0, 600.0), Ill("e1", "engine.hung", 60.0, 600.0))
    first, second = rows_of(World(900.0, ills))
    assert first.verdict == second.verdict == "act"
    assert first.decided_at == first.first_seen
    assert second.decided_at is not None
    assert 100.0 <= second.decided_at - second.first_seen <= 140.0


def test_a_surge_that_most_engines_suffer_at_once_is_held_by_the_breaker_as_live() -> None:
    found = rows_of(World(300.0, tuple(Ill(f"e{n}", "engine.hung", 60.0, 280.0) for n in range(6))))
    assert {(row.verdict, row.reason) for row in found} == {("wait", "breaker_open")}
    assert not any(row.would_do for row in found)


def test_another_cause_on_the_same_engine_after_the_repair_is_an_incident_of_its_own() -> None:
    ills = (Ill("e0", "engine.hung", 60.0, 90.0), Ill("e0", "engine.slow", 300.0, 400.0))
    assert [row.cause for row in rows_of(World(600.0, ills))] == ["engine.hung", "engine.slow"]


def test_nothing_is_intended_and_no_outcome_is_made_up() -> None:
    told = played(World(600.0, (Ill("e0", "engine.hung", 60.0, 500.0),)))
    events = [event for events in told.events.values() for event in events]
    assert events
    assert not [event for event in events if isinstance(event, Intended | Finished)]


def test_the_actuators_are_never_asked_for_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a replay asked an actuator")

    for method in ("apply", "rehearse", "look_up"):
        monkeypatch.setattr(Bystander, method, refuse)
    assert rows_of(World(600.0, (Ill("e0", "engine.hung", 60.0, 500.0), Ill("e1", "engine.hung", 100.0, 500.0))))


def test_a_policy_that_only_recommends_shows_the_same_steps_as_a_recommendation() -> None:
    world = World(300.0, (Ill("e0", "engine.hung", 60.0, 250.0),))
    (acted,), (recommended,) = rows_of(world), rows_of(world, autonomy=Autonomy.RECOMMEND)
    assert (recommended.verdict, recommended.reason) == ("refuse", "autonomy_recommend")
    assert recommended.would_do == acted.would_do


def test_a_request_for_approval_stays_open_however_long_nobody_answers() -> None:
    (row,) = rows_of(World(3_600.0, (Ill("e0", "engine.hung", 60.0, 3_500.0),)), autonomy=Autonomy.APPROVE)
    assert (row.verdict, row.reason) == ("ask", "needs_approval")
    assert [step.verb for step in row.would_do][:1] == ["engine.canary"]


def test_without_enough_evidence_nothing_is_proposed() -> None:
    (row,) = rows_of(World(300.0, (Ill("e0", "engine.slow", 60.0, 250.0, score=0.5, enough=False),)))
    assert not row.enough
    assert row.enough_at is None
    assert row.would_do == ()


def test_what_becomes_sure_later_keeps_the_moment_at_which_it_was_first_seen() -> None:
    ills = (Ill("e0", "engine.slow", 60.0, 119.0, 0.5, enough=False), Ill("e0", "engine.hung", 120.0, 250.0))
    (row,) = rows_of(World(400.0, ills))
    assert row.cause == "engine.hung"
    assert row.first_seen < BEGAN + 80.0
    assert row.enough_at == BEGAN + 120.0
    assert [one.cause for one in row.course] == ["engine.slow", "engine.hung"]
