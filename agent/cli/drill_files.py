"""`fleetwarden drill export|import`: drills as Chaos Toolkit experiments, and runs as its journals."""

from pathlib import Path
from typing import Annotated

import orjson
import typer
import yaml

from agent.cli.drill_places import Directories, Which, find, known, store_of
from agent.cli.tables import StateDir, fail
from agent.drill.chaos_journal import to_journal
from runbooks.chaos_toolkit import dump_experiment, read_experiment
from runbooks.conditions import did_you_mean
from runbooks.drill_loader import load_drills

Output = Annotated[Path | None, typer.Option("--output", "-o", help="Write to this file; none: standard output.")]


def export(
    which: Which,
    run: Annotated[
        str | None, typer.Option("--run", help="A run of it (see `drill history`): write its journal instead.")
    ] = None,
    output: Output = None,
    directories: Directories = None,
    state_dir: StateDir = None,
) -> None:
    """Write a drill as a Chaos Toolkit experiment (JSON), or one of its runs as a journal of that tool.

    In a journal look at `deviated`: `status` only tells whether the run came to its end. Exit code: 0, or 2 when there is no
    such drill or run.
    """
    if run is None:
        _write(dump_experiment(find(which, directories)), output)
        return
    cards = [card for card in store_of(state_dir).history()[0] if card.drill == which]
    chosen = next((card for card in reversed(cards) if card.run.startswith(run)), None)
    if chosen is None:
        fail(f"no run of {which} is called {run!r}{did_you_mean(run, (card.run for card in cards))}")
    drills = load_drills(known(), directories or ())
    drill = drills[which].drill if which in drills else None
    _write(orjson.dumps(to_journal(chosen, drill), option=orjson.OPT_INDENT_2).decode() + "\n", output)


def import_experiment(
    file: Annotated[Path, typer.Argument(help="The experiment, JSON.", show_default=False)], output: Output = None
) -> None:
    """Turn a Chaos Toolkit experiment into a drill (YAML). Whatever a drill cannot express is refused, with its place.

    Exit code: 0, or 2 with every mistake of the file.
    """
    drill = read_experiment(file, known())
    content = drill.model_dump(mode="json", exclude_defaults=True)
    _write(yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=120), output)


def _write(text: str, output: Path | None) -> None:
    if output is None:
        typer.echo(text, nl=False)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as refused:
        fail(f"{output} cannot be written: {refused.strerror}")
    typer.echo(f"wrote {output}", err=True)
