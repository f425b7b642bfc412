"""How users of one engine were served over a span, beside its peers: what conditions read as `slo` and `goal`. Pure.

Counts and first bytes are taken at the front door, where users are; time between tokens from the engine, as only it knows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from agent.decision.policy import Objectives
from serving.telemetry import counters
from serving.telemetry.window import PROCESS_START, Floats, Window

FAILED_RESULTS = ("timeout", "connection", "http_5xx")
TTFT = "door.ttft"
GAPS = "engine.inter_token"


@dataclass(frozen=True, slots=True)
class Span:
    """From `begin` to `end`, Unix seconds. What grew is counted from the first sample inside."""

    begin: float
    end: float


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


def measures(window: Window, row: int, peers: Sequence[int], span: Span) -> dict[str, float]:
    """Every measure of `runbooks.conditions.MEASURES` for the engine in `row`; NaN where it could not be taken."""
    ok = counted(window, "door.finished.ok", [row], span)[0]
    failed = sum(counts[0] for counts in failures(window, [row], span).values())
    requests = float(ok + failed)
    seconds = span.end - span.begin
    steps, tokens = (counted(window, name, [row], span)[0] for name in ("engine.steps", "engine.generation_tokens"))
    return {
        "requests": requests,
        "success": float(ok) / requests if requests > 0 else np.nan,
        "ttft": float(quantiles(window, TTFT, [row], 0.95, span)[0]),
        "ttft_vs_peers": _against(window, TTFT, row, peers, span, q=0.5),
        "ttft_tail_vs_peers": _against(window, TTFT, row, peers, span, q=0.95),
        "inter_token": float(quantiles(window, GAPS, [row], 0.95, span)[0]),
        "inter_token_vs_peers": _against(window, GAPS, row, peers, span, q=0.5),
        "steps_per_second": float(steps) / seconds if seconds > 0 else np.nan,
        "generation_tokens_per_second": float(tokens) / seconds if seconds > 0 else np.nan,
    }


def goals(window: Window, peers: Sequence[int], span: Span, objectives: Objectives) -> dict[str, float]:
    """Every goal of `runbooks.conditions.GOALS`: what is promised, relaxed to `peers_factor` times the peers' median."""
    return {
        "ttft": _relaxed(objectives.ttft, quantiles(window, TTFT, peers, 0.95, span), objectives.peers_factor),
        "inter_token": _relaxed(objectives.inter_token, quantiles(window, GAPS, peers, 0.95, span), objectives.peers_factor),
        "success": objectives.success,
    }


def _relaxed(promised: float, of_peers: Floats, factor: float) -> float:
    present = of_peers[~np.isnan(of_peers)]
    return max(promised, factor * float(np.median(present))) if len(present) else promised


def _against(window: Window, histogram: str, row: int, peers: Sequence[int], span: Span, *, q: float) -> float:
    of_peers = quantiles(window, histogram, peers, q, span)
    present = of_peers[~np.isnan(of_peers)]
    usual = float(np.median(present)) if len(present) else np.nan
    return float(quantiles(window, histogram, [row], q, span)[0]) / usual if usual > 0 else np.nan


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
