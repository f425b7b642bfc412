"""The shape of each signal around each fault: its level before, in and after it, on the target and on the others.

Both sides are asked the product's own questions over the product's own windows. Only the door's first tokens of a recording
come from the client's log, since the recorded door kept no histogram; they are put into the door's own buckets first.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from played import ClientLog, Part

from serving.gateway.metrics import BOUNDS
from serving.telemetry import counters
from serving.telemetry.window import Window

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

BEFORE_S, AFTER_S = 40.0, 30.0
STARTS_S = 2.0  # a look: what was under way at the start of a fault ends
SETTLES_S = 10.0  # after a fault, before what comes after it is looked at
LONG_GAP_S = 0.2  # the detector of pauses asks for the same
NOTHING_DONE = "baseline"
DRAWN_S = 10.0  # over how long each point of a curve is worked out
PHASES = ("before", "in", "after")


@dataclass(frozen=True)
class Phase:
    """A span of time, Unix seconds."""

    start: float
    end: float


def phases(parts: tuple[Part, ...], part: Part, last: float) -> tuple[Phase, Phase, Phase]:
    """Before, in and after a part; another part beside it is neither before nor after, unless nothing was done in it."""
    done = [other for other in parts if other.fault != NOTHING_DONE]
    ended = max((other.end + SETTLES_S for other in done if other.end <= part.start), default=part.start - BEFORE_S)
    begins = min((other.start for other in done if other.start >= part.end), default=last)
    before = Phase(min(max(part.start - BEFORE_S, ended), part.start - SETTLES_S), part.start)
    return (
        before,
        Phase(part.start + STARTS_S, part.end),
        Phase(part.end + SETTLES_S, min(part.end + SETTLES_S + AFTER_S, begins)),
    )


def _gauge(name: str) -> Callable[[Window, float], Floats]:
    def mean(window: Window, seconds: float) -> Floats:
        values = window.values(name, seconds)
        count = (~np.isnan(values)).sum(axis=1)
        with np.errstate(invalid="ignore"):
            return np.asarray(np.where(count > 0, np.nansum(values, axis=1) / count, np.nan))

    return mean


def _rate(name: str) -> Callable[[Window, float], Floats]:
    return lambda window, seconds: window.rate(name, seconds)


def _quantile(name: str, q: float) -> Callable[[Window, float], Floats]:
    return lambda window, seconds: window.quantile(name, q, seconds)


def _long_gaps(window: Window, seconds: float) -> Floats:
    """The share of readings with tokens in which at least one came more than LONG_GAP_S after the one before it."""
    matrix = window.histograms.get("engine.inter_token")
    if matrix is None:
        return np.full(window.rows, np.nan)
    columns = slice(int(np.searchsorted(window.times, window.now - seconds)), None)
    counts = matrix.counts[:, columns]
    within = int(np.searchsorted(matrix.bounds, LONG_GAP_S))
    grown = np.diff(counts[:, :, -1], axis=1)
    long = np.diff(counts[:, :, -1] - counts[:, :, within], axis=1)
    present = (grown >= 1.0).sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(present > 0, (long >= LEAST_GAPS).sum(axis=1) / present, np.nan))


LEAST_GAPS = 0.5  # counts of a fleet in virtual time may be fractions
SIGNALS: Mapping[str, Callable[[Window, float], Floats]] = {
    "asked/s": _rate("door.started"),
    "steps/s": _rate("engine.steps"),
    "tokens/s": _rate("engine.generation_tokens"),
    "running": _gauge("engine.running"),
    "waiting": _gauge("engine.waiting"),
    "kv usage": _gauge("engine.kv_usage"),
    "in flight": _gauge("door.in_flight"),
    "ttft p50": _quantile("engine.ttft", 0.5),
    "ttft p95": _quantile("engine.ttft", 0.95),
    "inter-token p50": _quantile("engine.inter_token", 0.5),
    "long gaps": _long_gaps,
    "preemptions/s": _rate("engine.preemptions"),
    "scrape up": _gauge("scrape.up"),
    "ok/s": _rate("door.finished.ok"),
    "timeouts/s": _rate("door.finished.timeout"),
    "connection errors/s": _rate("door.finished.connection"),
    "door ttft p50": _quantile("door.ttft", 0.5),
    "door ttft p95": _quantile("door.ttft", 0.95),
}
DOOR_QUANTILES = {"door ttft p50": 0.5, "door ttft p95": 0.95}


def _spread(name: str) -> Callable[[Window, float], Floats]:
    def spread(window: Window, seconds: float) -> Floats:
        values = window.values(name, seconds)
        return np.asarray(np.fmax.reduce(values, axis=1) - np.fmin.reduce(values, axis=1))

    return spread


def _frozen(window: Window, seconds: float) -> Bools:
    """The API answers, the step counter stands still, and no gauge moves."""
    still = [_spread(name)(window, seconds) == 0 for name in ("engine.running", "engine.waiting", "engine.kv_usage")]
    answers = _gauge("scrape.up")(window, seconds) == 1
    return np.asarray(answers & (window.increase("engine.steps", seconds) == 0) & np.logical_and.reduce(still))


def _refused(window: Window, seconds: float) -> Bools:
    """Nothing listens: scrapes fail and so do new requests, at once."""
    down = _gauge("scrape.up")(window, seconds) <= FEW
    return np.asarray(down & (window.rate("door.finished.connection", seconds) > 0))


def _silent(window: Window, seconds: float) -> Bools:
    """The port is open and nobody answers: scrapes fail, no connection is refused, requests pile up."""
    down = _gauge("scrape.up")(window, seconds) <= FEW
    refused = np.nan_to_num(window.rate("door.finished.connection", seconds))
    return np.asarray(down & (refused == 0) & (_spread("door.in_flight")(window, seconds) > SOME))


def _full(name: str, least: float) -> Callable[[Window, float], Bools]:
    return lambda window, seconds: np.asarray(np.fmax.reduce(window.values(name, seconds), axis=1) >= least)


SOME = 5.0  # requests more in flight
FEW = 0.1  # of the scrapes: one may have been under way
FACTS: Mapping[str, Callable[[Window, float], Bools]] = {
    "frozen": _frozen,
    "refused": _refused,
    "silent": _silent,
    "batch full": _full("engine.running", 16.0),
    "cache full": _full("engine.kv_usage", 0.95),
}

Shape = dict[str, Floats]  # of one part: by signal, (engines, phases)


@dataclass(frozen=True)
class Side:
    """What one side showed: `shapes` and `facts` by part, and `curves` by signal, (looks, engines), at `times`.

    Facts are those of FACTS while the part went on, by name, (engines,).
    """

    times: Floats
    shapes: Mapping[Part, Shape]
    facts: Mapping[Part, Mapping[str, Bools]]
    curves: Mapping[str, Floats]


def seen(windows: Iterable[Window], parts: tuple[Part, ...], last: float, log: ClientLog | None = None) -> Side:
    """Everything of one side. `log` is given for a recording: its door's first tokens are worked out from it."""
    asked = [(phase.end, part, number, phase) for part in parts for number, phase in enumerate(phases(parts, part, last))]
    pending = sorted(asked, key=lambda one: one[0], reverse=True)
    shapes: dict[Part, Shape] = {}
    facts: dict[Part, Mapping[str, Bools]] = {}
    times: list[float] = []
    drawn: list[Shape] = []
    before: Window | None = None
    for window in windows:
        times.append(window.now)
        drawn.append({name: ask(window, DRAWN_S) for name, ask in SIGNALS.items()})
        while pending and pending[-1][0] < window.now:  # the last look before the phase ended
            _, part, number, phase = pending.pop()
            shape = shapes.setdefault(part, {name: np.full((window.rows, len(PHASES)), np.nan) for name in SIGNALS})
            if before is None or before.now <= phase.start:
                continue
            for name, ask in SIGNALS.items():
                shape[name][:, number] = ask(before, before.now - phase.start)
            if PHASES[number] == "in":
                facts[part] = {name: ask(before, before.now - phase.start) for name, ask in FACTS.items()}
            if log is not None:
                _from_log(log, phase, number, shape)
        before = window
    at = np.array(times)
    curves = {name: np.array([one[name] for one in drawn]) for name in SIGNALS}
    if log is not None:
        curves |= {
            name: np.array([_first_tokens(log, Phase(now - DRAWN_S, now), q, len(curves[name][0])) for now in times])
            for name, q in DOOR_QUANTILES.items()
        }
    return Side(at, shapes, facts, curves)


def _from_log(log: ClientLog, phase: Phase, number: int, shape: Shape) -> None:
    for name, q in DOOR_QUANTILES.items():
        shape[name][:, number] = _first_tokens(log, phase, q, len(shape[name]))


def _first_tokens(log: ClientLog, phase: Phase, q: float, engines: int) -> Floats:
    """The quantile of the times to first token of the answers that ended in `phase`, from the door's buckets."""
    ended = log.came + log.whole
    mine = (log.result == "ok") & (ended >= phase.start) & (ended < phase.end) & ~np.isnan(log.first)
    bounds = np.array([*BOUNDS, np.inf])
    counts = np.zeros((engines, len(bounds)))
    np.add.at(counts, (log.row[mine], np.searchsorted(bounds, log.first[mine])), 1.0)
    return counters.quantile(bounds, np.cumsum(counts, axis=1), q)
