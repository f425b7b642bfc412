"""Leaks: KV blocks that nobody holds and nobody gets, and memory of the host that only rises.

Blocks: high usage in readings in which nothing runs and nothing waits, each fresh from a step (vllm-project/vllm#27073,
vllm-project/vllm-ascend#16662). On an engine that is never idle: usage that the running requests do not explain, by what
the peers' requests of equal lengths hold. Memory: a working set that rises towards the container's limit at flat load
(vllm-project/vllm#50150), by the median of all slopes between blocks (Theil 1950, Sen 1968), which single jumps do not move.
"""

import numpy as np

from detectors.finding import Evidence, Finding, Symptom
from detectors.service_parameters import LeaksParameters
from detectors.statistics import Bools, Floats, block_means, blocks, others_median, row_mean
from serving.telemetry.counters import newest_value
from serving.telemetry.window import Window

NEEDS: frozenset[str] = frozenset()
HELPED_BY = frozenset(
    {"engine.kv_usage", "engine.running", "engine.waiting", "engine.steps", "engine.prompt_length", "engine.rss"}
)

GIB = 2.0**30
PREFILL = "prefill"
"""The role of engines that hold blocks for others by right."""


def detect(window: Window, parameters: LeaksParameters) -> tuple[Finding, ...]:
    """KV_HELD and MEMORY_RISING."""
    if window.rows == 0 or len(window.times) == 0:
        return ()
    return (*_blocks(window, parameters), *_memory(window, parameters))


def _blocks(window: Window, parameters: LeaksParameters) -> list[Finding]:
    usage = window.values("engine.kv_usage")
    if not (newest_value(usage) >= parameters.kv_floor).any():
        return []
    fresh = window.age("engine.kv_usage") <= parameters.fresh
    lately = window.times > window.now - parameters.kv_over
    rows = np.flatnonzero(fresh & (np.fmax.reduce(usage[:, lately], axis=1, initial=0.0) >= parameters.kv_floor))
    idle = np.zeros(usage.shape, dtype=np.bool_)
    idle[rows] = (window.values("engine.running")[rows] == 0) & (window.values("engine.waiting")[rows] == 0)
    idle[rows] &= (window.increments("engine.steps")[rows] > 0) & ~np.isnan(usage[rows])
    count, least = np.zeros(window.rows, dtype=np.intp), np.full(window.rows, np.inf)
    count[rows] = (idle[rows] & lately).sum(axis=1)
    least[rows] = np.where(idle[rows] & lately, usage[rows], np.inf).min(axis=1, initial=np.inf)
    found = (count >= parameters.kv_least_idle) & np.isfinite(least) & (least >= parameters.kv_floor)
    findings = [
        _held(
            window,
            row,
            window.now - parameters.kv_over,
            float(np.clip(0.6 + 0.4 * least[row], 0.6, 1.0)),
            f"KV cache at least {least[row] * 100:.0f} % full in all {count[row]} readings of the last "
            f"{parameters.kv_over:.0f} s in which nothing ran or waited, each fresh from a step",
            float(least[row]),
        )
        for row in np.flatnonzero(found)
        if _no_lease(window, row, idle, usage, parameters)
    ]
    known = {finding.entity for finding in findings}
    return [*findings, *(one for one in _unexplained(window, parameters, usage, fresh) if one.entity not in known)]


def _no_lease(window: Window, row: int, idle: Bools, usage: Floats, parameters: LeaksParameters) -> bool:
    """A prefill engine holds blocks for a decoder until their lease ends (480 s in vLLM): only what lasts longer leaks.

    See vllm-project/vllm#38027: waiting is right there, and a restart throws good work away.
    """
    if window.topology.facts(window.topology.engines[row]).role != PREFILL:
        return True
    early = idle[row] & (window.times <= window.now - parameters.lease)
    throughout = idle[row] & (window.times > window.now - parameters.lease)
    return bool(early.any() and usage[row][throughout].min(initial=np.inf) >= parameters.kv_floor)


def _unexplained(window: Window, parameters: LeaksParameters, usage: Floats, fresh: Bools) -> list[Finding]:
    """For engines that are never idle: more is held than their running requests need, by the peers' measure."""
    groups, seconds = window.topology.peer_group, parameters.kv_busy_over
    mean = row_mean(window.values("engine.kv_usage", seconds))
    others, peers = others_median(mean, groups)
    with np.errstate(invalid="ignore"):
        suspect = fresh & (mean - others >= parameters.kv_excess) & (peers >= parameters.least_peers)
    if not suspect.any() or window.now - window.times[0] < seconds:
        return []
    running = block_means(window.values("engine.running"), window.times, window.now, parameters.block)
    per_block = block_means(usage, window.times, window.now, parameters.block)
    last = round(seconds / parameters.block)
    running, per_block = running[:, -last:], per_block[:, -last:]
    with np.errstate(invalid="ignore", divide="ignore"):
        each = row_mean(per_block) / row_mean(running)
    needed, _ = others_median(np.where(np.isfinite(each), each, np.nan), groups)
    excess = per_block - needed[:, None] * running
    with np.errstate(invalid="ignore"):
        suspect &= (excess >= parameters.kv_excess).all(axis=1) & (excess.shape[1] == last)
    stepped, _ = blocks(window.increments("engine.steps"), window.times, window.now, parameters.block)
    suspect &= (stepped[:, -last:] > 0).all(axis=1) & _alike(window, parameters)  # gauges are only as new as the last step
    least = np.where(np.isnan(excess), np.inf, excess).min(axis=1, initial=np.inf)
    return [
        _held(
            window,
            row,
            window.now - seconds,
            0.6,
            f"KV cache {mean[row] * 100:.0f} % full, {least[row] * 100:.0f} % more than its running requests explain by the "
            f"measure of its peers, whose requests are as long, in every part of the last {seconds:.0f} s",
            float(least[row]),
        )
        for row in np.flatnonzero(suspect)
        if window.topology.facts(window.topology.engines[row]).role != PREFILL
    ]


def _alike(window: Window, parameters: LeaksParameters) -> Bools:
    """Whether an engine's requests are no longer than its peers': those admitted, and the longest tenth of the finished."""
    groups, span = window.topology.peer_group, parameters.kv_busy_over
    admitted = window.histogram_increments("engine.ttft")[0][:, window.times > window.now - span]
    count = np.where(np.isnan(admitted), 0.0, admitted).sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        prompt = np.where(count > 0, window.increase("engine.prompt_tokens", span) / count, np.nan)
    alike = np.ones(window.rows, dtype=np.bool_)
    for lengths in (
        prompt,
        window.quantile("engine.prompt_length", 0.9, span),
        window.quantile("engine.generation_length", 0.9, span),
    ):
        with np.errstate(invalid="ignore"):
            alike &= lengths <= parameters.lengths_within * others_median(lengths, groups)[0]
    return alike


def _held(window: Window, row: int, since: float, severity: float, says: str, value: float) -> Finding:
    evidence = (Evidence("engine.kv_usage", says, value, expected=0.0, unit="ratio"),)
    return Finding(Symptom.KV_HELD, window.topology.engines[row], since, severity, evidence)


def _memory(window: Window, parameters: LeaksParameters) -> list[Finding]:
    working, limit = window.values("engine.memory_working_set"), window.latest("engine.memory_limit", np.inf)
    measured = ~np.isnan(newest_value(working)) & (limit > 0)
    findings = _towards_limit(window, parameters, working, limit) if measured.any() else []
    return [*findings, *_without_limit(window, parameters, ~measured)]


def _towards_limit(window: Window, parameters: LeaksParameters, working: Floats, limit: Floats) -> list[Finding]:
    per_block = block_means(working, window.times, window.now, parameters.block)
    now = per_block[:, -1] if per_block.shape[1] else np.full(window.rows, np.nan)
    whole, late = (steady_slope(part, parameters) for part in (per_block, per_block[:, -parameters.least_blocks :]))
    slope = np.where(np.isnan(whole), late, whole)
    lead = np.where(np.isnan(whole), parameters.lead_late, parameters.lead)
    with np.errstate(invalid="ignore", divide="ignore"):
        left = np.where(slope > 0, (limit - now) / slope, np.inf)
        grown = slope * parameters.block * parameters.least_blocks
        found = (grown >= parameters.memory_least * limit) & (left <= lead)
    found &= _load_flat(window, parameters) & _grown_up(window, parameters)
    found &= window.age("engine.memory_working_set") <= parameters.fresh
    return [
        _rising(
            window,
            row,
            parameters,
            per_block.shape[1],
            float(np.clip(0.95 - 0.45 * left[row] / parameters.lead, 0.5, 0.95)),
            Evidence(
                "engine.memory_working_set",
                f"its container's memory rises by {slope[row] * 60 / GIB:.2f} GiB a minute at flat load: "
                f"{now[row] / GIB:.1f} of {limit[row] / GIB:.1f} GiB, full in {left[row] / 60:.0f} min",
                float(slope[row]),
                expected=0.0,
                unit="bytes a second",
            ),
        )
        for row in np.flatnonzero(found)
    ]


def _without_limit(window: Window, parameters: LeaksParameters, unmeasured: Bools) -> list[Finding]:
    """By the API process alone, where no container tells: it must have grown by much, and its peers not."""
    if "engine.rss" not in window.signals:
        return []
    size = window.values("engine.rss")
    least, most = np.fmin.reduce(size, axis=1, initial=np.inf), np.fmax.reduce(size, axis=1, initial=-np.inf)
    if not (most >= (1.0 + parameters.rss_growth) * least).any():  # no mean of a part can have grown by more
        return []
    per_block = block_means(size, window.times, window.now, parameters.block)
    if per_block.shape[1] < parameters.least_blocks:
        return []
    first, now = per_block[:, 0], per_block[:, -1]
    with np.errstate(invalid="ignore", divide="ignore"):
        grown = now / first - 1.0
        found = unmeasured & (grown >= parameters.rss_growth) & (now - first >= parameters.rss_least * GIB)
    if not found.any():
        return []
    others, peers = others_median(grown, window.topology.peer_group)
    with np.errstate(invalid="ignore"):
        found &= (peers >= parameters.least_peers) & (others <= parameters.rss_growth / 3.0)
        found &= steady_slope(per_block, parameters) > 0
    found &= _load_flat(window, parameters) & _grown_up(window, parameters)
    return [
        _rising(
            window,
            row,
            parameters,
            per_block.shape[1],
            0.4,
            Evidence(
                "engine.rss",
                f"its API process grew steadily from {first[row] / GIB:.1f} to {now[row] / GIB:.1f} GiB at flat load, "
                f"its peers by {max(0.0, others[row]) * 100:.0f} %",
                float(now[row]),
                expected=float(first[row]),
                unit="bytes",
            ),
        )
        for row in np.flatnonzero(found)
    ]


def steady_slope(per_block: Floats, parameters: LeaksParameters) -> Floats:
    """Bytes a second by which each row rises, the median of all slopes between two blocks; NaN where it is no steady rise.

    Steady: `steady` of the steps from block to block go up, and there are `least_blocks` of them.
    """
    rows, count = per_block.shape
    slope = np.full(rows, np.nan)
    if count < parameters.least_blocks:
        return slope
    with np.errstate(invalid="ignore"):
        up = np.diff(per_block, axis=1) > 0
    some = np.flatnonzero(up.mean(axis=1) >= parameters.steady)
    if len(some):
        early, late = np.triu_indices(count, 1)
        pairs = (per_block[some][:, late] - per_block[some][:, early]) / ((late - early) * parameters.block)
        slope[some] = np.median(pairs, axis=1)
    return slope


def _load_flat(window: Window, parameters: LeaksParameters) -> Bools:
    """Whether as much runs now as in the beginning of the window, and no queue grows. Unknown counts as flat."""
    load = block_means(window.values("engine.running"), window.times, window.now, parameters.block)
    third = max(1, load.shape[1] // 3)
    before, after = row_mean(load[:, :third]), row_mean(load[:, -third:])
    queued = row_mean(window.values("engine.waiting", parameters.block))
    with np.errstate(invalid="ignore"):
        return np.asarray(~(after > parameters.load_within * before + 2.0) & ~(queued > parameters.queued_most))


def _grown_up(window: Window, parameters: LeaksParameters) -> Bools:
    """Whether the process was past its warm-up, in which memory rises too, when the window began."""
    began = window.latest("engine.process_start", np.inf)
    with np.errstate(invalid="ignore"):
        return np.asarray(~(window.times[0] - began < parameters.young))


def _rising(window: Window, row: int, parameters: LeaksParameters, count: int, severity: float, said: Evidence) -> Finding:
    since = window.now - count * parameters.block
    return Finding(Symptom.MEMORY_RISING, window.topology.engines[row], since, severity, (said,))
