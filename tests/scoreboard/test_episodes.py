"""Whole trials: the warden's own loop over a fleet in virtual time, judged."""

from dataclasses import replace

import pytest

from agent.scoreboard.episode import INTERVAL_S, begun, run_trial
from agent.scoreboard.stage import warmed
from agent.scoreboard.trial import FaultSpec, FleetSize, TrialKind, TrialSpec

FLEET = FleetSize(engines=12, models=1, tp=1, rps=1.0, experts=16, seed=5, warm_up=240.0)


def _trial(kind: TrialKind, *faults: FaultSpec, lasts: float = 300.0) -> TrialSpec:
    return TrialSpec(1, kind, 11, FLEET, faults, lasts, 20.0)


HANG = _trial(TrialKind.FAULT, FaultSpec("engine-hang", 3.0, 300.0, 0.4))


def test_a_hang_is_found_rightly_named_repaired_and_verified() -> None:
    result = run_trial(HANG)
    assert result.error == ""
    (fault,) = result.faults
    assert fault.right_cause
    assert fault.right_action
    assert fault.cured
    assert fault.detected_after is not None
    assert fault.recovered_after is not None
    assert 0 < fault.detected_after < fault.recovered_after < 300
    assert (result.false_incidents, result.false_actions) == ((), ())
    assert result.virtual_seconds < 320
    assert result.gpu_years == pytest.approx(result.virtual_seconds * 12 / (365.25 * 86_400))


def test_a_trial_gives_the_same_result_whatever_was_run_before_it() -> None:
    first = run_trial(HANG)
    run_trial(replace(HANG, seed=12, faults=(FaultSpec("engine-kill", 3.0, 200.0, 0.1),)))
    assert replace(run_trial(HANG), cpu_seconds=0.0) == replace(first, cpu_seconds=0.0)


def test_another_seed_is_another_life_of_the_same_fleet() -> None:
    one, other = run_trial(_quiet(seed=1)), run_trial(_quiet(seed=2))
    assert one.ok != other.ok


def _quiet(seed: int) -> TrialSpec:
    return replace(_trial(TrialKind.HEALTHY, lasts=60.0), seed=seed)


def test_healthy_time_is_lived_through_to_its_end_and_nothing_is_said() -> None:
    result = run_trial(_trial(TrialKind.HEALTHY, lasts=120.0))
    assert result.virtual_seconds == 140.0
    assert result.steps == 140.0 / INTERVAL_S
    assert result.faults == ()
    assert (result.false_incidents, result.false_actions) == ((), ())


def test_a_decoy_is_watched_to_its_end() -> None:
    result = run_trial(_trial(TrialKind.DECOY, FaultSpec("xid-45-herd", 3.0, 60.0, 0.2), lasts=63.0))
    assert result.virtual_seconds == 85.0
    assert result.destructive_actions == ()


def test_what_nobody_cures_is_undone_when_its_time_is_up() -> None:
    episode = begun(_trial(TrialKind.FAULT, FaultSpec("surge", 3.0, 40.0, 0.0, parameters=(("times", 9.0),)), lasts=43.0))
    fleet = episode.stage.fleet
    episode.making.until(fleet.now + 10.0)
    assert fleet.users.rate[0] == 9.0
    episode.making.until(fleet.now + 50.0)
    assert fleet.users.rate[0] == 1.0


def test_two_faults_hit_different_things_where_there_are_any() -> None:
    at = 0.35  # aimed at the very same engine
    spec = _trial(TrialKind.PAIR, FaultSpec("engine-hang", 3.0, 99.0, at), FaultSpec("slow-engine", 4.0, 99.0, at))
    episode = begun(spec)
    episode.making.until(episode.stage.fleet.now + 10.0)
    fleet = episode.stage.fleet
    assert not (fleet.engines.halted & (fleet.engines.slow > 1.0)).any()
    assert fleet.engines.halted.sum() == (fleet.engines.slow > 1.0).sum() == 1


def test_the_warm_fleet_itself_is_left_as_it_was() -> None:
    warm = warmed(FLEET, INTERVAL_S)
    now, ok = warm.fleet.now, warm.fleet.door.answered
    run_trial(_trial(TrialKind.HEALTHY, lasts=30.0))
    assert (warm.fleet.now, warm.fleet.door.answered) == (now, ok)


def test_a_trial_that_cannot_be_run_is_told_and_ends_no_other() -> None:
    result = run_trial(_trial(TrialKind.FAULT, FaultSpec("engine-hang", 3.0, 60.0, 0.0, parameters=(("typo", 1.0),))))
    assert "has no parameter 'typo'" in result.error
