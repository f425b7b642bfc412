"""Reachability: whether the engine's API answers, and whether it is still the same process.

Refused means that nothing listens; silent that the port is open and no answer comes in time. Both must last: a scrape
that fails once or twice on a busy machine is no symptom. An engine that has never answered in this window is starting,
and is given the time that a start takes.
"""

import numpy as np

from detectors.finding import Evidence, Finding, Symptom
from detectors.parameters import ReachabilityParameters
from detectors.starts import under_way
from detectors.statistics import Bools, Floats, condition, lasting, row_median, sample_times, trailing_run
from serving.telemetry.counters import last_present, newest_value
from serving.telemetry.window import Window

NEEDS = frozenset({"scrape.up"})
HELPED_BY = frozenset({"scrape.seconds", "engine.process_start", "door.finished.connection", "door.finished.ok"})


def detect(window: Window, parameters: ReachabilityParameters) -> tuple[Finding, ...]:
    """TARGET_REFUSED, TARGET_SILENT, RESTARTED, RETURNED and REQUESTS_FAILING."""
    if window.rows == 0 or len(window.times) == 0:
        return ()
    up = window.values("scrape.up")
    at = sample_times(window, "scrape.up")
    down = condition(up, up == 0)
    return (
        *_down(window, parameters, down, at),
        *_returned(window, parameters, down, at),
        *_restarted(window, parameters),
        *_failing(window, parameters),
    )


def _refused(window: Window, parameters: ReachabilityParameters, down: Floats) -> Bools:
    """Whether the failed scrapes of the hold failed at once (nothing listens) rather than by the time limit."""
    lately = window.times > window.now - parameters.hold_silent
    took = np.where(down == 1, window.values("scrape.seconds"), np.nan)[:, lately]
    quick = row_median(took) < parameters.refused_within
    broken = window.increase("door.finished.connection", parameters.hold_silent) > 0
    return np.where(np.isnan(row_median(took)), broken, quick)


def _down(window: Window, parameters: ReachabilityParameters, down: Floats, at: Floats) -> list[Finding]:
    run = trailing_run(down, at)
    fresh = window.age("scrape.up") <= parameters.fresh
    refused = _refused(window, parameters, down)
    answered = (window.values("scrape.up") == 1).any(axis=1)
    hold = np.where(refused, parameters.hold_refused, parameters.hold_silent)
    hold = np.where(answered, hold, parameters.hold_starting)
    hold = np.where(under_way(window, parameters.fresh), np.inf, hold)  # detectors.starts says when that takes too long
    findings = []
    for row in np.flatnonzero(fresh & (run.held >= hold)):
        symptom = Symptom.TARGET_REFUSED if refused[row] else Symptom.TARGET_SILENT
        how = "refuses connections" if refused[row] else "takes connections and does not answer"
        never = "" if answered[row] else ", and has not answered since this watch began"
        says = f"its API {how} for {run.held[row]:.0f} s{never}"
        severity = min(1.0, 0.8 + 0.2 * float(run.held[row]) / 60.0)
        evidence = (Evidence("scrape.up", says, float(run.held[row]), expected=0.0, unit="seconds"),)
        findings.append(Finding(symptom, window.topology.engines[row], float(run.since[row]), severity, evidence))
    return findings


def _returned(window: Window, parameters: ReachabilityParameters, down: Floats, at: Floats) -> list[Finding]:
    lately = window.times >= window.now - parameters.aftermath
    away = lasting(down, at)
    longest = np.where(np.isnan(away), 0.0, away)[:, lately].max(axis=1, initial=0.0)
    back = trailing_run(condition(down, down == 0), at)
    found = ~np.isnan(back.since) & (longest >= parameters.hold_refused)
    return [
        Finding(
            Symptom.RETURNED,
            window.topology.engines[row],
            float(back.since[row]),
            0.3,
            (
                Evidence(
                    "scrape.up",
                    f"did not answer for {longest[row]:.0f} s and answers again since {window.now - back.since[row]:.0f} s",
                    float(longest[row]),
                    unit="seconds",
                ),
            ),
        )
        for row in np.flatnonzero(found)
    ]


def _restarted(window: Window, parameters: ReachabilityParameters) -> list[Finding]:
    starts = window.values("engine.process_start")
    before = np.full_like(starts, np.nan)
    before[:, 1:] = last_present(starts)[:, :-1]
    changed = np.abs(starts - before) > 1.0  # exposed to 10 ms; a second of difference is another process
    lately = window.times >= window.now - parameters.aftermath
    found = (changed & lately).any(axis=1)
    now = newest_value(starts)
    return [
        Finding(
            Symptom.RESTARTED,
            window.topology.engines[row],
            float(now[row]),
            0.3,
            (
                Evidence(
                    "engine.process_start",
                    f"its API process began anew {window.now - now[row]:.0f} s ago",
                    float(now[row]),
                    unit="unix seconds",
                ),
            ),
        )
        for row in np.flatnonzero(found)
    ]


def _failing(window: Window, parameters: ReachabilityParameters) -> list[Finding]:
    seconds = parameters.failing_over
    broken = np.nan_to_num(window.increase("door.finished.connection", seconds))
    errors = np.nan_to_num(window.increase("door.finished.http_5xx", seconds))
    served = np.nan_to_num(window.increase("door.finished.ok", seconds))
    failed = broken + errors
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.where(failed + served > 0, failed / (failed + served), 0.0)
    return [
        Finding(
            Symptom.REQUESTS_FAILING,
            window.topology.engines[row],
            window.now - seconds,
            float(np.clip(share[row], 0.3, 1.0)),
            (
                Evidence(
                    "door.finished.connection",
                    f"{failed[row]:.0f} of {failed[row] + served[row]:.0f} requests failed in the last {seconds:.0f} s",
                    float(share[row]),
                    expected=0.0,
                    unit="ratio",
                ),
            ),
        )
        for row in np.flatnonzero((failed >= parameters.failing_least) & (share >= parameters.failing_share))
    ]
