"""KV cache: blocks full for long, and requests thrown out for want of them.

Usage that touches its ceiling is normal; what counts is the mean over a span. Some preemptions are normal too, so they
are weighed against the requests finished.
"""

import numpy as np

from detectors.finding import Evidence, Finding, Symptom
from detectors.parameters import KvParameters
from detectors.statistics import Floats, row_mean
from serving.telemetry.window import Window

NEEDS = frozenset({"engine.kv_usage"})
HELPED_BY = frozenset({"engine.preemptions", "engine.finished.stop", "engine.finished.length"})


def detect(window: Window, parameters: KvParameters) -> tuple[Finding, ...]:
    """KV_FULL and PREEMPTING."""
    if window.rows == 0 or len(window.times) == 0:
        return ()
    return (*_full(window, parameters), *_preempting(window, parameters))


def _full(window: Window, parameters: KvParameters) -> list[Finding]:
    usage = window.values("engine.kv_usage", parameters.over)
    mean = row_mean(usage)
    peak = np.where(np.isnan(usage), -np.inf, usage).max(axis=1, initial=-np.inf)
    seen = (~np.isnan(usage)).sum(axis=1)
    covered = window.now - window.times[0] >= parameters.over
    found = (mean >= parameters.mean) & (peak >= parameters.peak) & (seen >= parameters.least_readings) & covered
    found &= window.age("engine.kv_usage") <= parameters.fresh
    return [
        Finding(
            Symptom.KV_FULL,
            window.topology.engines[row],
            window.now - parameters.over,
            float(np.clip(mean[row], 0.3, 1.0)),
            (
                Evidence(
                    "engine.kv_usage",
                    f"KV cache {mean[row] * 100:.0f} % full on average over {parameters.over:.0f} s, at most "
                    f"{peak[row] * 100:.0f} %",
                    float(mean[row]),
                    expected=parameters.mean,
                    unit="ratio",
                ),
            ),
        )
        for row in np.flatnonzero(found)
    ]


def _finished(window: Window, seconds: float) -> Floats:
    stopped = np.nan_to_num(window.increase("engine.finished.stop", seconds))
    return np.asarray(stopped + np.nan_to_num(window.increase("engine.finished.length", seconds)), dtype=np.float64)


def _preempting(window: Window, parameters: KvParameters) -> list[Finding]:
    thrown = np.nan_to_num(window.increase("engine.preemptions", parameters.preempting_over))
    finished = _finished(window, parameters.preempting_over)
    rate = thrown / np.maximum(finished, 1.0)
    found = (thrown >= parameters.preempted_least) & (rate >= parameters.preempted_share)
    return [
        Finding(
            Symptom.PREEMPTING,
            window.topology.engines[row],
            window.now - parameters.preempting_over,
            float(np.clip(0.3 + rate[row], 0.3, 1.0)),
            (
                Evidence(
                    "engine.preemptions",
                    f"{thrown[row]:.0f} requests thrown out of the batch for want of KV blocks in "
                    f"{parameters.preempting_over:.0f} s, {finished[row]:.0f} finished",
                    float(thrown[row]),
                    unit="preemptions",
                ),
            ),
        )
        for row in np.flatnonzero(found)
    ]
