"""A report as a person reads it: the verdict first, then each cause with its evidence, then what could not be seen."""

from collections.abc import Iterable, Iterator

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from agent.checkup.report import CauseRow, CheckupReport, EngineRow, UnreadRow, UnseenRow, Verdict, watched
from agent.report.layout import clock_time
from agent.report.wording import clause, duration, sentence

VERDICT_STYLES = {
    Verdict.HEALTHY: "bold green",
    Verdict.SICK: "bold red",
    Verdict.SUSPECT: "bold yellow",
    Verdict.UNMEASURED: "bold magenta",
    Verdict.UNREADABLE: "bold magenta",
}
EVIDENCE_SHOWN = 6
RIVALS_SHOWN = 3
ENGINES_SHOWN = 16
CANARY = "engine.canary"
NAMES_SHOWN = 4


def page(report: CheckupReport) -> Iterator[RenderableType]:
    """The whole report."""
    line = Text(report.says[:1].upper() + report.says[1:] + ".", style=VERDICT_STYLES[report.verdict])
    if report.readings:
        line.append(f"  {clock_time(report.at)}, {watched(report)}", style="dim not bold")
    yield line
    if report.engines:
        yield Text("")
        yield engine_table(report)
    for cause in report.causes:
        yield from _cause(cause, report.at)
    if report.unread:
        yield Text("\nCould not be read", style="bold")
        yield _indented(_unread(row) for row in report.unread)
    if report.unseen:
        yield Text("\nCould not be seen", style="bold")
        yield _indented(_unseen(row) for row in report.unseen)
    if report.notes:
        yield Text("\nNotes", style="bold")
        yield _indented(Text(note) for note in report.notes)


def engine_table(report: CheckupReport) -> Table:
    """One row an engine, those in trouble first."""
    sick = {cause.entity.removeprefix("engine/"): cause.cause for cause in reversed(report.causes)}
    rows = sorted(report.engines, key=lambda row: (row.engine not in sick, row.measured))
    table = Table(box=None, pad_edge=False, header_style="bold dim")
    for name, left in (("engine", 1), ("model", 1), ("running", 0), ("waiting", 0), ("KV", 0), ("steps/s", 0), ("", 1)):
        table.add_column(name, justify="left" if left else "right", overflow="fold", no_wrap=name in {"KV", "steps/s"})
    for row in rows[:ENGINES_SHOWN]:
        table.add_row(
            row.engine,
            row.model,
            _number(row.running, 0),
            _number(row.waiting, 0),
            "-" if row.kv_usage is None else f"{row.kv_usage:.0%}",
            _number(row.steps_per_s, 1),
            _state(row, sick),
        )
    if len(rows) > ENGINES_SHOWN:
        table.add_row(f"and {len(rows) - ENGINES_SHOWN} more", "", "", "", "", "", "")
    return table


def _state(row: EngineRow, sick: dict[str, str]) -> Text:
    if row.engine in sick:
        return Text(sick[row.engine], style="red")
    if not row.measured:
        return Text("not measured", style="magenta")
    if row.idle or row.steps_per_s == 0:
        return Text("idle" if row.idle else "no step seen", style="yellow")
    return Text("no sign of trouble", style="green")


def _cause(row: CauseRow, now: float) -> Iterator[RenderableType]:
    sure = (
        f"{row.cause}, score {row.score:.2f} of 1"
        if row.enough
        else f"{row.cause}, only suspected: score {row.score:.2f} of 1"
    )
    yield Text(f"\n{row.rank}. {row.headline}", style="bold red" if row.enough else "bold yellow")
    yield Text(f"   {sure}, since {clock_time(row.since)} ({duration(now - row.since)})", style="dim")
    if row.means:
        yield _indented([Text(sentence(row.means))], bullet="  ")
    yield _titled("Evidence", [Text(line) for line in _evidence(row)])
    if row.against:
        yield _titled("Against", [Text(clause(says)) for says in row.against])
    if row.missing:
        yield _titled("Would settle", [Text(f"{', '.join(row.missing)}, which could not be read")])
    if row.rivals:
        yield _titled("Rather than", [Text(line) for line in _rivals(row)])
    if row.probe == CANARY:
        yield _titled("To be sure", [Text("send it one small request: an answer clears it, no answer proves it")])
    if row.settings:
        yield _titled("vLLM settings", [_setting(one.setting, one.look, one.source) for one in row.settings])


def _evidence(row: CauseRow) -> list[str]:
    lines = dict.fromkeys(
        f"{'' if one.entity == row.entity else f'{one.entity}: '}{clause(one.says or one.symptom)}" for one in row.evidence
    )
    shown = list(lines)[:EVIDENCE_SHOWN]
    return [*shown, f"and {len(lines) - len(shown)} more, with --json"] if len(lines) > len(shown) else shown


def _rivals(row: CauseRow) -> list[str]:
    lines = []
    for rival in row.rivals[:RIVALS_SHOWN]:
        where = "" if rival.entity == row.entity else f" on {rival.entity}"
        lines.append(f"{rival.cause}{where} ({rival.score:.2f}): {clause(rival.behind_because)}")
    return lines


def _setting(name: str, look: str, source: str) -> Text:
    text = Text(name, style="cyan")
    text.append(f": {look}", style="default")
    text.append(f" [{source}]", style="dim")
    return text


def _unread(row: UnreadRow) -> Text:
    text = Text(f"{row.url} {row.says}", style="magenta")
    text.append(f". {sentence(row.todo)}" if row.todo else ".", style="default")
    return text


def _unseen(row: UnseenRow) -> Text:
    text = Text(f"{_names(row.engines)}{row.says}" + ".")
    effects = []
    if row.kind == "past":  # it names them itself, each with what it needs
        row = row.model_copy(update={"weakened": []})
    if row.blind:
        effects.append(f"blind: {', '.join(row.blind)}")
    if row.weakened:
        effects.append(f"less sure: {', '.join(row.weakened)}")
    if effects:
        text.append(f" Detectors {'; '.join(effects)}.", style="dim")
    if row.todo:
        text.append(f" {sentence(row.todo)}", style="cyan")
    return text


def _names(engines: list[str]) -> str:
    if not engines:
        return ""
    more = f" and {len(engines) - NAMES_SHOWN} more" if len(engines) > NAMES_SHOWN else ""
    return f"{', '.join(engines[:NAMES_SHOWN])}{more}: "


def _titled(title: str, lines: list[Text]) -> Table:
    grid = Table.grid(padding=(0, 1))
    grid.add_column(width=15, no_wrap=True)
    grid.add_column(overflow="fold")
    for number, line in enumerate(lines):
        grid.add_row(Text(f"  {title}" if number == 0 else "", style="bold dim"), line)
    return grid


def _indented(lines: Iterable[Text], bullet: str = "  -") -> Table:
    grid = Table.grid(padding=(0, 1))
    for line in lines:
        grid.add_row(bullet, line)
    return grid


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
