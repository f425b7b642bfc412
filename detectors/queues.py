"""Queues that do not move: requests wait in an engine that has room for them.

A long queue is load, and other detectors' business. Stuck is a queue that nothing leaves while the scheduler lives and has
room: told by gauges that go on being written (a core that stands still writes none), by slots that are free, and by first
tokens that do not come. The public threads behind it: vllm-project/vllm-metal#479 (waiting "for capacity" with an empty
cache), vllm-project/vllm#39734 (one oversize request at the head), vllm-project/vllm#58222 (blocks that only a step frees,
and no step that can be scheduled).
"""

import numpy as np

from detectors.finding import Evidence, Finding, Symptom
from detectors.service_parameters import QueuesParameters
from detectors.statistics import (
    Bools,
    Floats,
    block_minima,
    condition,
    histogram_steps,
    others_largest,
    own_past,
    row_mean,
    sample_times,
    trailing_run,
)
from serving.telemetry.counters import newest_value
from serving.telemetry.window import Window

NEEDS = frozenset({"engine.waiting", "engine.running"})
HELPED_BY = frozenset(
    {"engine.waiting.capacity", "engine.waiting.deferred", "engine.kv_usage", "engine.steps", "engine.ttft"}
)


def detect(window: Window, parameters: QueuesParameters) -> tuple[Finding, ...]:
    """QUEUE_STUCK."""
    if window.rows == 0 or len(window.times) == 0:
        return ()
    readable = (window.age("engine.waiting") <= parameters.fresh) & ~(window.latest("engine.awake", parameters.fresh) == 0)
    nobody = _nobody_runs(window, parameters, readable)
    seen = {finding.entity for finding in nobody}
    others = (*_few_run(window, parameters, readable), *_deferred(window, parameters, readable))
    return (*nobody, *{one.entity: one for one in others if one.entity not in seen}.values())


def _nobody_runs(window: Window, parameters: QueuesParameters, readable: Bools) -> list[Finding]:
    """Requests wait, more and more of them, and none runs: gauges that grow are written, and no step is made.

    Without steps, for a limit before the engine lets requests through one by one, and readings may fall between them.
    """
    waiting, running = window.values("engine.waiting"), window.values("engine.running")
    ever = (np.fmax.reduce(waiting, axis=1) > 0) & (np.fmin.reduce(running, axis=1) == 0)
    rows = np.flatnonzero(readable & ever)
    waiting, running, at = waiting[rows], running[rows], sample_times(window, "engine.waiting")[rows]
    run = trailing_run(condition(waiting + running, (waiting > 0) & (running == 0)), at)
    held = run.held >= parameters.hold_idle
    if not held.any():
        return []
    queue = np.where(at >= run.since[:, None], waiting, np.nan)
    begun, most = np.fmin.reduce(queue, axis=1), np.fmax.reduce(queue, axis=1)
    now = newest_value(queue)
    later = at > run.since[:, None]
    stepped = np.where(later & (window.increments("engine.steps")[rows] > 0), 1.0, 0.0).any(axis=1)
    found = held & (now >= most) & (now >= parameters.least) & (now > begun) & ~stepped
    return [
        _finding(
            window,
            int(rows[one]),
            float(run.since[one]),
            0.75 + 0.25 * float(run.held[one]) / 60.0,
            "engine.waiting",
            f"{now[one]:.0f} requests wait and none runs for {run.held[one]:.0f} s; the gauges go on being written",
            float(now[one]),
        )
        for one in np.flatnonzero(found)
    ]


def _few_run(window: Window, parameters: QueuesParameters, readable: Bools) -> list[Finding]:
    """Requests wait for room, the batch is not half as large as it was, the cache has room, and no first token comes."""
    name = "engine.waiting.capacity" if "engine.waiting.capacity" in window.signals else "engine.waiting"
    lately = window.times > window.now - parameters.hold
    waiting, running = window.values(name), window.values("engine.running")
    if not _anybody_queues(waiting, lately):
        return []
    ceiling = np.fmax.reduce(running, axis=1, initial=-np.inf)
    stuck = condition(waiting, (waiting > 0) & (running <= parameters.running_share * ceiling[:, None]))[:, lately]
    known = (~np.isnan(stuck)).sum(axis=1)
    found = readable & (row_mean(stuck) == 1.0) & (known >= parameters.least_readings) & (ceiling >= parameters.batch_least)
    found &= window.now - window.times[0] >= parameters.hold
    found &= row_mean(window.values("engine.kv_usage", parameters.hold)) <= parameters.kv_below
    if not found.any():
        return []
    answered = histogram_steps(window, "engine.ttft")[0][:, lately]
    found &= (~np.isnan(answered)).any(axis=1) & (np.where(np.isnan(answered), 0.0, answered).sum(axis=1) == 0)
    now = newest_value(waiting)
    return [
        _finding(
            window,
            int(row),
            window.now - parameters.hold,
            0.7,
            name,
            f"{now[row]:.0f} requests wait for room with at most {running[row, lately][-1]:.0f} running (up to "
            f"{ceiling[row]:.0f} before) and a KV cache that has room; no first token for {parameters.hold:.0f} s",
            float(now[row]),
        )
        for row in np.flatnonzero(found & (now >= parameters.least))
    ]


def _deferred(window: Window, parameters: QueuesParameters, readable: Bools) -> list[Finding]:
    """Some requests stay deferred for ever (a LoRA slot, a KV transfer, a grammar) while others pass.

    On a decode engine a few are always on their way, so the fewest of a span are compared with its past and its peers.
    """
    deferred = window.values("engine.waiting.deferred")
    if not (newest_value(deferred) >= parameters.least).any():
        return []
    floors = block_minima(deferred, window.times, window.now, parameters.deferred_over)
    if floors.shape[1] == 0 or not (floors[:, -1] >= parameters.least).any():
        return []
    now, past = floors[:, -1], own_past(floors, 1, 1)
    usual = np.fmax(past, others_largest(now, window.topology.peer_group))
    with np.errstate(invalid="ignore"):
        found = readable & (now >= parameters.least) & (now >= parameters.deferred_ratio * usual)
    return [
        _finding(
            window,
            int(row),
            window.now - parameters.deferred_over,
            0.6,
            "engine.waiting.deferred",
            f"never fewer than {now[row]:.0f} requests deferred in the last {parameters.deferred_over:.0f} s, "
            f"elsewhere or before {usual[row]:.0f}",
            float(now[row]),
        )
        for row in np.flatnonzero(found)
    ]


def _busier(window: Window, parameters: QueuesParameters) -> Bools:
    """Whether engines compute more tokens than before. Unknown counts as more. (engines,)."""
    steps = window.increments("engine.step_tokens")
    lately = window.times > window.now - parameters.hold
    with np.errstate(invalid="ignore"):
        return np.asarray(~(row_mean(steps[:, lately]) <= parameters.busier * row_mean(steps[:, ~lately])))


def _anybody_queues(waiting: Floats, lately: Bools) -> bool:
    """Whether any engine shows no empty queue of late: without such a one there is nothing to compare."""
    return bool((np.fmin.reduce(waiting[:, lately], axis=1, initial=np.inf) > 0).any())


def _finding(window: Window, row: int, since: float, severity: float, signal: str, says: str, value: float) -> Finding:
    evidence = (Evidence(signal, says, value, expected=0.0, unit="requests"),)
    return Finding(Symptom.QUEUE_STUCK, window.topology.engines[row], since, min(1.0, severity), evidence)


def batches_kept_small(window: Window, parameters: QueuesParameters) -> tuple[Bools, Floats]:
    """Where requests wait for room throughout, with a batch far below what it was and a cache that has room.

    A crowd that waits tells of a batch that is not so far below, as long as the engine computes no more than it did.
    Returns whether it is so, and the largest batch seen, both (engines,). Whether first tokens come is not asked: a limit
    outside the engine lets some pass.
    """
    lately = window.times > window.now - parameters.hold
    waiting, running = window.values("engine.waiting"), window.values("engine.running")
    if not _anybody_queues(waiting, lately):
        return np.zeros(window.rows, dtype=np.bool_), np.full(window.rows, np.nan)
    ceiling = np.fmax.reduce(running[:, ~lately], axis=1, initial=-np.inf)
    few, fewer = (running <= share * ceiling[:, None] for share in (parameters.crowded_share, parameters.small_share))
    crowded = few & (waiting >= parameters.crowd * running) & ~_busier(window, parameters)[:, None]
    small = condition(waiting, (waiting > 0) & (fewer | crowded))[:, lately]
    usage = row_mean(window.values("engine.kv_usage", parameters.hold))
    enough = (~np.isnan(small)).sum(axis=1) >= parameters.least_readings
    found = enough & (row_mean(small) == 1.0) & (ceiling >= parameters.batch_least) & (usage <= parameters.kv_below)
    return found, ceiling
