"""Pictures of the comparison: per part, the recording and the fleet in virtual time, a few signals each, as PNG files."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from played import Part
from shapes import Side

INK, SOFT, REAL, VIRTUAL = "#1f2933", "#9aa5b1", "#c05621", "#2a7f62"
AROUND_S = 45.0
TOLD: Mapping[str, tuple[str, str, str]] = {
    "gc_stall": ("ttft p50", "in flight", "steps/s"),
    "slow_worker": ("ttft p50", "steps/s", "running"),
    "engine_hang": ("steps/s", "in flight", "running"),
    "worker_hang": ("steps/s", "in flight", "timeouts/s"),
    "prefill_saturation": ("steps/s", "ttft p50", "kv usage"),
    "long_generation_flood": ("running", "waiting", "kv usage"),
    "traffic_surge": ("ok/s", "steps/s", "in flight"),
    "mass_cancel": ("running", "waiting", "timeouts/s"),
    "client_disconnects": ("timeouts/s", "in flight", "steps/s"),
    "api_hang": ("scrape up", "in flight", "timeouts/s"),
    "engine_killed": ("scrape up", "connection errors/s", "ok/s"),
    "kv_busy": ("kv usage", "running", "steps/s"),
    "kv_pressure": ("kv usage", "waiting", "ttft p50"),
    "oversize_head": ("kv usage", "waiting", "steps/s"),
}
SHEETS: Mapping[str, tuple[str, ...]] = {
    "hangs-and-death": ("engine_hang", "worker_hang", "api_hang", "engine_killed"),
    "slowness": ("gc_stall", "slow_worker", "prefill_saturation"),
    "load": ("long_generation_flood", "traffic_surge", "mass_cancel", "client_disconnects"),
    "kv-cache": ("kv_busy", "kv_pressure", "oversize_head"),
}


class NoPicturesError(Exception):
    """matplotlib is not installed; the message says what to do."""


def draw(sides: Mapping[Part, tuple[Side, Side]], folder: Path) -> tuple[Path, ...]:
    """Write a sheet a file into `folder`; `sides` are recording and virtual fleet of each part. Raises NoPicturesError."""
    try:
        import matplotlib as mpl  # noqa: PLC0415 - half a second and 60 MB that only pictures need
    except ImportError:
        raise NoPicturesError("pictures need matplotlib: `pip install matplotlib`, then run it again") from None
    mpl.use("agg")
    mpl.rcParams.update({"font.size": 8, "text.color": INK, "axes.labelcolor": INK})
    folder.mkdir(parents=True, exist_ok=True)
    by_name = {part.fault: part for part in sides}
    return tuple(
        _sheet([by_name[fault] for fault in faults], sides, folder / f"{name}.png")
        for name, faults in SHEETS.items()
        if all(fault in by_name for fault in faults)
    )


def _sheet(parts: list[Part], sides: Mapping[Part, tuple[Side, Side]], path: Path) -> Path:
    from matplotlib.figure import Figure  # noqa: PLC0415 - see draw

    figure = Figure(figsize=(10.0, 0.5 + 1.75 * len(parts)), layout="constrained", dpi=110)
    grid = figure.subplots(len(parts), 3, squeeze=False)
    for row, part in zip(grid, parts, strict=True):
        for axes, signal in zip(row, TOLD[part.fault], strict=True):
            _small(axes, part, signal, sides[part])
        row[0].set_title(f"{part.fault.replace('_', ' ')} of {part.target}: {TOLD[part.fault][0]}", loc="left", fontsize=8)
    figure.legend(*grid[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    figure.savefig(path, metadata={"Software": None})
    return path


def _small(axes: Any, part: Part, signal: str, sides: tuple[Side, Side]) -> None:
    engines = sides[0].curves[signal].shape[1]
    targets = part.rows(engines)
    others = [row for row in range(engines) if row not in targets]
    axes.axvspan(0.0, part.end - part.start, color="#eef1f4", lw=0, label="while it went on")
    for side, colour, label in zip(sides, (REAL, VIRTUAL), ("recorded vLLM", "fleet in virtual time"), strict=True):
        shown = (side.times > part.start - AROUND_S) & (side.times < part.end + AROUND_S)
        at, curve = side.times[shown] - part.start, side.curves[signal][shown]
        if others:
            axes.plot(at, curve[:, others].mean(axis=1), color=colour, lw=0.7, ls=":", zorder=2)
        axes.plot(at, curve[:, targets].mean(axis=1), color=colour, lw=1.4, label=label, zorder=3)
    axes.set_title(signal, loc="left", fontsize=8)
    axes.set_xlim(-AROUND_S, part.end - part.start + AROUND_S)
    axes.set_ylim(bottom=0.0)
    axes.margins(y=0.1)
    if np.nanmax(axes.get_ylim()) < 0.05:  # noqa: PLR2004 - an empty scale would magnify noise
        axes.set_ylim(0.0, 0.05)
    for edge in ("top", "right"):
        axes.spines[edge].set_visible(False)
    axes.tick_params(length=2, colors=SOFT, labelcolor=INK)
