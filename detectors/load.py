"""Load: more comes than goes, on one engine or on a whole model.

A queue that empties within seconds is a burst, not overload, so everything here must last. For a model, the most
loaded engine is left out of the sum: what remains raised is raised on the fleet and not on one engine.
"""

import numpy as np

from detectors.finding import Evidence, Finding, Symptom
from detectors.parameters import LoadParameters
from detectors.statistics import (
    Bools,
    Floats,
    block_means,
    block_ratio,
    blocks,
    condition,
    histogram_steps,
    own_past,
    recent_mean,
    row_mean,
    sample_times,
    trailing_run,
)
from serving.fleet.entity import Entity, EntityKind
from serving.telemetry.window import Window

NEEDS = frozenset({"engine.waiting", "engine.running"})
HELPED_BY = frozenset(
    {"engine.waiting.capacity", "engine.kv_usage", "door.started", "door.in_flight", "engine.generation_length"}
)


def detect(window: Window, parameters: LoadParameters) -> tuple[Finding, ...]:
    """QUEUE_GROWING, BATCH_FULL, LONG_GENERATIONS; ARRIVALS_RAISED and SERVED_BELOW_ARRIVALS, also on models."""
    if window.rows == 0 or len(window.times) == 0:
        return ()
    arrivals = window.increments("door.started")
    started, counted = blocks(arrivals, window.times, window.now, parameters.block)
    started = np.where(counted > 0, started / parameters.block, np.nan)
    in_flight = block_means(window.values("door.in_flight"), window.times, window.now, parameters.block)
    return (
        *_queue(window, parameters),
        *_batch_full(window, parameters),
        *_long_generations(window, parameters),
        *_engines(window, parameters, started, in_flight),
        *_models(window, parameters, started, in_flight),
    )


def _waiting(window: Window) -> tuple[Floats, Floats]:
    name = "engine.waiting.capacity" if "engine.waiting.capacity" in window.signals else "engine.waiting"
    return window.values(name), sample_times(window, name)


def _queue(window: Window, parameters: LoadParameters) -> list[Finding]:
    waiting, at = _waiting(window)
    lately = window.times > window.now - parameters.queue_over
    late, late_at = waiting[:, lately], at[:, lately]
    share = row_mean(condition(late, late > 0))
    span = np.nanmax(np.where(np.isnan(late_at), -np.inf, late_at), axis=1, initial=-np.inf) - np.where(
        late > 0, late_at, np.inf
    ).min(axis=1, initial=np.inf)
    mean = row_mean(late)
    fresh = np.where(np.isnan(late_at), -np.inf, late_at).max(axis=1, initial=-np.inf) >= window.now - parameters.fresh
    found = fresh & (share >= parameters.queue_share) & (span >= parameters.queue_hold)
    rows = np.flatnonzero(found)
    since = np.full(window.rows, np.nan)
    since[rows] = trailing_run(condition(waiting[rows], waiting[rows] > 0), at[rows]).since
    since = np.fmin(since, window.now - parameters.queue_hold)
    return [
        Finding(
            Symptom.QUEUE_GROWING,
            window.topology.engines[row],
            float(since[row]),
            float(np.clip(0.4 + 0.005 * (window.now - since[row]) + 0.02 * mean[row], 0.3, 1.0)),
            (
                Evidence(
                    "engine.waiting",
                    f"requests waited for room in {share[row] * 100:.0f} % of the readings of the last "
                    f"{parameters.queue_over:.0f} s, {mean[row]:.1f} on average",
                    float(mean[row]),
                    expected=0.0,
                    unit="requests",
                ),
            ),
        )
        for row in rows
    ]


def _batch_full(window: Window, parameters: LoadParameters) -> list[Finding]:
    waiting, _ = _waiting(window)
    running = window.values("engine.running")
    ceiling = np.fmax.reduce(running, axis=1, initial=-np.inf)
    lately = window.times > window.now - parameters.queue_hold
    running, waiting = running[:, lately], waiting[:, lately]
    stuck = condition(running, (running >= parameters.batch_share * ceiling[:, None]) & (waiting > 0))
    usage = row_mean(window.values("engine.kv_usage", parameters.queue_hold))
    room = ~(usage >= parameters.batch_kv_below)
    found = (row_mean(stuck) >= parameters.batch_ticks) & (ceiling >= parameters.batch_least) & room
    found &= (~np.isnan(stuck)).sum(axis=1) >= parameters.least_readings
    return [
        Finding(
            Symptom.BATCH_FULL,
            window.topology.engines[row],
            window.now - parameters.queue_hold,
            0.5,
            (
                Evidence(
                    "engine.running",
                    f"the batch stands at its ceiling of {ceiling[row]:.0f} requests with more waiting, KV cache not full",
                    float(ceiling[row]),
                    unit="requests",
                ),
            ),
        )
        for row in np.flatnonzero(found)
    ]


def _long_generations(window: Window, parameters: LoadParameters) -> list[Finding]:
    if "engine.generation_length" not in window.histograms:
        return []
    counts, sums = steps = histogram_steps(window, "engine.generation_length")
    recent, _ = recent_mean(steps, window.times > window.now - parameters.lengths_over, parameters.long_requests)
    per_block = block_ratio(sums, counts, window.times, window.now, parameters.lengths_over)
    past = own_past(per_block, 1, parameters.least_blocks)
    found = (recent >= parameters.long_ratio * past) & (recent >= parameters.long_least)
    return [
        Finding(
            Symptom.LONG_GENERATIONS,
            window.topology.engines[row],
            window.now - parameters.lengths_over,
            0.3,
            (
                Evidence(
                    "engine.generation_length",
                    f"answers of {recent[row]:.0f} tokens on average, before {past[row]:.0f}",
                    float(recent[row]),
                    expected=float(past[row]),
                    unit="tokens",
                ),
            ),
        )
        for row in np.flatnonzero(found)
    ]


def _raised(parameters: LoadParameters, rate: Floats, engines: Floats, many: int = 1) -> tuple[Floats, Floats, Bools]:
    """(now, past, whether raised) for arrivals, one row an engine or a model of `engines` engines; now is `many` blocks."""
    past = own_past(rate, parameters.recent_blocks, parameters.least_blocks)
    now = row_mean(rate[:, -many:])
    with np.errstate(invalid="ignore"):
        raised = (now >= parameters.arrivals_ratio * past) & (now - past >= parameters.arrivals_excess * engines)
    return now, past, np.asarray(raised)


def _piled(parameters: LoadParameters, in_flight: Floats, engines: Floats, many: int = 1) -> tuple[Floats, Floats, Bools]:
    past = own_past(in_flight, parameters.recent_blocks, parameters.least_blocks)
    now = row_mean(in_flight[:, -many:])
    with np.errstate(invalid="ignore"):
        piled = (now >= parameters.in_flight_ratio * past) & (now - past >= parameters.in_flight_excess * engines)
    return now, past, np.asarray(piled)


def _engines(window: Window, parameters: LoadParameters, started: Floats, in_flight: Floats) -> list[Finding]:
    one = np.ones(window.rows)
    engines = window.topology.engines
    now, past, raised = _raised(parameters, started, one)
    findings = [_arrivals(window, parameters, engines[row], now[row], past[row]) for row in np.flatnonzero(raised)]
    now, past, piled = _piled(parameters, in_flight, one)
    findings.extend(_piling(window, parameters, engines[row], now[row], past[row]) for row in np.flatnonzero(piled))
    return findings


def _models(window: Window, parameters: LoadParameters, started: Floats, in_flight: Floats) -> list[Finding]:
    findings = []
    for name, rows in sorted(window.topology.rows_of_model.items()):
        if len(rows) < parameters.least_engines:
            continue
        model = Entity(EntityKind.MODEL, name)
        size = np.array([float(len(rows) - 1)])
        many = parameters.model_blocks
        now, past, raised = _raised(parameters, _without_largest(started[rows]), size, many)
        if raised[0]:
            findings.append(_arrivals(window, parameters, model, now[0], past[0]))
        now, past, piled = _piled(parameters, _without_largest(in_flight[rows]), size, many)
        if piled[0]:
            findings.append(_piling(window, parameters, model, now[0], past[0]))
    return findings


def _without_largest(per_block: Floats) -> Floats:
    """The sum over engines less the largest, one row. Missing engines add nothing; NaN where all are missing."""
    known = ~np.isnan(per_block)
    filled = np.where(known, per_block, 0.0)
    if per_block.shape[1] == 0:
        return np.zeros((1, 0))
    rest = filled.sum(axis=0) - filled.max(axis=0, initial=0.0)
    return np.asarray(np.where(known.any(axis=0), rest, np.nan)[None, :], dtype=np.float64)


def _arrivals(window: Window, parameters: LoadParameters, entity: Entity, now: float, past: float) -> Finding:
    ratio = now / max(past, 1e-9)
    where = "" if entity.kind is EntityKind.ENGINE else " (the most loaded engine left out)"
    says = f"{now:.1f} requests a second arrive{where}, before {past:.1f}"
    evidence = (Evidence("door.started", says, float(now), expected=float(past), unit="requests a second"),)
    severity = float(np.clip(0.3 + 0.1 * np.log2(max(ratio, 1.0)), 0.3, 0.9))
    return Finding(Symptom.ARRIVALS_RAISED, entity, window.now - parameters.block, severity, evidence)


def _piling(window: Window, parameters: LoadParameters, entity: Entity, now: float, past: float) -> Finding:
    ratio = now / max(past, 1e-9)
    where = "" if entity.kind is EntityKind.ENGINE else " (the most loaded engine left out)"
    says = f"{now:.0f} requests in flight{where}, before {past:.1f}: more comes than goes"
    evidence = (Evidence("door.in_flight", says, float(now), expected=float(past), unit="requests"),)
    severity = float(np.clip(0.3 + 0.1 * np.log2(max(ratio, 1.0)), 0.3, 0.9))
    return Finding(Symptom.SERVED_BELOW_ARRIVALS, entity, window.now - parameters.block, severity, evidence)
