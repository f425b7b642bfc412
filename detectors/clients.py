"""Clients: whether they give up, and how soon.

Leaving is told by the front door. Whether the engine drove them away is not asked here: that is diagnosis.
"""

import numpy as np

from detectors.finding import Evidence, Finding, Symptom
from detectors.parameters import ClientsParameters
from detectors.statistics import row_mean
from serving.telemetry.window import Window

NEEDS = frozenset({"door.finished.ok", "door.finished.client_closed"})
HELPED_BY = frozenset({"door.finished.timeout", "door.in_flight"})


def detect(window: Window, parameters: ClientsParameters) -> tuple[Finding, ...]:
    """CLIENTS_LEAVING."""
    if window.rows == 0 or len(window.times) == 0:
        return ()
    seconds = parameters.over
    left = np.nan_to_num(window.increase("door.finished.client_closed", seconds))
    left = left + np.nan_to_num(window.increase("door.finished.timeout", seconds))
    served = np.nan_to_num(window.increase("door.finished.ok", seconds))
    in_flight = row_mean(window.values("door.in_flight", seconds))
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.where(left + served > 0, left / (left + served), 0.0)
        stayed = np.where(left + served > 0, in_flight * seconds / (left + served), np.nan)  # Little's law
    findings = []
    for row in np.flatnonzero((left >= parameters.least) & (share >= parameters.share)):
        after = "" if np.isnan(stayed[row]) else f", after {stayed[row]:.1f} s on average"
        says = (
            f"{left[row]:.0f} of {left[row] + served[row]:.0f} requests given up by their clients in {seconds:.0f} s{after}"
        )
        evidence = (Evidence("door.finished.client_closed", says, float(share[row]), expected=0.0, unit="ratio"),)
        severity = float(np.clip(0.2 + 0.8 * share[row], 0.3, 1.0))
        engine = window.topology.engines[row]
        findings.append(Finding(Symptom.CLIENTS_LEAVING, engine, window.now - seconds, severity, evidence))
    return tuple(findings)
