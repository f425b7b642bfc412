"""Clients: whether they give up, and how soon.

Told by the front door, or, where clients come past it, by the engine's own books: a request that got its first token, is
not running and never finished was left. (The engine's count of aborted requests reads 0 in several versions.) Whether the
engine drove them away is not asked here: that is diagnosis.
"""

import numpy as np
from numpy.typing import NDArray

from detectors.finding import Evidence, Finding, Symptom
from detectors.parameters import ClientsParameters
from detectors.statistics import Floats, histogram_steps, row_mean
from serving.telemetry.counters import last_present
from serving.telemetry.window import Window

NEEDS: frozenset[str] = frozenset()
HELPED_BY = frozenset(
    {
        "door.finished.ok",
        "door.finished.client_closed",
        "door.finished.timeout",
        "door.in_flight",
        "engine.ttft",
        "engine.running",
        "engine.finished.stop",
        "engine.finished.length",
        "engine.finished.error",
    }
)


def detect(window: Window, parameters: ClientsParameters) -> tuple[Finding, ...]:
    """CLIENTS_LEAVING."""
    if window.rows == 0 or len(window.times) == 0:
        return ()
    seconds = parameters.over
    left, served = _by_door(window, seconds)
    vanished, finished = _by_engine(window, seconds)
    share, engine_share = _share(left, served), _share(vanished, finished)
    by_door = (left >= parameters.least) & (share >= parameters.share)
    by_engine = (vanished >= parameters.least) & (engine_share >= parameters.share) & ~by_door
    stayed = row_mean(window.values("door.in_flight", seconds)) * seconds / np.maximum(left + served, 1.0)  # Little's law
    findings = []
    for row in np.flatnonzero(by_door):
        after = "" if np.isnan(stayed[row]) else f", after {stayed[row]:.1f} s on average"
        says = (
            f"{left[row]:.0f} of {left[row] + served[row]:.0f} requests given up by their clients in {seconds:.0f} s{after}"
        )
        findings.append(_finding(window, parameters, row, float(share[row]), "door.finished.client_closed", says))
    for row in np.flatnonzero(by_engine):
        says = (
            f"{vanished[row]:.0f} requests got their first token in {seconds:.0f} s, run no more and never finished "
            f"({finished[row]:.0f} did): their clients left"
        )
        findings.append(_finding(window, parameters, row, float(engine_share[row]), "engine.ttft", says))
    return tuple(findings)


def _by_door(window: Window, seconds: float) -> tuple[Floats, Floats]:
    left = np.nan_to_num(window.increase("door.finished.client_closed", seconds))
    left = left + np.nan_to_num(window.increase("door.finished.timeout", seconds))
    return left, np.nan_to_num(window.increase("door.finished.ok", seconds))


def _by_engine(window: Window, seconds: float) -> tuple[Floats, Floats]:
    """How many requests vanished from the engine's books, and how many finished. (engines,) both."""
    lately = window.times > window.now - seconds
    first, _ = histogram_steps(window, "engine.ttft")
    ended = sum(
        np.nan_to_num(window.increments(f"engine.finished.{how}")[:, lately]).sum(axis=1)
        for how in ("stop", "length", "error")
    )
    running = last_present(window.values("engine.running"))
    before = running[:, ~lately][:, -1] if (~lately).any() else running[:, 0]
    begun = np.nan_to_num(first[:, lately]).sum(axis=1)
    vanished = np.nan_to_num(begun - ended - (running[:, -1] - before))
    vanished[_books_apart(window, np.flatnonzero(vanished > 0), seconds)] = 0.0
    return vanished, np.asarray(ended, dtype=np.float64)


def _books_apart(window: Window, rows: NDArray[np.intp], seconds: float) -> NDArray[np.intp]:
    """Those of `rows` whose first tokens and ends were not told at the same moments: one book was lost or is found again.

    What a counter grew by while nobody could read it shows at once when it is found, and nothing stands against it.
    """
    begun = window.histograms.get("engine.ttft")
    if begun is None or not len(rows):
        return rows
    lately = window.times > window.now - 2.0 * seconds
    told = ~np.isnan(begun.counts[rows][:, lately, -1])
    apart, ever = np.zeros(len(rows), dtype=np.bool_), np.zeros(len(rows), dtype=np.bool_)
    for how in ("stop", "length", "error"):
        known = ~np.isnan(window.values(f"engine.finished.{how}")[rows])
        ever |= known.any(axis=1)
        apart |= known.any(axis=1) & (known[:, lately] != told).any(axis=1)
    return rows[apart | ~ever]


def _share(left: Floats, served: Floats) -> Floats:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(left + served > 0, left / (left + served), 0.0)


def _finding(window: Window, parameters: ClientsParameters, row: int, share: float, signal: str, says: str) -> Finding:
    evidence = (Evidence(signal, says, share, expected=0.0, unit="ratio"),)
    severity = float(np.clip(0.2 + 0.8 * share, 0.3, 1.0))
    engine = window.topology.engines[row]
    return Finding(Symptom.CLIENTS_LEAVING, engine, window.now - parameters.over, severity, evidence)
