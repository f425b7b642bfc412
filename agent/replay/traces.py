"""Traces: the signals over a replay, thinned to what a page can show."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from agent.loop import StepReport
from serving.telemetry.window import Window

Floats = NDArray[np.float64]

RATE = 10.0  # seconds over which rates are measured: a few scrapes
QUANTILE = 30.0  # seconds over which quantiles are: enough answers at one a second
FRESH = 10.0  # an older sample leaves a gap
POINTS = 600  # of one line; more is finer than a screen
_FAILED = ("door.finished.timeout", "door.finished.connection", "door.finished.http_5xx")


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a chart."""

    name: str
    of: Callable[[Window], Floats]


@dataclass(frozen=True, slots=True)
class Chart:
    """One chart of an engine: what it shows, its unit, and its lines."""

    title: str
    unit: str
    lines: tuple[Line, ...]


def _latest(signal: str, factor: float = 1.0) -> Callable[[Window], Floats]:
    return lambda window: window.latest(signal, FRESH) * factor


def _rate(*signals: str) -> Callable[[Window], Floats]:
    def of(window: Window) -> Floats:
        rates = np.array([window.rate(signal, RATE) for signal in signals])
        return np.where(np.isnan(rates).all(axis=0), np.nan, np.nansum(rates, axis=0))

    return of


def _ttft(window: Window) -> Floats:
    own = window.quantile("engine.ttft", 0.95, QUANTILE)
    return np.where(np.isnan(own), window.quantile("door.ttft", 0.95, QUANTILE), own)


CHARTS = (
    Chart(
        "requests",
        "",
        (
            Line("in batch", _latest("engine.running")),
            Line("waiting", _latest("engine.waiting")),
            Line("open at the door", _latest("door.in_flight")),
        ),
    ),
    Chart("engine steps", "/s", (Line("steps", _rate("engine.steps")),)),
    Chart("first token, 95 %", "s", (Line("time to first token", _ttft),)),
    Chart("KV cache", "%", (Line("in use", _latest("engine.kv_usage", 100.0)),)),
    Chart(
        "answers",
        "/s",
        (
            Line("whole", _rate("door.finished.ok")),
            Line("failed", _rate(*_FAILED)),
            Line("client left", _rate("door.finished.client_closed")),
        ),
    ),
)


class Traces:
    """Collects the lines of all charts, step by step; `take` is a watch for agent.replay.play."""

    def __init__(self) -> None:
        self._times: list[float] = []
        self._taken: dict[tuple[int, int], list[Floats]] = {}

    def take(self, report: StepReport) -> None:
        """Add what the window of this step shows."""
        self._times.append(report.window.now)
        for place, line in _lines():
            self._taken.setdefault(place, []).append(line.of(report.window).astype(np.float32))

    def of(self, row: int) -> Mapping[tuple[int, int], tuple[Floats, Floats]]:
        """Times and values of each line of the engine in `row`, by (chart, line); lines without any value are left out."""
        times = np.array(self._times)
        found = {}
        for place, columns in self._taken.items():
            values = np.array([column[row] for column in columns], dtype=np.float64)
            if not np.isnan(values).all():
                found[place] = thinned(times, values)
        return MappingProxyType(found)


def _lines() -> Sequence[tuple[tuple[int, int], Line]]:
    return [((c, n), line) for c, chart in enumerate(CHARTS) for n, line in enumerate(chart.lines)]


def thinned(times: Floats, values: Floats, points: int = POINTS) -> tuple[Floats, Floats]:
    """At most about `points` points that keep every peak and every dip; gaps (NaN) stay gaps."""
    if len(times) <= points:
        return times, values
    kept: list[int] = []
    for part in np.array_split(np.arange(len(times)), points // 2):
        present = part[~np.isnan(values[part])]
        if len(present):
            kept += sorted({int(present[values[present].argmin()]), int(present[values[present].argmax()])})
        else:
            kept.append(int(part[0]))
    return times[kept], values[kept]
