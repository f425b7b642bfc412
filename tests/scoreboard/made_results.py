"""Results of trials made up, for boards and their comparison."""

from agent.scoreboard.board import Board, Run, board
from agent.scoreboard.trial import FaultResult, TrialKind, TrialResult
from agent.scoreboard.truth import Expected, Truth
from serving.fleet.entity import EntityKind

TRUTH = Truth(
    isolates=("door.drain",),
    faults={
        "hang": Expected(causes=("engine.hung",), on=(EntityKind.ENGINE,), because="a test"),
        "slow": Expected(causes=("engine.slow",), on=(EntityKind.ENGINE,), physical=False, because="a test"),
    },
    decoys={},
)


def fault(
    name: str = "hang", *, detect: float | None = 10.0, right: bool = True, acted: str | None = "door.drain on engine/e0"
) -> FaultResult:
    return FaultResult(
        name=name,
        target="engine/e0",
        onset="sudden",
        parameters=(),
        detected_after=detect,
        cause=None if detect is None else ("engine.hung" if right else "engine.dead"),
        right_cause=detect is not None and right,
        first_action=acted if detect is not None else None,
        right_action=detect is not None and acted is not None,
        isolated_after=detect,
        recovered_after=None if detect is None else detect + 60.0,
        cured=detect is not None,
    )


def trial(
    number: int,
    kind: TrialKind = TrialKind.FAULT,
    *faults: FaultResult,
    names: tuple[str, ...] = (),
    said: tuple[str, ...] = (),
    done: tuple[str, ...] = (),
    years: float = 0.01,
    error: str = "",
) -> TrialResult:
    return TrialResult(
        number=number,
        kind=kind,
        names=names or tuple(one.name for one in faults),
        faults=faults,
        false_incidents=said,
        false_actions=done,
        destructive_actions=done,
        ok=100.0,
        failed=4.0,
        virtual_seconds=300.0,
        gpu_years=years,
        cpu_seconds=0.5,
        steps=60,
        error=error,
    )


def made(*results: TrialResult, planned: int | None = None) -> Board:
    run = Run(
        suite="quick",
        seeds=1,
        seed=0,
        trials=len(results),
        planned=len(results) if planned is None else planned,
        interval_s=5.0,
        workers=1,
        cpu_seconds=1.0,
        version="0.0.0",
        failed={one.number: one.error for one in results if one.error},
    )
    return board(results, TRUTH, run, 12.0)
