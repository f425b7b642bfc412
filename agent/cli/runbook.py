"""`fleetwarden runbook lint|show|explain`: runbooks, checked and in words, without a fleet.

Exit codes: 0 fine, 1 lint found mistakes, 2 nothing to show or unreadable input.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import orjson
import typer
from rich.console import Console
from rich.table import Table

from actuators.action import VerbSpec
from actuators.binding import verbs_of
from actuators.door import DoorActuator
from actuators.engine_http import EngineHttpActuator
from actuators.process import ProcessActuator
from agent.diagnosis.catalogue import load_catalogue
from runbooks.conditions import did_you_mean
from runbooks.lint import Known
from runbooks.loader import Loaded, RunbookLibrary, gauges, load_library, load_runbook
from runbooks.wording import explained
from serving.yaml_file import FileError, Problem

app = typer.Typer(no_args_is_help=True, help="Check, show and explain runbooks.")

Directories = Annotated[
    list[Path] | None, typer.Option("--dir", "-d", help="Directory with runbooks besides the shipped ones; may be repeated.")
]
AsJson = Annotated[bool, typer.Option("--json", help="The same as JSON.")]


def shipped_verbs() -> Mapping[str, VerbSpec]:
    """Every verb that the warden ships, read off the actuators' classes: nothing is connected to."""
    kinds = (DoorActuator, EngineHttpActuator, ProcessActuator)
    return {name: spec for kind in kinds for name, spec in verbs_of(kind).items()}


def known() -> Known:
    """What runbooks may speak of: the shipped verbs, the catalogue's causes, the registry's gauges."""
    return Known(shipped_verbs(), load_catalogue().names, gauges())


@app.command()
def lint(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(help="Runbook files or directories; none: the shipped ones alone.", show_default=False),
    ] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Check runbooks and print every mistake. JSON: {"problems": [{file, line, field, what, value}], "runbooks": [name]}."""
    names: list[str] = []
    problems: list[Problem] = []
    for path in paths or (None,):
        try:
            names.extend(_checked(path))
        except FileError as refused:
            problems.extend(refused.problems)
    if as_json:
        found = [{"file": p.file, "line": p.line, "field": p.field, "what": p.what, "value": p.value} for p in problems]
        typer.echo(orjson.dumps({"problems": found, "runbooks": sorted(set(names))}).decode())
    elif problems:
        typer.echo("\n".join(map(str, problems)), err=True)
    else:
        typer.echo(f"{len(set(names))} runbooks, no mistakes")
    raise typer.Exit(1 if problems else 0)


@app.command()
def show(
    name: Annotated[
        str | None, typer.Argument(help="A runbook's name or cause; none: a table of all.", show_default=False)
    ] = None,
    directories: Directories = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Show one runbook's file, or all as a table. JSON: the runbook, or runbooks: name, cause, autonomy, steps, file."""
    library = _library(directories)
    if name is None:
        _show_all(library, as_json=as_json)
        return
    loaded = _find(library, name)
    if as_json:
        typer.echo(orjson.dumps(loaded.runbook.model_dump(mode="json")).decode())
    else:
        typer.echo(f"# {loaded.file}\n{loaded.file.read_text('utf-8').rstrip()}")


@app.command()
def explain(
    name: Annotated[str, typer.Argument(help="A cause or a runbook's name.")],
    directories: Directories = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Say in words what would happen for a cause. JSON: {"name", "cause", "file", "says"}."""
    loaded = _find(_library(directories), name)
    says = explained(loaded.runbook, shipped_verbs())
    if as_json:
        content = {"name": loaded.runbook.name, "cause": loaded.runbook.cause, "file": str(loaded.file), "says": says}
        typer.echo(orjson.dumps(content).decode())
    else:
        typer.echo(says)


def _checked(path: Path | None) -> list[str]:
    """The names of the runbooks at `path`. Raises FileError."""
    what = known()
    if path is not None and not path.is_dir():
        return [load_runbook(path, what).name]
    library = (
        load_library(what.verbs, what.causes, signals=what.signals)
        if path is None
        else load_library(what.verbs, what.causes, [path], signals=what.signals, shipped=None)
    )
    return [runbook.name for runbook in library.runbooks]


def _library(directories: list[Path] | None) -> RunbookLibrary:
    what = known()
    try:
        return load_library(what.verbs, what.causes, directories or (), signals=what.signals)
    except FileError as refused:
        typer.echo(str(refused), err=True)
        raise typer.Exit(2) from None


def _find(library: RunbookLibrary, name: str) -> Loaded:
    loaded = library.by_cause.get(name) or library.named(name)
    if loaded is None:
        names = [*library.by_cause, *(runbook.name for runbook in library.runbooks)]
        typer.echo(f"there is no runbook or cause {name!r}{did_you_mean(name, names)}", err=True)
        raise typer.Exit(2)
    return loaded


def _show_all(library: RunbookLibrary, *, as_json: bool) -> None:
    rows = sorted(library.by_cause.values(), key=lambda loaded: loaded.runbook.name)
    if as_json:
        content = [
            {
                "name": row.runbook.name,
                "cause": row.runbook.cause,
                "autonomy": str(row.runbook.autonomy),
                "steps": [step.do for step in row.runbook.steps],
                "file": str(row.file),
            }
            for row in rows
        ]
        typer.echo(orjson.dumps({"runbooks": content}).decode())
        return
    table = Table(box=None, pad_edge=False, header_style="bold dim")
    for column in ("runbook", "cause", "autonomy", "steps"):
        table.add_column(column, overflow="fold")
    for row in rows:
        book = row.runbook
        steps = ", ".join(step.do for step in book.steps) or "none: people are told"
        table.add_row(book.name, book.cause, book.autonomy, steps)
    Console().print(table)
