"""How the commands over the journal look: options they share, tables, and JSON that scripts can rely on."""

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NoReturn

import orjson
import typer
from pydantic import BaseModel
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from agent.explanation import EvidenceRow, Explanation, IncidentSummary
from agent.journal.port import JournalError
from agent.journal.stored import StoredJournal, open_journal
from agent.report.layout import clock_time, date_time
from agent.report.wording import duration
from serving.engines.state_directory import default_state_directory
from serving.secret_file import read_secret

FILE_NAME = "journal.sqlite"
STATE_STYLES = {"resolved": "green", "escalated": "red", "suppressed": "dim", "open": "yellow"}
OUTCOME_STYLES = {"done": "green", "failed": "red", "withdrawn": "dim"}
ALIKE = 3  # others that show one symptom are named, more are counted

StateDir = Annotated[Path | None, typer.Option(help="State directory of the warden; the local fleet's by default.")]
JournalAt = Annotated[str | None, typer.Option("--journal", help="Journal file or database URL, when it is elsewhere.")]
AsJson = Annotated[bool, typer.Option("--json", help="The same as JSON.")]


@contextmanager
def journal_of(state_dir: Path | None, journal: str | None) -> Iterator[StoredJournal]:
    """The warden's journal. Ends the command with exit code 2 and a sentence when it cannot be used."""
    try:
        opened = open_journal(journal or _journal_at(state_dir), create=False)
        try:
            yield opened
        finally:
            opened.close()
    except JournalError as error:
        fail(str(error))


def state_directory(given: Path | None) -> Path:
    """The warden's state directory: as given, else as the environment tells the warden, else the usual one."""
    told = os.environ.get("FLEETWARDEN_STATE_DIR")
    return given or (Path(told) if told else default_state_directory())


def _journal_at(state_dir: Path | None) -> Path | str:
    """The journal's place. In the warden's own container the environment tells it, as it tells the warden."""
    url_file, url = (os.environ.get(f"FLEETWARDEN_JOURNAL__{name}") for name in ("URL_FILE", "URL"))
    if state_dir is None and url_file:
        return read_secret(Path(url_file)).get_secret_value()
    if state_dir is None and url:
        return url
    return state_directory(state_dir) / FILE_NAME


def fail(message: str) -> NoReturn:
    """End the command: bad usage or unreadable input."""
    typer.echo(message, err=True)
    raise typer.Exit(2)


def print_json(value: BaseModel | Iterable[BaseModel] | dict[str, Any]) -> None:
    """Print data as JSON; numbers that are none become null."""
    plain: Any = value
    if isinstance(value, BaseModel):
        plain = value.model_dump()
    elif not isinstance(value, dict):
        plain = [item.model_dump() for item in value]
    typer.echo(orjson.dumps(plain, option=orjson.OPT_INDENT_2).decode())


def print_all(parts: Iterable[RenderableType]) -> None:
    """Print for a person; without a terminal lines are wide enough not to be cut."""
    console = Console(highlight=False) if sys.stdout.isatty() else Console(highlight=False, width=160)
    for part in parts:
        console.print(part)


def incident_table(incidents: Iterable[IncidentSummary], now: float) -> Table:
    """One row an incident."""
    table = Table(box=None, pad_edge=False, header_style="bold dim")
    for name in ("incident", "cause", "on", "state", "opened", "for", "says"):
        table.add_column(name, overflow="fold", no_wrap=name in {"incident", "cause", "state", "opened", "for"})
    for row in incidents:
        table.add_row(
            row.incident,
            row.cause,
            row.entity,
            Text(_state(row), style=STATE_STYLES.get(row.state, "cyan")),
            date_time(row.opened_at).removesuffix(" UTC"),
            duration((row.ended_at if row.ended_at is not None else now) - row.opened_at),
            Text(row.says),
        )
    return table


def _state(row: IncidentSummary) -> str:
    ending = f" ({row.ending.replace('_', ' ')})" if row.ending else ""
    return f"{row.state.replace('_', ' ')}{ending}{' !' if row.needs_person else ''}"


def explained(told: Explanation, now: float) -> Iterator[RenderableType]:
    """The explanation of one incident, the most important first."""
    row = told.incident
    yield Text(told.headline, style="bold")
    yield Text(f"{row.incident}   {row.cause} on {row.entity}, score {row.score:.2f} of 1, {_state(row)}", style="dim")
    yield Text(f"\n{told.what} {_since(told, now)}")
    if row.needs_person:
        yield from _section("What to do now", told.todo)
    yield from _section("Evidence for it", _evidence(told), empty="none was written down")
    yield from _section("Evidence against it", told.against, empty="none")
    yield from _section("What could not be seen", told.missing, empty="nothing that would have told")
    yield from _section("Rivals, and why they are behind", _rivals(told), empty="no other cause explains any of it")
    yield from _section("Taken for before", told.ruled_out)
    yield from _section("What was done", () if told.operations else ("nothing",))
    if told.operations:
        yield _operations(told)
    yield from _section("Verification", _verifications(told), empty="not reached")
    yield from _section("Users", [told.served, f"Cost: {told.cost}" if told.cost else "Cost: not counted yet"])
    yield from _section("The record", ())
    yield _timeline(told)
    if not row.needs_person:
        yield from _section("What to do now", told.todo)


def _since(told: Explanation, now: float) -> str:
    row = told.incident
    if row.ended_at is None:
        end = f"open for {duration(now - row.opened_at)}"
    else:
        end = f"ended {date_time(row.ended_at)}, after {duration(row.ended_at - told.since)}"
    return f"Since {date_time(told.since)}, noticed after {duration(row.opened_at - told.since)}, {end}."


def _section(title: str, lines: Iterable[str], empty: str = "") -> Iterator[RenderableType]:
    found = list(lines) or ([empty] if empty else [])
    if found or title in {"The record", "What was done"}:
        yield Text(f"\n{title}", style="bold")
    for line in found:
        grid = Table.grid(padding=(0, 1))
        grid.add_row("  -", Text(line))
        yield grid


def _evidence(told: Explanation) -> Iterator[str]:
    """The thing's own evidence first; of what many others show alike the first of each symptom. --json has all of it."""
    own = [row for row in told.evidence if row.entity == told.incident.entity]
    others: dict[str, list[EvidenceRow]] = {}
    for row in told.evidence:
        if row.entity != told.incident.entity:
            others.setdefault(row.symptom, []).append(row)
    for row in own:
        yield _shown(row)
    for rows in others.values():
        shown = rows if len(rows) <= ALIKE else rows[:1]
        yield from (f"{row.entity}: {_shown(row)}" for row in shown)
        more = len({row.entity for row in rows} - {row.entity for row in shown})
        if more:
            yield f"and {more} more show the same ({rows[0].symptom})"


def _shown(row: EvidenceRow) -> str:
    signal = f" [{row.signal}]" if row.signal else ""  # the sentence has the numbers; --json has them bare
    return f"{row.says or row.symptom}{signal}, since {clock_time(row.since)}"


def _rivals(told: Explanation) -> Iterator[str]:
    for row in told.rivals:
        yield f"{row.cause} on {row.entity}, score {row.score:.2f}: {row.behind_because}"


def _verifications(told: Explanation) -> Iterator[str]:
    for row in told.verifications:
        took = "" if row.ended_at is None else f", {duration(row.ended_at - row.began_at)} later"
        said = {"recovered": "recovered", "not_recovered": "not shown to have recovered", "under_way": "under way"}
        yield f"began {clock_time(row.began_at)}{took}: {said[row.verdict]}{f': {row.says}' if row.says else ''}"


def _operations(told: Explanation) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("  time", "attempt", "step", "action", "outcome", "took", "detail"):
        table.add_column(name, overflow="fold")
    for row in told.operations:
        arguments = ", ".join(f"{name}={value}" for name, value in row.arguments.items())
        table.add_row(
            f"  {clock_time(row.intended_at)}",
            str(row.attempt),
            row.step,
            f"{row.verb} {row.target}{f' ({arguments})' if arguments else ''}",
            Text(row.outcome, style=OUTCOME_STYLES.get(row.outcome, "yellow")),
            "" if row.finished_at is None else duration(row.finished_at - row.intended_at),
            Text(row.detail),
        )
    return table


def _timeline(told: Explanation) -> Table:
    table = Table.grid(padding=(0, 2))
    for row in told.timeline:
        table.add_row(f"  {clock_time(row.at)}", Text(row.says, style="" if row.type != "Decided" else "cyan"))
    return table
