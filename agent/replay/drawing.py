"""Drawing: charts and lanes as SVG text. Pure."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

WIDTH, LEFT, RIGHT = 1_160, 118, 12
CHART, LANE, GAP = 58, 17, 4
_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 14_400, 21_600, 43_200, 86_400)
_MOST_TICKS = 12
_BIG = 100.0


@dataclass(frozen=True, slots=True)
class Bar:
    """A span of time in a lane. `kind` is its CSS class, `tip` what a pointer over it shows, `to` the id it leads to."""

    begin: float
    end: float
    text: str
    kind: str
    tip: str
    to: str = ""


@dataclass(frozen=True, slots=True)
class Scale:
    """From Unix seconds to pixels."""

    begin: float
    end: float

    def x(self, at: float) -> float:
        """The pixel of a moment, within the drawing."""
        share = (at - self.begin) / max(1e-9, self.end - self.begin)
        return LEFT + min(1.0, max(0.0, share)) * (WIDTH - LEFT - RIGHT)

    def ticks(self) -> list[float]:
        """Seconds from the beginning at which a line is drawn."""
        span = self.end - self.begin
        step = next((step for step in _STEPS if span / step <= _MOST_TICKS), _STEPS[-1])
        return [float(at) for at in np.arange(0, span + 1e-6, step)]


def axis(scale: Scale) -> str:
    """The time axis: minutes and seconds since the beginning."""
    parts = [f'<text x="{scale.x(scale.begin + at):.1f}" y="12" class="tick">{_clock(at)}</text>' for at in scale.ticks()]
    return _svg(18, "".join(parts), "axis")


def lane(name: str, bars: Sequence[Bar], scale: Scale) -> str:
    """Spans side by side, in as many rows as they need."""
    rows: list[float] = []
    parts = []
    for bar in sorted(bars, key=lambda one: one.begin):
        x, end = scale.x(bar.begin), max(scale.x(bar.begin) + 3.0, scale.x(bar.end))
        wide = 6.2 * len(bar.text) + 10
        at = x + 5 if wide <= end - x else end + 5  # a text that does not fit stands behind its bar
        at = at if at + wide <= WIDTH else x - wide
        needed = max(end, at + wide)
        row = next((index for index, free in enumerate(rows) if x >= free), len(rows))
        rows[row:] = [needed, *rows[row + 1 :]]
        top = row * (LANE + GAP)
        shape = (
            f'<rect x="{x:.1f}" y="{top}" width="{end - x:.1f}" height="{LANE}" rx="3" class="bar {bar.kind}"/>'
            f'<text x="{at:.1f}" y="{top + 12.5}" class="said">{escape(bar.text)}</text><title>{escape(bar.tip)}</title>'
        )
        parts.append(f'<a href="#{escape(bar.to)}">{shape}</a>' if bar.to else f"<g>{shape}</g>")
    height = max(1, len(rows)) * (LANE + GAP)
    label = f'<text x="0" y="12.5" class="name">{escape(name)}</text>'
    return _svg(height, label + "".join(parts), "lane")


def chart(title: str, unit: str, lines: Iterable[tuple[int, Floats, Floats]], bands: Iterable[Bar], scale: Scale) -> str:
    """Lines over time with bands behind them. `lines` are (number of the colour, times, values)."""
    told = list(lines)
    top = max((float(np.nanmax(values)) for _, _, values in told), default=0.0)
    highest = _round_up(top)
    parts = [
        f'<rect x="{scale.x(band.begin):.1f}" y="0" width="{max(1.5, scale.x(band.end) - scale.x(band.begin)):.1f}" '
        f'height="{CHART}" class="band {band.kind}"/>'
        for band in bands
    ]
    parts += [
        f'<line x1="{scale.x(scale.begin + at):.1f}" x2="{scale.x(scale.begin + at):.1f}" y1="0" y2="{CHART}" class="grid"/>'
        for at in scale.ticks()
    ]
    parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{CHART - 0.5}" y2="{CHART - 0.5}" class="zero"/>')
    parts += [f'<path d="{_path(times, values, highest, scale)}" class="line l{number}"/>' for number, times, values in told]
    parts.append(f'<text x="0" y="24" class="name">{escape(title)}</text>')
    parts.append(f'<text x="0" y="40" class="much">up to {_number(highest)}{f" {unit}" if unit else ""}</text>')
    return _svg(CHART, "".join(parts), "chart")


def _path(times: Floats, values: Floats, highest: float, scale: Scale) -> str:
    told, begun = [], False
    for at, value in zip(times, values, strict=True):
        if math.isnan(value):
            begun = False
            continue
        y = CHART - 1 - (value / highest) * (CHART - 5)
        told.append(f"{'L' if begun else 'M'}{scale.x(float(at)):.1f} {y:.1f}")
        begun = True
    return "".join(told)


def _svg(height: float, content: str, kind: str) -> str:
    return f'<svg class="{kind}" viewBox="0 0 {WIDTH} {height:g}" width="{WIDTH}" height="{height:g}">{content}</svg>'


def _round_up(value: float) -> float:
    """The next of 1, 2, 2.5, 5 times a power of ten."""
    if not value > 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(power * step for step in (1.0, 2.0, 2.5, 5.0, 10.0) if power * step >= value * (1 - 1e-9))


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= _BIG else f"{value:.3g}"


def _clock(seconds: float) -> str:
    hours, rest = divmod(round(seconds), 3_600)
    minutes, left = divmod(rest, 60)
    return f"+{hours}:{minutes:02d}:{left:02d}" if hours else f"+{minutes}:{left:02d}"
