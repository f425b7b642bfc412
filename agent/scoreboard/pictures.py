"""Pictures of a board, as SVG files: what is found, and how fast. matplotlib is loaded only here, when it is asked for."""

from pathlib import Path
from typing import Any

from agent.scoreboard.board import Board, FaultRow
from agent.scoreboard.statistics import Rate

RECALL, TIMES = "recall.svg", "time-to-detect.svg"
INK, SOFT, GOOD, SECOND = "#1f2933", "#9aa5b1", "#2a7f62", "#c05621"
ROW_INCHES, WIDTH_INCHES = 0.26, 9.0


class NoPicturesError(Exception):
    """matplotlib is not installed; the message says what to do."""


def draw(shown: Board, folder: Path) -> tuple[Path, ...]:
    """Write the pictures into `folder`. Raises NoPicturesError, and OSError when a file cannot be written."""
    try:
        import matplotlib as mpl  # noqa: PLC0415 - half a second and 60 MB that only pictures need
    except ImportError:
        raise NoPicturesError(
            "pictures need matplotlib: `pip install matplotlib` (the extra `pictures`), then run it again"
        ) from None
    mpl.use("svg")
    mpl.rcParams.update({"svg.hashsalt": "fleetwarden", "svg.fonttype": "none", "font.size": 9, "text.color": INK})
    rows = [row for row in shown.faults if row.drills][::-1]
    return (_recall(rows, shown, folder / RECALL), _times(rows, shown, folder / TIMES))


def _recall(rows: list[FaultRow], shown: Board, path: Path) -> Path:
    figure, axes = _canvas(
        rows, f"Found, and rightly named, with 95 % intervals (simulated, {shown.totals.drills:,} drills)"
    )
    for shift, colour, label, rates in (
        (0.14, GOOD, "found", [row.recall for row in rows]),
        (-0.14, SECOND, "right cause first, of those found", [row.right_cause_first for row in rows]),
    ):
        _points(axes, shift, colour, label, rates)
    axes.set_xlim(0, 102)
    axes.set_xlabel("per cent")
    return _saved(figure, axes, path)


def _points(axes: Any, shift: float, colour: str, label: str, rates: list[Rate]) -> None:
    known = [(at, one) for at, one in enumerate(rates) if one.value is not None]
    values = [100 * (one.value or 0.0) for _, one in known]
    spread = [
        [value - 100 * (one.low or 0.0) for value, (_, one) in zip(values, known, strict=True)],
        [100 * (one.high or 0.0) - value for value, (_, one) in zip(values, known, strict=True)],
    ]
    places = [at + shift for at, _ in known]
    axes.errorbar(values, places, xerr=spread, fmt="o", ms=3.5, lw=1, color=colour, label=label)


def _times(rows: list[FaultRow], shown: Board, path: Path) -> Path:
    title = f"Seconds from a fault to its diagnosis, one look every {shown.run.interval_s:g} s (simulated)"
    figure, axes = _canvas(rows, title)
    for at, row in enumerate(rows):
        if row.detect_p50.value is None or row.detect_p99.value is None:
            continue
        axes.plot([row.detect_p50.value, row.detect_p99.value], [at, at], color=SOFT, lw=2, zorder=1)
        axes.plot(row.detect_p50.value, at, "o", ms=4.5, color=GOOD, label="median" if at == 0 else None)
        axes.plot(row.detect_p99.value, at, "|", ms=9, mew=2, color=SECOND, label="99th percentile" if at == 0 else None)
    axes.set_xscale("log")
    axes.set_xlabel("seconds")
    axes.xaxis.set_major_formatter("{x:g}")
    return _saved(figure, axes, path)


def _canvas(rows: list[FaultRow], title: str) -> tuple[Any, Any]:
    from matplotlib.figure import Figure  # noqa: PLC0415 - see draw

    figure = Figure(figsize=(WIDTH_INCHES, 1.3 + ROW_INCHES * max(4, len(rows))), layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(title, loc="left", fontsize=10)
    axes.set_yticks(range(len(rows)), [f"{row.fault} ({row.drills})" for row in rows])
    axes.set_ylim(-0.6, max(3, len(rows)) - 0.4)
    axes.grid(axis="x", color="#e4e7eb", lw=0.7)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(length=0)
    return figure, axes


def _saved(figure: Any, axes: Any, path: Path) -> Path:
    if axes.get_legend_handles_labels()[1]:
        axes.legend(loc="lower left", frameon=False, fontsize=8)
    figure.savefig(path, metadata={"Date": None})
    return path
