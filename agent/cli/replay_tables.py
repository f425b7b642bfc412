"""How a replay looks on a terminal: the incidents, the comparison with the truth, and how far it has come."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from agent.replay.judge import FaultRow, Judgement, Verdict
from agent.replay.page import would_have
from agent.replay.rows import RivalRow, Row
from agent.report.layout import clock_time
from agent.report.wording import clause, duration

VERDICTS = {
    Verdict.RIGHT: ("right", "green"),
    Verdict.WRONG: ("WRONG", "bold red"),
    Verdict.NOT_ENOUGH: ("not enough evidence", "yellow"),
    Verdict.MISSED: ("MISSED", "bold red"),
}
SAYS = 160  # characters of one cell
LONG = 300  # steps that take longer than a glance


def incident_table(rows: Iterable[Row], judgement: Judgement | None) -> Table:
    """One line an incident, in the order in which they were first seen."""
    table = Table(box=None, pad_edge=False, header_style="bold dim")
    for name in ("first seen", "on", "cause", "score", "rivals", "would have done"):
        table.add_column(name, overflow="fold", no_wrap=name in {"first seen", "cause", "score"})
    if judgement is not None:
        table.add_column("truth", overflow="fold")
    for row in rows:
        cells: list[RenderableType] = [
            f"{clock_time(row.first_seen).removesuffix(' UTC')} +{row.after:.0f} s",
            row.entity,
            Text(row.cause if row.enough else f"{row.cause} ?", style="bold" if row.enough else "dim"),
            f"{row.score:.2f}",
            Text("\n".join(_rival(row, rival) for rival in row.rivals) or "-", style="dim"),
            _done(row),
        ]
        table.add_row(*cells, *([_truth(row, judgement)] if judgement is not None else []))
    return table


def fault_table(faults: Iterable[FaultRow], begun: float) -> Table:
    """One line a fault that was really made."""
    table = Table(box=None, pad_edge=False, header_style="bold dim")
    for name in ("fault", "target", "made", "lasted", "found", "as", "verdict"):
        table.add_column(name, justify="right" if name in {"made", "lasted", "found"} else "left", overflow="fold")
    for fault in faults:
        said, style = VERDICTS[fault.verdict]
        if fault.near_noise and fault.verdict is Verdict.MISSED:
            said, style = "nothing said (near the noise: as honest as not enough evidence)", "yellow"
        also = f"; also {', '.join(fault.also)}" if fault.also else ""
        table.add_row(
            fault.fault,
            fault.target,
            f"+{fault.start - begun:.0f} s",
            duration(fault.end - fault.start),
            "-" if fault.detect_seconds is None else f"{fault.detect_seconds:.0f} s",
            fault.cause or "-",
            Text(said + also, style=style),
        )
    return table


def totals_line(judgement: Judgement) -> Text:
    """The sums in one sentence."""
    sums = judgement.totals
    took = ""
    if sums.detect_seconds_p50 is not None and sums.detect_seconds_max is not None:
        took = f"; found after {sums.detect_seconds_p50:.0f} s in the median, {sums.detect_seconds_max:.0f} s at most"
    return Text(
        f"{sums.faults} faults: {sums.found} found, {sums.right_cause_first} with the right cause first, "
        f"{sums.not_enough_evidence} with not enough evidence{took}. {sums.false_incidents} false incidents, "
        f"{sums.destructive_steps_on_healthy} destructive steps proposed for healthy engines.",
        style="green" if judgement.good else "red",
    )


@contextmanager
def progress(total: int, *, quiet: bool, doing: str = "replaying") -> Iterator["Steps"]:
    """How far it has come, on standard error: a bar on a terminal, a line for each quarter of long work elsewhere."""
    console = Console(stderr=True)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=quiet or not console.is_terminal,
    )
    with bar:
        plain = not quiet and not console.is_terminal and total >= LONG
        yield Steps(bar, bar.add_task(doing, total=total), total, doing if plain else "")


class Steps:
    """Counts what is done. `plainly` is what it is called where no bar is shown, empty where nothing is to be said."""

    def __init__(self, bar: Progress, task: Any, total: int, plainly: str) -> None:
        self._bar = bar
        self._task = task
        self._total = total
        self._plainly = plainly
        self._so_far = 0.0

    def done(self, more: int = 1) -> None:
        """So many more."""
        self.reached(self._so_far + more)

    def reached(self, so_far: float) -> None:
        """So many in all."""
        quarters = [int(4 * done / self._total) for done in (self._so_far, so_far)]
        if self._plainly and quarters[1] > quarters[0]:
            typer.echo(f"{self._plainly}: {25 * quarters[1]} %", err=True)
        self._so_far = so_far
        self._bar.update(self._task, completed=so_far)


def _rival(row: Row, rival: RivalRow) -> str:
    where = "" if rival.entity == row.entity else f" on {rival.entity}"
    return f"{rival.cause}{where} {rival.score:.2f}"


def _done(row: Row) -> Text:
    dim = not row.would_do and row.reason != "autonomy_recommend"
    return Text(clause(would_have(row), SAYS), style="dim" if dim else "")


def _truth(row: Row, judgement: Judgement | None) -> Text:
    if judgement is None:
        return Text("")
    if row.incident in judgement.false:
        return Text("false", style="bold red")
    for fault in judgement.faults:
        if fault.incident == row.incident:
            right = fault.verdict is Verdict.RIGHT
            return Text(
                f"{fault.fault}{'' if right else f': {VERDICTS[fault.verdict][0]}'}", style=VERDICTS[fault.verdict][1]
            )
    return Text("after-effect", style="dim")
