"""`fleetwarden pause` and `resume`: the big red button. It takes effect before the next side effect, and survives a restart.

Exit codes: 0 it stands as asked, 2 there is no journal to write it to (so nothing was paused).
"""

from pathlib import Path
from typing import Annotated

import typer

from agent.cli.incidents import By, who
from agent.cli.tables import AsJson, JournalAt, StateDir, journal_of, print_json
from agent.journal.port import PAUSE
from agent.report.layout import date_time
from serving.clock import SystemClock


def pause(
    why: Annotated[str, typer.Option("--why", help="For the record, and for whoever wonders.")] = "",
    by: By = None,
    state_dir: StateDir = None,
    journal: JournalAt = None,
    as_json: AsJson = False,
) -> None:
    """Stop the warden from touching anything: no action, no undo. It goes on watching, diagnosing and telling.

    What is being done at this moment is finished, nothing more is begun. JSON: {switch, on, by, at, why}.
    """
    _turn(state_dir, journal, on=True, by=by, why=why, as_json=as_json)


def resume(
    by: By = None,
    state_dir: StateDir = None,
    journal: JournalAt = None,
    as_json: AsJson = False,
) -> None:
    """Let the warden act again. JSON as for `pause`."""
    _turn(state_dir, journal, on=False, by=by, why="", as_json=as_json)


def _turn(state_dir: Path | None, journal: str | None, *, on: bool, by: str | None, why: str, as_json: bool) -> None:
    person = who(by)
    with journal_of(state_dir, journal) as record:
        before = record.switch(PAUSE)
        now = record.set_switch(PAUSE, on=on, by=person, at=SystemClock().now(), why=why)
        location = record.location
    if as_json:
        print_json({"switch": now.name, "on": now.on, "by": now.by, "at": now.at, "why": now.why})
        return
    done = "paused: the warden touches nothing until `fleetwarden resume`" if on else "resumed: the warden may act again"
    typer.echo(f"{done} ({location})")
    if before.on == on and before.at:
        because = f": {before.why}" if before.why else ""
        typer.echo(f"it was {'paused' if on else 'running'} already, since {date_time(before.at)} by {before.by}{because}")
