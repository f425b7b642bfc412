"""How a board looks to people: tables for a terminal, and the same as Markdown for a repository."""

from collections.abc import Iterable, Iterator, Sequence

from rich.table import Table
from rich.text import Text

from agent.scoreboard.board import Board, DecoyRow, FaultRow
from agent.scoreboard.statistics import Frequency, Quantile, Rate

FAULT_COLUMNS = (
    "fault",
    "drills",
    "found",
    "right cause",
    "right action",
    "found after",
    "isolated",
    "recovered",
    "failed",
    "false",
)
DECOY_COLUMNS = ("decoy", "trials", "quiet", "false incidents", "false actions", "destructive", "said")
SMALL = 0.999  # what would be rounded to a full 100 % is not shown as such
SHOWN = 3


def fault_table(shown: Board) -> Table:
    """One line a kind of fault, then the groups and all together."""
    return _table(FAULT_COLUMNS, fault_lines(shown), "faults (simulated)")


def decoy_table(shown: Board) -> Table:
    """One line a kind of decoy."""
    return _table(DECOY_COLUMNS, decoy_lines(shown), "decoys (simulated)")


def fault_lines(shown: Board) -> Iterator[tuple[str, ...]]:
    """The cells of the table of faults."""
    for row in (*shown.faults, *shown.groups, shown.overall):
        if row.drills:
            yield _fault(row)


def decoy_lines(shown: Board) -> Iterator[tuple[str, ...]]:
    """The cells of the table of decoys."""
    return (_decoy(row) for row in shown.decoys)


def sentences(shown: Board) -> Iterator[str]:
    """What all of it comes to."""
    totals, healthy, run = shown.totals, shown.healthy, shown.run
    yield (
        f"{totals.drills:,} drills with faults and {totals.decoys:,} with decoys, simulated, in {totals.seconds:,.0f} s on "
        f"{run.workers} cores ({run.cpu_seconds:,.0f} s of processor time); one look every {run.interval_s:g} s."
    )
    yield (
        f"{totals.false_incidents} false incidents in all trials together; "
        f"{totals.destructive_actions_on_decoys} destructive actions on decoys."
    )
    yield (
        f"{healthy.gpu_years:.3g} GPU-years of healthy time: false destructive actions per 1,000 GPU-years "
        f"{_frequency(healthy.false_destructive)}, false incidents {_frequency(healthy.false_incidents)}."
    )
    if run.trials < run.planned:
        yield f"Only {run.trials:,} of {run.planned:,} trials were run."
    if run.failed:
        first = next(iter(run.failed.items()))
        yield f"{len(run.failed)} trials could not be run; trial {first[0]}: {first[1]}"


def markdown(shown: Board) -> str:
    """The page that is kept in a repository."""
    run = shown.run
    lines = [
        "# Scoreboard",
        "",
        f"Made by `fleetwarden drill score --suite {run.suite} --seeds {run.seeds} --seed {run.seed}`, {run.version}.",
        "Every figure here is **simulated**; [how they are made, and what they do not say](../scoreboard.md).",
        "",
        *(f"{said}\n" for said in sentences(shown)),
        "## Faults",
        "",
        *_rows(FAULT_COLUMNS, fault_lines(shown)),
        "",
        "Rates with 95 % intervals; times are median / 99th percentile in seconds from the fault's beginning;",
        "failed: requests of users lost in a drill, in the mean; false: incidents / actions / destructive ones among these.",
        "",
        *_mistakes(shown),
        "## Decoys",
        "",
        *_rows(DECOY_COLUMNS, decoy_lines(shown)),
        "",
    ]
    return "\n".join(lines)


def _mistakes(shown: Board) -> Iterator[str]:
    rows = [row for row in shown.faults if row.mistaken_for or row.missed_in or row.wrong_actions or row.said or row.done]
    if not rows:
        return
    yield "### What went wrong"
    yield ""
    for row in rows:
        parts = []
        if row.missed_in:
            parts.append(f"missed {row.recall.of - row.recall.hits} times (trials {_numbers(row.missed_in)})")
        if row.mistaken_for:
            parts.append(f"called {_words(row.mistaken_for)} (trials {_numbers(row.misnamed_in)})")
        if row.wrong_actions:
            parts.append(f"first done instead: {_words(row.wrong_actions)}")
        if row.said or row.done:
            parts.append(f"false beside it: {_words(row.said | row.done)}")
        yield f"* {row.fault}: {'; '.join(parts)}"
    yield ""


def _table(columns: Sequence[str], lines: Iterable[Sequence[str]], title: str) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold dim")
    for number, name in enumerate(columns):
        table.add_column(name, justify="left" if number == 0 or name == "said" else "right", overflow="fold")
    for line in lines:
        table.add_row(*map(Text, line))
    return table


def _rows(columns: Sequence[str], lines: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(columns)} |"
    yield f"|{'---|' * len(columns)}"
    for line in lines:
        yield f"| {' | '.join(line)} |"


def _fault(row: FaultRow) -> tuple[str, ...]:
    return (
        row.fault,
        f"{row.drills:,}",
        _rate(row.recall),
        _rate(row.right_cause_first),
        _rate(row.right_first_action),
        _spans(row.detect_p50, row.detect_p99),
        _spans(row.isolate_p50, row.isolate_p99),
        _spans(row.recover_p50, row.recover_p99) + (f" ({_percent(row.recovered.value)})" if row.recovered.hits else ""),
        "-" if row.requests_failed is None else f"{row.requests_failed:.1f}",
        f"{row.false_incidents} / {row.false_actions} / {row.destructive_actions}",
    )


def _decoy(row: DecoyRow) -> tuple[str, ...]:
    counts = (row.false_incidents, row.false_actions, row.destructive_actions)
    return (row.decoy, f"{row.trials:,}", _rate(row.quiet), *map(str, counts), _words(row.said) or "-")


def _rate(of: Rate) -> str:
    if of.value is None or of.low is None or of.high is None:
        return "-"
    return f"{_percent(of.value)} ({100 * of.low:.0f}-{100 * of.high:.0f})"


def _percent(share: float | None) -> str:
    if share is None:
        return "-"
    shown = min(share, SMALL) if share < 1 else 1.0
    return f"{100 * shown:.1f} %" if shown < 1 else "100 %"


def _spans(middle: Quantile, tail: Quantile) -> str:
    if middle.value is None or tail.value is None:
        return "-"
    return f"{middle.value:.0f} / {tail.value:.0f}"


def _frequency(of: Frequency) -> str:
    if of.value is None:
        return "unknown (no healthy time)"
    return f"{of.value:,.4g} ({of.low:,.4g} to {of.high:,.4g}, {of.count} seen)"


def _words(counted: dict[str, int]) -> str:
    return ", ".join(f"{word} {count}x" for word, count in list(counted.items())[:SHOWN])


def _numbers(trials: Iterable[int]) -> str:
    return ", ".join(map(str, trials))
