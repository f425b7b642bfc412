"""Trials on several processes: all of them, the same as on one, and a clean end."""

import multiprocessing
import os

import pytest
from made_results import trial

from agent.scoreboard.running import TOGETHER, run_all
from agent.scoreboard.suite import draw_suite, load_tables
from agent.scoreboard.trial import TrialResult, TrialSpec

TRIALS = draw_suite("quick", 1, 0, load_tables())


def pretend(spec: TrialSpec) -> TrialResult:
    """A result that tells which process made it."""
    return trial(spec.number, spec.kind, years=float(os.getpid()))


def breaks(spec: TrialSpec) -> TrialResult:
    raise RuntimeError(f"trial {spec.number} broke")


def test_every_trial_is_run_once_and_those_on_a_fleet_together_so_that_it_is_warmed_up_seldom() -> None:
    alone = sorted(one.number for one in run_all(TRIALS, pretend, 1))
    found = list(run_all(TRIALS, pretend, 2))
    assert sorted(one.number for one in found) == alone == [spec.number for spec in TRIALS]
    assert os.getpid() not in {round(one.gpu_years) for one in found}
    fleets = {spec.number: spec.fleet for spec in TRIALS}
    where: dict[object, set[float]] = {}
    for one in found:
        where.setdefault(fleets[one.number], set()).add(one.gpu_years)
    for fleet, processes in where.items():
        together = sum(spec.fleet == fleet for spec in TRIALS)
        assert len(processes) <= -(-together // TOGETHER)


def test_what_breaks_in_a_process_is_told_and_leaves_no_process_behind() -> None:
    with pytest.raises(RuntimeError, match="broke"):
        list(run_all(TRIALS, breaks, 2))
    assert multiprocessing.active_children() == []


def test_no_processes_at_all_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one process"):
        list(run_all(TRIALS, pretend, 0))
