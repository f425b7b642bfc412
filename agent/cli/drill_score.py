"""`fleetwarden drill score`: thousands of drawn faults and decoys in a fleet in virtual time, and how the warden did."""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from importlib import metadata
from pathlib import Path
from typing import Annotated

import orjson
import typer
from rich.console import RenderableType
from rich.text import Text

from agent.cli.replay_tables import progress
from agent.cli.tables import fail, print_all
from agent.scoreboard.board import Board, Run, board, read_board
from agent.scoreboard.compare import Change, compare, lost_rows
from agent.scoreboard.episode import INTERVAL_S, run_trial
from agent.scoreboard.pictures import NoPicturesError, draw
from agent.scoreboard.running import run_all
from agent.scoreboard.suite import draw_suite, load_tables
from agent.scoreboard.tables import decoy_table, fault_table, markdown, sentences
from agent.scoreboard.trial import TrialResult, TrialSpec
from agent.scoreboard.truth import load_truth
from serving.clock import SystemClock

BOARD, PAGE = "scoreboard.json", "README.md"
DONE, WORSE = 0, 1


def score(
    suite: Annotated[
        str, typer.Option(help="Which trials: `quick` (minutes) or `full` (100 with faults and 100 with decoys a seed).")
    ],
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds; each makes one set of trials.")] = 1,
    seed: Annotated[int, typer.Option(min=0, help="The first seed.")] = 0,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes.", show_default="one a core")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for scoreboard.json, README.md and the pictures.")] = None,
    against: Annotated[Path | None, typer.Option(help="A scoreboard.json of before: say what really changed.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The board as JSON (keys: docs/scoreboard.md).")] = False,
) -> None:
    """Judge the warden by drawn faults, decoys and healthy time in fleets in virtual time. All figures are simulated.

    The same suite and seeds give the same figures, whatever the number of processes. Ctrl-C ends it; what was done so far is
    told, and nothing is written.

    Exit code: 0 done, 1 interrupted, or a trial could not be run, or (with --against) something is worse beyond the
    intervals, 2 bad usage, or a file that cannot be read or written.
    """
    known = load_tables().suites
    if suite not in known:
        fail(f"there is no suite {suite!r}; there are {', '.join(known)}")
    before = _read(against) if against is not None else None
    if out is not None and out.exists() and not out.is_dir():
        fail(f"{out} is not a folder")
    trials = draw_suite(suite, seeds, seed, load_tables())
    cores = workers or len(os.sched_getaffinity(0))
    clock = SystemClock()
    began = clock.monotonic()
    results, whole = _run(trials, cores)
    run = Run(
        suite=suite,
        seeds=seeds,
        seed=seed,
        trials=len(results),
        planned=len(trials),
        interval_s=INTERVAL_S,
        workers=cores,
        cpu_seconds=round(sum(one.cpu_seconds for one in results), 1),
        version=metadata.version("fleetwarden"),
        failed={one.number: one.error for one in results if one.error},
    )
    shown = board(results, load_truth(), run, clock.monotonic() - began)
    changes = compare(shown, before) if before is not None else ()
    if out is not None and whole:
        _write(shown, out)
    if as_json:
        typer.echo(
            orjson.dumps(shown.model_dump(mode="json"), option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS).decode()
        )
    else:
        print_all(_told(shown, before, changes, whole=whole))
    worse = any(not change.better for change in changes)
    raise typer.Exit(DONE if whole and not run.failed and not worse else WORSE)


def _run(trials: Sequence[TrialSpec], workers: int) -> tuple[list[TrialResult], bool]:
    """The results, and whether all trials were run: Ctrl-C ends it early."""
    results: list[TrialResult] = []
    try:
        with (
            progress(len(trials), quiet=False, doing="drilling") as steps,
            closing(run_all(trials, run_trial, workers)) as coming,
        ):
            for result in coming:
                results.append(result)
                steps.done()
    except KeyboardInterrupt:
        typer.echo(f"interrupted after {len(results):,} of {len(trials):,} trials", err=True)
        return results, False
    return results, True


def _read(path: Path) -> Board:
    try:
        return read_board(path.read_bytes())
    except OSError as refused:
        fail(f"{path} cannot be read: {refused.strerror}")
    except ValueError as refused:
        fail(f"{path} {refused}")


def _write(shown: Board, folder: Path) -> None:
    """The board into its folder; without matplotlib the pictures are left out, and it is said."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        content = orjson.dumps(shown.model_dump(mode="json"), option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS)
        (folder / BOARD).write_bytes(content + b"\n")
        (folder / PAGE).write_text(markdown(shown), "utf-8")
        draw(shown, folder)
    except NoPicturesError as missing:
        typer.echo(str(missing), err=True)
    except OSError as refused:
        fail(f"{refused.filename or folder} cannot be written: {refused.strerror}")


def _told(shown: Board, before: Board | None, changes: Iterable[Change], *, whole: bool) -> Iterator[RenderableType]:
    if not whole:
        yield Text("Interrupted: the figures are of what was done so far.\n", style="yellow")
    yield fault_table(shown)
    yield Text()
    yield decoy_table(shown)
    yield Text()
    for said in sentences(shown):
        yield Text(said)
    if before is None:
        return
    yield Text("\nAgainst the earlier run:", style="bold")
    if (before.run.suite, before.run.interval_s) != (shown.run.suite, shown.run.interval_s):
        yield Text(f"  it was of suite {before.run.suite}, one look every {before.run.interval_s:g} s", style="yellow")
    for row in lost_rows(shown, before):
        yield Text(f"  {row} was tried then and is not tried now", style="yellow")
    told = list(changes)
    for change in told:
        yield Text(f"  {'better' if change.better else 'WORSE'}: {change}", style="green" if change.better else "red")
    if not told:
        yield Text("  no figure differs by more than chance explains")
