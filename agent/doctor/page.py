"""An examination as a person reads it: what is wrong first in the sum, then every check by part, alike ones together."""

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from agent.doctor.findings import Check, Examination, State
from agent.report.wording import clause, sentence

STYLES = {State.OK: "green", State.WARNING: "yellow", State.PROBLEM: "bold red"}
PARTS = {
    "own": "This machine",
    "cluster": "Cluster",
    "url": "URLs",
    "engines": "Engines",
    "engine": "Engines",
    "door": "Front door",
    "store": "Prometheus",
    "sinks": "Who is told",
}
NAMES_SHOWN = 4
SAID = 2_000  # characters; a check says what it has to


def page(told: Examination) -> Iterator[RenderableType]:
    """The whole examination."""
    yield _sum(told)
    parts: dict[str, list[Check]] = {}
    for check in told.checks:
        parts.setdefault(PARTS.get(check.check.partition(".")[0], "Other"), []).append(check)
    for title, checks in parts.items():
        yield Text(f"\n{title}", style="bold")
        yield _table(_alike(checks))


def _sum(told: Examination) -> Text:
    if told.problems:
        line = Text(_count(told.problems, "problem"), style="bold red")
        line.append(f" and {_count(told.warnings, 'warning')}" if told.warnings else "", style="yellow not bold")
        return line
    if told.warnings:
        return Text(f"No problems, {_count(told.warnings, 'warning')}", style="bold yellow")
    return Text(f"All {len(told.checks)} checks came out well", style="bold green")


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _alike(checks: Sequence[Check]) -> list[tuple[list[str], Check]]:
    """Checks that say the same of several subjects, as one, in the order of the first; what is wrong comes first."""
    together: dict[tuple[str, State, str, str], tuple[list[str], Check]] = {}
    for check in checks:
        key = (check.check, check.state, check.says, check.todo)
        together.setdefault(key, ([], check))[0].append(check.subject)
    order = {State.PROBLEM: 0, State.WARNING: 1, State.OK: 2}
    return sorted(together.values(), key=lambda one: order[one[1].state])


def _table(rows: Sequence[tuple[list[str], Check]]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, width=9)
    table.add_column(no_wrap=True, style="dim")
    table.add_column(overflow="fold", ratio=1)
    for subjects, check in rows:
        text = Text(f"{_names(subjects)}: {clause(check.says, SAID)}")
        if check.todo:
            text.append(f"\n{sentence(check.todo, SAID)}", style="cyan")
        label = check.check.partition(".")[2].replace("_", " ") or check.check
        table.add_row(Text(f"  {check.state}", style=STYLES[check.state]), label, text)
    return table


def _names(subjects: list[str]) -> str:
    more = f" and {len(subjects) - NAMES_SHOWN} more" if len(subjects) > NAMES_SHOWN else ""
    return ", ".join(subjects[:NAMES_SHOWN]) + more
