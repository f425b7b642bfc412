"""Latency: first tokens late against peers and own past, and whether decoding went on as before meanwhile.

Means over a minute and over each part of it, because on real machines single answers are late all the time. Where both
peers and a past are known, both must agree; a small group of peers says nothing without a past.
"""

import numpy as np

from detectors.finding import Evidence, Finding, Symptom
from detectors.parameters import LatencyParameters, PausesParameters
from detectors.pauses import short_waits
from detectors.statistics import (
    Bools,
    Floats,
    block_ratio,
    histogram_steps,
    in_small_groups,
    others_largest,
    others_median,
    own_past,
    recent_mean,
)
from serving.telemetry.window import Window

NEEDS = frozenset({"engine.ttft"})
HELPED_BY = frozenset({"engine.inter_token", "engine.queue_time"})


def detect(window: Window, parameters: LatencyParameters, of_pauses: PausesParameters) -> tuple[Finding, ...]:
    """TTFT_RAISED and, beside it, DECODE_STEADY; QUEUE_WAITED."""
    if window.rows == 0 or len(window.times) == 0:
        return ()
    groups = window.topology.peer_group
    counts, sums = steps = histogram_steps(window, "engine.ttft")
    lately = window.times > window.now - parameters.over
    recent, answered = recent_mean(steps, lately, parameters.least_requests)
    per_block = block_ratio(sums, counts, window.times, window.now, parameters.block)
    spanned = int(np.ceil(parameters.over / parameters.block))
    past = own_past(per_block, spanned, parameters.least_blocks)
    others, peers = others_median(recent, groups)
    small = peers < parameters.least_peers
    worst_other = others_largest(recent, groups)
    reference = np.fmax(others, past)
    bar = np.fmax(parameters.ratio * reference, np.where(small, parameters.ratio_worst * worst_other, np.nan))
    raised = (recent >= bar) & (recent - reference >= parameters.excess) & (~small | ~np.isnan(past))
    if per_block.shape[1] >= spanned:
        raised &= _again_and_again(window, parameters, per_block[:, -spanned:], past)
    else:
        raised[:] = False
    steady = _decode_steady(window, parameters, of_pauses, lately)
    findings: list[Finding] = []
    for row in np.flatnonzero(raised):
        engine, since = window.topology.engines[row], window.now - parameters.over
        severity = float(np.clip(0.35 + 0.15 * np.log2(recent[row] / reference[row]), 0.3, 1.0))
        evidence = (_evidence(recent[row], others[row], past[row], int(answered[row])),)
        findings.append(Finding(Symptom.TTFT_RAISED, engine, since, severity, evidence))
        if steady[0][row]:
            now, norm = steady[1][row], steady[2][row]
            says = f"time between tokens is {now * 1000:.0f} ms, as usual ({norm * 1000:.0f} ms)"
            detail = (Evidence("engine.inter_token", says, float(now), expected=float(norm), unit="seconds"),)
            findings.append(Finding(Symptom.DECODE_STEADY, engine, since, 0.3, detail))
    return (*findings, *_waited(window, parameters, lately, recent_mean(steps, lately, 1)[0]))


def _again_and_again(window: Window, parameters: LatencyParameters, latest: Floats, past: Floats) -> Bools:
    """Late in each block of the span, against the past and against the others in that block, and by a fair part of it all.

    One long wait, as after a hang, a burst or a compilation, raises a mean for as long as the mean looks back, and leaves
    the blocks beside it a little late: that is not this symptom.
    """
    groups = window.topology.peer_group
    beside = np.stack([others_median(latest[:, column], groups)[0] for column in range(latest.shape[1])], axis=1)
    reference = np.fmax(past[:, None], beside)
    with np.errstate(invalid="ignore"):
        late = latest - reference
        fair = late >= parameters.share_each * late.mean(axis=1, keepdims=True)
        return np.asarray((fair & (latest >= parameters.ratio_each * reference)).all(axis=1))


def _waited(window: Window, parameters: LatencyParameters, lately: Bools, first: Floats) -> list[Finding]:
    waited, _ = recent_mean(histogram_steps(window, "engine.queue_time"), lately, 1)
    found = (waited >= parameters.waited) & (waited >= parameters.waited_share * first)
    return [
        Finding(
            Symptom.QUEUE_WAITED,
            window.topology.engines[row],
            window.now - parameters.over,
            float(np.clip(0.3 + 0.1 * np.log2(waited[row] / parameters.waited), 0.3, 1.0)),
            (
                Evidence(
                    "engine.queue_time",
                    f"finished requests had waited {waited[row]:.1f} s in the queue, first token after {first[row]:.1f} s",
                    float(waited[row]),
                    unit="seconds",
                ),
            ),
        )
        for row in np.flatnonzero(found)
    ]


def _decode_steady(
    window: Window, parameters: LatencyParameters, of_pauses: PausesParameters, lately: Bools
) -> tuple[Bools, Floats, Floats]:
    """Where tokens come as usual, their mean wait now, and the usual one. (engines,) each.

    With few peers the waits between pauses are compared: a crowded machine's long ones are in every mean, now and then.
    """
    steps = histogram_steps(window, "engine.inter_token")
    few = in_small_groups(window.topology.peer_group, parameters.least_peers)
    if len(few):
        counts, sums = (part.copy(order="K") for part in steps)
        counts[few], sums[few] = short_waits(window, of_pauses, few)
        steps = counts, sums
    now, _ = recent_mean(steps, lately, 1)
    before, _ = recent_mean(steps, ~lately, 1)
    others, _ = others_median(now, window.topology.peer_group)
    norm = np.fmax(others, before)
    with np.errstate(invalid="ignore"):
        return now <= parameters.steady_within * norm, now, norm


def _evidence(recent: float, others: float, past: float, answered: int) -> Evidence:
    against = []
    if not np.isnan(others):
        against.append(f"its peers {others * 1000:.0f} ms")
    if not np.isnan(past):
        against.append(f"before {past * 1000:.0f} ms")
    says = f"first token after {recent * 1000:.0f} ms on average over {answered} requests ({', '.join(against)})"
    expected = others if not np.isnan(others) else past
    return Evidence("engine.ttft", says, float(recent), expected=float(expected), unit="seconds")
