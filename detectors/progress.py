"""Progress: whether the engine steps while the front door waits for answers.

The strongest evidence there is of a hang: a counter of engine steps that stands still while requests are out. Silent
for an idle engine (nothing in flight), for a long prefill or a pause (shorter than the hold), for an engine that cannot
be read (reachability's business) or sleeps by order, and more patient with one that has just started.
"""

import numpy as np

from detectors.finding import Evidence, Finding, Symptom
from detectors.parameters import ProgressParameters
from detectors.statistics import Bools, Floats, condition, lasting, sample_times, trailing_run
from serving.telemetry.counters import last_present, newest_value
from serving.telemetry.window import Window

NEEDS = frozenset({"engine.steps"})
HELPED_BY = frozenset(
    {"door.in_flight", "engine.running", "engine.waiting", "engine.open_fds", "engine.process_start", "engine.awake"}
)

ANOTHER_PROCESS = 1.0  # seconds between two start times, which are exposed to 10 ms


def detect(window: Window, parameters: ProgressParameters) -> tuple[Finding, ...]:
    """STEPS_FROZEN, GAUGES_FROZEN and RETURNED."""
    if window.rows == 0 or len(window.times) == 0:
        return ()
    standing = _standing(window)
    if not _ever_stood(window, parameters, standing):
        return ()
    fresh = window.age("engine.steps") <= parameters.fresh
    readable = fresh & ~(window.latest("engine.awake", parameters.fresh) == 0)
    return (
        *_frozen(window, parameters, standing, readable),
        *_gauges(window, parameters, standing, readable),
        *_returned(window, parameters, standing, readable),
    )


def _standing(window: Window) -> Floats:
    """Seconds since the last sample that saw a new step or a new process, at each sample of the step counter.

    Shape (engines, times).
    """
    at = sample_times(window, "engine.steps")
    first = np.where(np.isnan(at), np.inf, at).min(axis=1)
    starts = window.values("engine.process_start")
    anew = np.zeros(starts.shape, dtype=np.bool_)
    anew[:, 1:] = np.abs(starts[:, 1:] - last_present(starts)[:, :-1]) > ANOTHER_PROCESS
    moved = np.where((window.increments("engine.steps") > 0) | anew, np.where(np.isnan(at), window.times, at), -np.inf)
    moved = np.maximum(np.maximum.accumulate(moved, axis=1), first[:, None])
    with np.errstate(invalid="ignore"):
        return np.asarray(at - moved, dtype=np.float64)


def _ever_stood(window: Window, parameters: ProgressParameters, standing: Floats) -> bool:
    """Whether any engine stands, or stood lately, for as long as the shortest hold: else there is nothing to find."""
    shortest = min(parameters.hold, parameters.hold_young, parameters.hold_gauges, parameters.hold_doorless)
    columns = window.times >= window.now - parameters.aftermath
    columns[-1] = True
    return bool((last_present(standing)[:, columns] >= shortest).any())


def _stalled(window: Window, standing: Floats) -> Floats:
    """Seconds without a step while the door waited throughout, at each time. (engines, times); NaN without a door."""
    in_flight = window.values("door.in_flight")
    busy = lasting(condition(in_flight, in_flight > 0), sample_times(window, "door.in_flight"))
    return np.asarray(np.minimum(last_present(standing), last_present(busy)), dtype=np.float64)


def _hold(window: Window, parameters: ProgressParameters) -> Floats:
    """How long a standstill must last before it is one: longer for an engine that has just started or never stepped."""
    age = window.now - window.latest("engine.process_start", np.inf)
    fledgling = (age < parameters.young) | (window.latest("engine.steps", np.inf) == 0)
    return np.where(fledgling, parameters.hold_young, parameters.hold)


def _stuck(standing: Floats, stalled: Floats, at: Floats, hold: Floats) -> Floats:
    """For how long the engine has been stuck: since the door began to wait in a standstill that reached `hold`. (engines,).

    Once reached, it lasts until the next step, also when nobody waits any more: clients give up and the door turns away from
    a hung engine, and that does not mend it. 0 where the engine is not stuck.
    """
    current = at >= (at - standing)[:, -1:]  # the columns since the last step
    reached = current & (stalled >= hold[:, None])
    first = np.argmax(reached, axis=1)[:, None]
    begun = np.take_along_axis(at - stalled, first, axis=1)[:, 0]
    return np.where(reached.any(axis=1), at[:, -1] - begun, 0.0)


def _frozen(window: Window, parameters: ProgressParameters, standing: Floats, readable: Bools) -> list[Finding]:
    at = last_present(sample_times(window, "engine.steps"))
    held = _stuck(last_present(standing), _stalled(window, standing), at, _hold(window, parameters))
    in_flight = np.nan_to_num(window.latest("door.in_flight", parameters.fresh))
    files = window.values("engine.open_fds", parameters.hold_young)
    least = np.where(np.isnan(files), np.inf, files).min(axis=1, initial=np.inf)
    climbed = newest_value(files) - least
    findings = []
    for row in np.flatnonzero(readable & (held > 0)):
        waiting = (
            f"{in_flight[row]:.0f} requests in flight" if in_flight[row] else "requests that the door waited for in vain"
        )
        evidence = [
            Evidence(
                "engine.steps",
                f"no engine step for {held[row]:.0f} s with {waiting}",
                float(held[row]),
                expected=0.0,
                unit="seconds",
            ),
            Evidence("scrape.up", "its /metrics still answers", 1.0),
        ]
        if climbed[row] >= parameters.files_climbed:
            says = f"open files of its API process rose by {climbed[row]:.0f}, as when requests pile up"
            evidence.append(Evidence("engine.open_fds", says, float(climbed[row]), unit="files"))
        severity = float(min(1.0, 0.7 + 0.3 * held[row] / 60.0))
        since, engine = window.now - float(held[row]), window.topology.engines[row]
        findings.append(Finding(Symptom.STEPS_FROZEN, engine, since, severity, tuple(evidence)))
    return findings


def _gauges(window: Window, parameters: ProgressParameters, standing: Floats, readable: Bools) -> list[Finding]:
    """The engine's own gauges claim work and nothing steps; without a door this may be a hang just as well."""
    claimed = window.values("engine.running") + window.values("engine.waiting")
    claims = trailing_run(condition(claimed, claimed > 0), sample_times(window, "engine.running"))
    since_step = np.minimum(newest_value(standing), claims.held)
    in_flight = window.values("door.in_flight")
    empty = trailing_run(condition(in_flight, in_flight == 0), sample_times(window, "door.in_flight")).held
    doorless = window.age("door.in_flight") > parameters.fresh
    held = np.where(doorless, since_step, np.minimum(since_step, empty))
    found = readable & (held >= parameters.hold_gauges)
    count = newest_value(claimed)
    findings = []
    for row in np.flatnonzero(found):
        engine, since = window.topology.engines[row], window.now - float(held[row])
        known = "and no front door to say whether anyone waits" if doorless[row] else "with nothing in flight at the door"
        says = f"its gauges claim {count[row]:.0f} requests, no step for {held[row]:.0f} s, {known}"
        evidence = (Evidence("engine.running", says, float(count[row]), unit="requests"),)
        findings.append(Finding(Symptom.GAUGES_FROZEN, engine, since, 0.4 if doorless[row] else 0.6, evidence))
        if doorless[row]:
            # work that is claimed and does not step is a hang more often than an old gauge, and a hang hurts
            findings.append(Finding(Symptom.STEPS_FROZEN, engine, since, 0.7, evidence))
    return [*findings, *_piling_files(window, parameters, standing, readable & doorless & ~found)]


def _piling_files(window: Window, parameters: ProgressParameters, standing: Floats, doorless: Bools) -> list[Finding]:
    """Without a door: open files of the API process that climb while nothing steps are requests that nobody answers."""
    held = newest_value(standing)
    files = window.values("engine.open_fds")
    during = np.where(sample_times(window, "engine.open_fds") >= window.now - held[:, None], files, np.nan)
    least = np.where(np.isnan(during), np.inf, during).min(axis=1, initial=np.inf)
    climbed = newest_value(files) - least
    found = doorless & (held >= parameters.hold_doorless) & (climbed >= parameters.files_climbed)
    return [
        Finding(
            Symptom.STEPS_FROZEN,
            window.topology.engines[row],
            window.now - float(held[row]),
            0.5,
            (
                Evidence(
                    "engine.open_fds",
                    f"no engine step for {held[row]:.0f} s, open files rose by {climbed[row]:.0f}; no front door to ask",
                    float(climbed[row]),
                    unit="files",
                ),
            ),
        )
        for row in np.flatnonzero(found)
    ]


def _returned(window: Window, parameters: ProgressParameters, standing: Floats, readable: Bools) -> list[Finding]:
    stalled = _stalled(window, standing)
    at = last_present(sample_times(window, "engine.steps"))
    lately = window.times >= window.now - parameters.aftermath
    longest = np.where(np.isnan(stalled), 0.0, stalled)[:, lately].max(axis=1, initial=0.0)
    stuck = _stuck(last_present(standing), stalled, at, np.full(window.rows, parameters.hold))
    found = readable & (stuck == 0) & (longest >= parameters.hold)
    since = window.now - newest_value(standing)
    return [
        Finding(
            Symptom.RETURNED,
            window.topology.engines[row],
            float(since[row]),
            0.3,
            (
                Evidence(
                    "engine.steps",
                    f"stood still for {longest[row]:.0f} s until a moment ago and steps again",
                    float(longest[row]),
                    unit="seconds",
                ),
            ),
        )
        for row in np.flatnonzero(found)
    ]
