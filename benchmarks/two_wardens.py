"""Two wardens over one cell: strike the leader in mid-action, again and again, and read from the records what that did.

    python benchmarks/two_wardens.py [--strikes 50] [--rest 120] [--quick] [--seed 0] [--json]

Real: the API server with its audit log, PostgreSQL, the processes, their election, journal and executor. Made up: the work,
two writes to a node for each item. A strike kills the leader, freezes it, or cuts its network to the API server or to
everything, at a point drawn by chance: before, right before or right after a write. What was cut off arrives late, when the
cut is healed. The JSON keys are in docs/benchmarks.md.
"""

import json
import os
import random
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer
from kubernetes import client
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))  # the control plane and the two wardens serve tests, too

from control_plane.programs import MissingProgramsError, find
from control_plane.server import ControlPlane
from control_plane.waiting import TooLateError
from postgres.server import NoPostgresError, running_server
from two_wardens.trials import KINDS, POINTS, Bench, Trial, bench
from two_wardens.verdict import Verdict

SHIPPED: Mapping[str, float] = {}  # the defaults of the settings
QUICK: Mapping[str, float] = {"lease": 6, "renew": 4.2, "retry": 1.2, "request": 1.1}
NAMESPACE = "two-wardens"


@contextmanager
def running(directory: Path, election: Mapping[str, float], seed: int) -> Iterator[Bench]:
    """Everything that is real, and two wardens at work over it."""
    with ExitStack() as end:
        plane = end.enter_context(ControlPlane(find(), directory / "control-plane"))
        server = end.enter_context(running_server())
        core = client.CoreV1Api(plane.api_client())
        core.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name=NAMESPACE)))
        yield end.enter_context(bench(plane, server, NAMESPACE, directory, election=dict(election), seed=seed))


def plan(strikes: int, seed: int) -> list[tuple[str, str]]:
    """Kinds in turn, so that each is as frequent as the others; the point by chance."""
    chance = random.Random(seed)
    return [(KINDS[number % len(KINDS)], chance.choice(POINTS)) for number in range(strikes)]


def measured(two: Bench, strikes: int, rest: float, seed: int) -> tuple[int, Verdict]:
    """How often the leadership changed at rest, and what the records say after all strikes."""
    at_rest = two.rest(rest)
    for number, (kind, point) in enumerate(plan(strikes, seed), 1):
        trial = two.strike(kind, point)
        print(f"{number}/{strikes} {kind} {point}: {trial.seconds:.1f} s", file=sys.stderr)
    return at_rest, two.conclude()


def report(trials: Sequence[Trial], at_rest: int, rest: float, verdict: Verdict) -> dict[str, Any]:
    """The result for programs."""
    return {
        "benchmark": "two_wardens",
        "data": "real control plane, real PostgreSQL, made-up work",
        "strikes": len(trials),
        "rest_s": rest,
        "changes_at_rest": at_rest,
        "hand_over_s": {
            kind: _spread([trial.seconds for trial in trials if kind in {trial.kind, "all"}]) for kind in _kinds(trials)
        },
        "by_point": {point: sum(trial.point == point for trial in trials) for point in POINTS},
        "writes_stored": verdict.stored,
        "writes_stored_twice": len(verdict.doubles),
        "writes_of_an_earlier_term_after_a_later": len(verdict.overlaps),
        "late_writes_not_stored": verdict.late,
        "marks_left_by_look_ups": verdict.fences,
        "journal_entries_of_an_earlier_term_after_a_later": len(verdict.journal_overlaps),
        "done_by_the_journal_but_not_in_the_world_or_reverse": len(verdict.lost),
        "load_average": round(os.getloadavg()[0], 2),
    }


def _kinds(trials: Sequence[Trial]) -> list[str]:
    return [*(kind for kind in KINDS if any(trial.kind == kind for trial in trials)), "all"]


def _spread(values: Sequence[float]) -> dict[str, float]:
    return {
        "count": len(values),
        "median": round(median(values), 2),
        "min": round(min(values), 2),
        "max": round(max(values), 2),
    }


def table(result: Mapping[str, Any]) -> Table:
    """The result for people."""
    crossed = result["writes_of_an_earlier_term_after_a_later"], result["journal_entries_of_an_earlier_term_after_a_later"]
    caption = (
        f"{result['strikes']} strikes; {result['changes_at_rest']} changes in {result['rest_s']:g} s at rest. Of "
        f"{result['writes_stored']} writes {result['writes_stored_twice']} were stored twice, {crossed[0]} after one of a "
        f"later term; {result['late_writes_not_stored']} came late and were not stored. In the journal {crossed[1]} entries "
        "crossed."
    )
    shown = Table(title="seconds from the strike until another leads", caption=caption, box=None, header_style="bold dim")
    for column in ("strike", "times", "median", "least", "most"):
        shown.add_column(column, justify="left" if column == "strike" else "right")
    for kind, spread in result["hand_over_s"].items():
        shown.add_row(kind, *(f"{spread[key]:g}" for key in ("count", "median", "min", "max")))
    return shown


def main(
    *,
    strikes: Annotated[int, typer.Option(min=1, help="How often the leader is struck.")] = 50,
    rest: Annotated[float, typer.Option(min=0, help="Seconds without a strike before the first.")] = 120.0,
    quick: Annotated[bool, typer.Option("--quick", help="A lease of 6 s instead of the default.")] = False,
    seed: Annotated[int, typer.Option(help="Draws the points.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programs.")] = False,
) -> None:
    """Strike and judge. Exit code: 0 nothing was done twice, crossed or lost; 1 something was; 2 it could not be run."""
    try:
        with tempfile.TemporaryDirectory() as directory, running(Path(directory), QUICK if quick else SHIPPED, seed) as two:
            at_rest, verdict = measured(two, strikes, rest, seed)
            result = report(two.trials, at_rest, rest, verdict)
    except (MissingProgramsError, NoPostgresError, TooLateError) as error:
        print(error, file=sys.stderr)
        raise typer.Exit(2) from None
    if as_json:
        print(json.dumps(result, indent=2))
    else:
        Console(width=120).print(table(result))
    if not verdict.clean:
        print(verdict, file=sys.stderr)
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
