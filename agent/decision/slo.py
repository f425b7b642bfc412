"""How users of one engine were served over a span, beside its peers: what conditions read as `slo` and `goal`. Pure.

Counts and first bytes are taken at the front door, where users are; time between tokens from the engine, as only it knows.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from agent.decision.policy import Objectives
from serving.telemetry import counters
from serving.telemetry.columns import PROCESS_START, Floats
from serving.telemetry.window import Window

FAILED_RESULTS = ("timeout", "connection", "http_5xx")
TTFT = "door.ttft"
GAPS = "engine.inter_token"
MIDDLE, TAIL = 0.5, 0.95


@dataclass(frozen=True, slots=True)
class Span:
    """From `begin` to `end`, Unix seconds. What grew is counted from the first sample inside."""

    begin: float
    end: float


Measure = Callable[[Window, int, Sequence[int], Span], float]
Goal = Callable[[Window, Sequence[int], Span, Objectives], float]


def counted(window: Window, counter: str, rows: Sequence[int], span: Span) -> Floats:
    """What `counter` grew by over `span`, one number for each of `rows`. NaN with fewer than two samples.

    A door's counter for one result begins with the first such result: until then it counts as zero wherever the door
    reports on the engine at all, so that the first failures are not lost.
    """
    columns = _columns(window, span)
    values = _rows(window, counter, rows, columns)
    if counter.startswith("door.finished."):
        reporting = ~np.isnan(_rows(window, "door.started", rows, columns))
        unborn = np.isnan(counters.last_present(values)) & reporting
        values = np.where(unborn, 0.0, values)
    return counters.increase(values, _starts(window, counter, rows, columns))


def failures(window: Window, rows: Sequence[int], span: Span) -> Mapping[str, Floats]:
    """Failed answers by result, one number for each of `rows`; what clients did themselves is not among them."""
    return {result: counted(window, f"door.finished.{result}", rows, span) for result in FAILED_RESULTS}


def quantiles(window: Window, histogram: str, rows: Sequence[int], q: float, span: Span) -> Floats:
    """The q-quantile of `histogram` over `span`, one number for each of `rows`; NaN where nothing was observed."""
    matrix = window.histograms.get(histogram)
    if matrix is None or not len(rows):
        return np.full(len(rows), np.nan)
    columns = _columns(window, span)
    counts = matrix.counts[np.asarray(rows, dtype=np.intp)][:, columns]
    flat = counts.transpose(0, 2, 1).reshape(-1, counts.shape[1])
    starts = np.repeat(_starts(window, histogram, rows, columns), len(matrix.bounds), axis=0)
    grown = counters.increase(flat, starts).reshape(len(rows), len(matrix.bounds))
    return counters.quantile(matrix.bounds, grown, q)


def _requests(window: Window, row: int, _peers: Sequence[int], span: Span) -> float:
    failed = sum(counts[0] for counts in failures(window, [row], span).values())
    return float(counted(window, "door.finished.ok", [row], span)[0] + failed)


def _success(window: Window, row: int, peers: Sequence[int], span: Span) -> float:
    requests = _requests(window, row, peers, span)
    return float(counted(window, "door.finished.ok", [row], span)[0]) / requests if requests > 0 else np.nan


def _tail(histogram: str) -> Measure:
    return lambda window, row, _peers, span: float(quantiles(window, histogram, [row], TAIL, span)[0])


def _per_second(counter: str) -> Measure:
    def measured(window: Window, row: int, _peers: Sequence[int], span: Span) -> float:
        seconds = span.end - span.begin
        return float(counted(window, counter, [row], span)[0]) / seconds if seconds > 0 else np.nan

    return measured


def _against_peers(histogram: str, q: float) -> Measure:
    def measured(window: Window, row: int, peers: Sequence[int], span: Span) -> float:
        usual = _median(quantiles(window, histogram, peers, q, span))
        return float(quantiles(window, histogram, [row], q, span)[0]) / usual if usual > 0 else np.nan

    return measured


MEASURES: Mapping[str, Measure] = MappingProxyType(
    {
        "requests": _requests,
        "success": _success,
        "ttft": _tail(TTFT),
        "ttft_vs_peers": _against_peers(TTFT, MIDDLE),
        "ttft_tail_vs_peers": _against_peers(TTFT, TAIL),
        "inter_token": _tail(GAPS),
        "inter_token_vs_peers": _against_peers(GAPS, MIDDLE),
        "steps_per_second": _per_second("engine.steps"),
        "generation_tokens_per_second": _per_second("engine.generation_tokens"),
    }
)
"""How each measure of `runbooks.conditions.MEASURES` is taken: window, row of the engine, rows of healthy peers, span."""


def _promised_ttft(window: Window, peers: Sequence[int], span: Span, promised: Objectives) -> float:
    return _relaxed(promised.ttft, quantiles(window, TTFT, peers, TAIL, span), promised.peers_factor)


def _promised_gaps(window: Window, peers: Sequence[int], span: Span, promised: Objectives) -> float:
    return _relaxed(promised.inter_token, quantiles(window, GAPS, peers, TAIL, span), promised.peers_factor)


GOALS: Mapping[str, Goal] = MappingProxyType(
    {
        "ttft": _promised_ttft,
        "inter_token": _promised_gaps,
        "success": lambda _window, _peers, _span, promised: promised.success,
    }
)
"""How each goal of `runbooks.conditions.GOALS` is made: the promise, or `peers_factor` times the peers' median if more."""


def _relaxed(promised: float, of_peers: Floats, factor: float) -> float:
    usual = _median(of_peers)
    return promised if np.isnan(usual) else max(promised, factor * usual)


def _median(values: Floats) -> float:
    present = values[~np.isnan(values)]
    return float(np.median(present)) if len(present) else np.nan


def _columns(window: Window, span: Span) -> slice:
    first = int(np.searchsorted(window.times, span.begin, side="left"))
    return slice(first, max(first, int(np.searchsorted(window.times, span.end, side="right"))))


def _rows(window: Window, signal: str, rows: Sequence[int], columns: slice) -> Floats:
    chosen = np.asarray(rows, dtype=np.intp)
    matrix = window.signals.get(signal)
    if matrix is None:
        return np.full((len(chosen), len(window.times[columns])), np.nan)
    return matrix.values[chosen][:, columns]


def _starts(window: Window, signal: str, rows: Sequence[int], columns: slice) -> Floats:
    """Process starts that reset `signal`: an engine's own counters only, for the door's go on when the engine restarts."""
    return _rows(window, PROCESS_START if signal.startswith("engine.") else "", rows, columns)
