"""`fleetwarden drill list|show|run|recover|history`, and the parts mounted below: breaking on purpose, and how it went.

Exit codes of `run`: 0 it passed, 1 an expectation failed, 2 bad input or nothing was broken (not steady, another drill under
way), 3 it was aborted or interrupted.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from agent.cli.drill_files import export, import_experiment
from agent.cli.drill_places import (
    Directories,
    Which,
    directory_of,
    drills_of,
    every_verb,
    find,
    fleet_of,
    store_of,
    virtually,
)
from agent.cli.drill_schedule import schedule
from agent.cli.drill_tables import aims_table, card_lines, drill_lines, drill_table, history_table
from agent.cli.tables import StateDir, fail, print_all, print_json
from agent.drill.card import Card, Verdict
from agent.drill.fleet import DrillFleet
from agent.drill.recovery import recover as undo_left
from agent.drill.runner import Means, rehearse, run_drill
from agent.drill.telling import tell_slack
from runbooks.conditions import did_you_mean
from runbooks.drill import Drill
from runbooks.drill_loader import LoadedDrill
from serving.clock import SystemClock
from serving.faults.interruption import deaf, ending_by_exception

EXIT = {Verdict.PASSED: 0, Verdict.FAILED: 1, Verdict.NOT_STEADY: 2, Verdict.ABORTED: 3, Verdict.INTERRUPTED: 3}

app = typer.Typer(no_args_is_help=True, help="Practise: break the fleet on purpose, and see how the warden copes.")
app.command("schedule")(schedule)
app.command("export")(export)
app.command("import")(import_experiment)
# Commands that bring a whole fleet in virtual time with them, by module: read only when they may be what is asked for.
HEAVY = {"score": "agent.cli.drill_score", "trial": "agent.cli.drill_trial"}
LIGHT = frozenset({"list", "show", "run", "recover", "history", "schedule", "export", "import"})


def _mount_heavy(words: Sequence[str]) -> None:
    """Mount the heavy commands unless the command line asks for a light one."""
    if LIGHT.isdisjoint(words):
        for name, module in HEAVY.items():
            app.command(name)(getattr(import_module(module), name))


_mount_heavy(sys.argv[1:3])

AsJson = Annotated[bool, typer.Option("--json", help="The same as JSON.")]


@app.command("list")
def list_drills(directories: Directories = None, state_dir: StateDir = None, as_json: AsJson = False) -> None:
    """Show every drill and how it came out last. Exit code 0; 2 when a file cannot be read.

    JSON: {"drills": [{name, summary, faults, expects, decoy, kinds, engines, engines_at_most, tags, file, last}]}; `last` is
    null or {run, verdict, ended_at}.
    """
    drills = drills_of(directories)
    cards, _damaged = store_of(state_dir).history()
    last = {card.drill: card for card in cards}
    if as_json:
        print_json({"drills": [_drill_row(loaded, last.get(name)) for name, loaded in drills.items()]})
    else:
        print_all([drill_table(drills, last)])


@app.command()
def show(which: Which, directories: Directories = None, as_json: AsJson = False) -> None:
    """Say what a drill does and expects. JSON: the drill, with every default filled in (keys: docs/drills.md)."""
    drill = find(which, directories)
    if as_json:
        print_json(drill.model_dump(mode="json"))
    else:
        print_all(drill_lines(drill))


@app.command()
def run(
    which: Which,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be broken and whether it could; break nothing.")
    ] = False,
    virtual: Annotated[
        bool, typer.Option("--virtual", help="On a fleet in virtual time, made for this run; nothing real is touched.")
    ] = False,
    engines: Annotated[
        int | None, typer.Option(min=1, max=10_000, help="With --virtual: how many engines.", show_default="16, if it suits")
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, help="Draws the target where the drill leaves it open, and the fleet of --virtual.")
    ] = 0,
    tell: Annotated[bool, typer.Option(help="Tell the warden's Slack channel the result, where it has one.")] = True,
    directories: Directories = None,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Run one drill: wait for a steady state, break, watch, undo whatever happens, and score.

    With --virtual, minutes pass in seconds and every span told is in virtual time; people are not told of it.

    JSON: the scorecard (keys: agent.drill.card); progress goes to stderr then. With --dry-run: {drill, ready, why, aims}.
    Exit code: 0 passed, 1 failed, 2 bad input or nothing was broken, 3 aborted or interrupted.
    """
    drill = find(which, directories)
    if engines is not None and not virtual:
        fail("--engines is for a fleet in virtual time: add --virtual")
    with virtually(drill, engines, seed) if virtual else fleet_of(state_dir) as fleet:
        if dry_run:
            _rehearsed(drill, fleet, seed, as_json=as_json)
        with ending_by_exception():
            card = _run(drill, fleet, state_dir, seed, as_json=as_json)
    if tell and not virtual and card.injected_at is not None:
        for problem in tell_slack(card, directory_of(state_dir), SystemClock()):
            typer.echo(f"not told: {problem}", err=True)
    _show(card, as_json=as_json)
    raise typer.Exit(EXIT[card.verdict])


@app.command()
def recover(state_dir: StateDir = None, as_json: AsJson = False) -> None:
    """Undo what a drill left that was killed in the middle.

    Every `drill run` does that first by itself. JSON: the scorecard of the interrupted drill, or {} when there was none.
    Exit code: 0 nothing is left, 1 something could not be undone, 2 a drill is under way or the record cannot be read.
    """
    store = store_of(state_dir)
    with fleet_of(state_dir) as fleet, ending_by_exception(), store.lock(), deaf():
        card = undo_left(fleet, store, lambda line: typer.echo(line, err=True))
    if card is None:
        print_json({}) if as_json else typer.echo("no drill was interrupted; nothing is left")
        return
    _show(card, as_json=as_json)
    raise typer.Exit(0 if card.undone else 1)


@app.command()
def history(
    which: Annotated[
        str | None, typer.Argument(help="A run (or its beginning) or a drill; none: all.", show_default=False)
    ] = None,
    last: Annotated[int, typer.Option("--last", "-n", min=1, help="Only so many, the newest.")] = 20,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Show earlier runs, the newest last; one run alone with its whole scorecard.

    JSON: a list of scorecards (keys: agent.drill.card). Exit code: 0, or 2 when there is no such run.
    """
    cards, damaged = store_of(state_dir).history()
    if damaged:
        typer.echo(f"{damaged} lines of the history cannot be read and are left out", err=True)
    found = [card for card in cards if which is None or card.drill == which or card.run.startswith(which)][-last:]
    if which is not None and not found:
        fail(f"no run is called {which!r}{did_you_mean(which, {name for card in cards for name in (card.run, card.drill)})}")
    if as_json:
        print_json(found)
    elif which is not None and len(found) == 1:
        print_all(card_lines(found[0]))
    elif found:
        print_all([history_table(found)])
    else:
        typer.echo("no drill was run here yet; `fleetwarden drill list` shows what there is")


def _run(drill: Drill, fleet: DrillFleet, state_dir: Path | None, seed: int, *, as_json: bool) -> Card:
    means = Means(store_of(state_dir), every_verb(), lambda line: typer.echo(line, err=as_json), undoing=deaf)
    try:
        return run_drill(drill, fleet, means, seed)
    except (KeyboardInterrupt, SystemExit):
        typer.echo("interrupted; what was broken is undone", err=True)
        raise typer.Exit(EXIT[Verdict.INTERRUPTED]) from None


def _rehearsed(drill: Drill, fleet: DrillFleet, seed: int, *, as_json: bool) -> None:
    aims, why = rehearse(drill, fleet, seed)
    if as_json:
        rows = [{"fault": a.order.fault, "target": str(a.target), "parameters": a.order.parameters} for a in aims]
        print_json({"drill": drill.name, "ready": not why, "why": list(why), "aims": rows})
    else:
        print_all([aims_table(aims)])
        typer.echo("it could begin now" if not why else f"it could not begin now: {'; '.join(why)}")
    raise typer.Exit(2 if why else 0)


def _show(card: Card, *, as_json: bool) -> None:
    if as_json:
        print_json(card)
    else:
        print_all(card_lines(card))


def _drill_row(loaded: LoadedDrill, last: Card | None) -> dict[str, object]:
    drill = loaded.drill
    return {
        "name": drill.name,
        "summary": drill.summary,
        "faults": [order.model_dump(mode="json") for order in drill.faults],
        "expects": [each.cause for each in drill.expect.incidents],
        "decoy": drill.expect.decoy,
        "kinds": list(map(str, drill.fleet.kinds)),
        "engines": drill.fleet.engines,
        "engines_at_most": drill.fleet.engines_at_most,
        "tags": drill.tags,
        "file": str(loaded.file),
        "last": None if last is None else {"run": last.run, "verdict": str(last.verdict), "ended_at": last.ended_at},
    }
