"""Answers that are wrong although they come in time: garbage that the engine itself counts, and generations without an end.

Latency and status codes are perfect meanwhile (vllm-project/vllm#42426, #22881; vllm-project/vllm-ascend#15166). What most
engines of a group show at the same time is a change of the model, of its template or of its clients, and is said of none
of them here.
"""

import numpy as np

from detectors.finding import Evidence, Finding, Symptom
from detectors.service_parameters import OutputsParameters
from detectors.statistics import (
    Bools,
    Floats,
    block_ratio,
    histogram_steps,
    others_median,
    others_share,
    own_past,
    recent_mean,
)
from serving.telemetry.window import Window

NEEDS: frozenset[str] = frozenset()
HELPED_BY = frozenset({"engine.finished.stop", "engine.finished.length", "engine.generation_length"})


def detect(window: Window, parameters: OutputsParameters) -> tuple[Finding, ...]:
    """OUTPUT_CORRUPT and OUTPUT_ENDLESS."""
    if window.rows == 0 or len(window.times) == 0:
        return ()
    return (*_corrupt(window, parameters), *_endless(window, parameters))


def corrupted(window: Window, parameters: OutputsParameters) -> tuple[Floats, Bools]:
    """How many answers each engine knows to be garbage in `over`, and whether that is enough to call it so. (engines,)."""
    count = window.increase("engine.corrupted", parameters.over)
    with np.errstate(invalid="ignore"):
        return count, np.asarray(count >= parameters.corrupted_least)


def _corrupt(window: Window, parameters: OutputsParameters) -> list[Finding]:
    count, found = corrupted(window, parameters)
    if not found.any():
        return []
    found &= ~(others_share(found, ~np.isnan(count), window.topology.peer_group) >= parameters.common)
    ended, _ = _finished(window, parameters)
    return [
        Finding(
            Symptom.OUTPUT_CORRUPT,
            window.topology.engines[row],
            window.now - parameters.over,
            float(np.clip(0.7 + count[row] / max(ended[row], count[row]), 0.7, 1.0)),
            (
                Evidence(
                    "engine.corrupted",
                    f"{count[row]:.0f} answers with NaN in their logits in the last {parameters.over:.0f} s, "
                    f"{ended[row]:.0f} finished",
                    float(count[row]),
                    expected=0.0,
                    unit="requests",
                ),
            ),
        )
        for row in np.flatnonzero(found)
    ]


def _finished(window: Window, parameters: OutputsParameters) -> tuple[Floats, Floats]:
    """How many finished in `over`, by a stop token or at their limit, and the share of the latter. (engines,) both."""
    stop = window.increase("engine.finished.stop", parameters.over)
    length = window.increase("engine.finished.length", parameters.over)
    ended = stop + length
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.where(ended >= parameters.least, length / ended, np.nan)
    return np.nan_to_num(ended), share


def length_shares(window: Window, parameters: OutputsParameters) -> tuple[Floats, Floats]:
    """The share of answers that ended at their length limit: now, and in the engine's past. (engines,); NaN unknown."""
    _, now = _finished(window, parameters)
    stop, length = window.increments("engine.finished.stop"), window.increments("engine.finished.length")
    per_block = block_ratio(length, stop + length, window.times, window.now, parameters.over)
    return now, own_past(per_block, 1, parameters.least_blocks)


def _endless(window: Window, parameters: OutputsParameters) -> list[Finding]:
    _, quick = _finished(window, parameters)
    if not (quick >= parameters.length_share).any():
        return []
    share, past = length_shares(window, parameters)
    groups = window.topology.peer_group
    others, peers = others_median(share, groups)
    usual = np.fmax(past, others)
    lengths = histogram_steps(window, "engine.generation_length")
    lately = window.times > window.now - parameters.over
    mean, _ = recent_mean(lengths, lately, parameters.least)
    per_block = block_ratio(lengths[1], lengths[0], window.times, window.now, parameters.over)
    norm = np.fmax(own_past(per_block, 1, parameters.least_blocks), others_median(mean, groups)[0])
    with np.errstate(invalid="ignore"):
        jumped = (share >= parameters.length_share) & (usual <= parameters.usual_share)
        longer = (mean >= parameters.length_ratio * norm) | np.isnan(mean)
    found = jumped & longer & (~np.isnan(past) | (peers >= parameters.least_peers))
    found &= ~(others_share(jumped, ~np.isnan(share), groups) >= parameters.common)
    return [
        Finding(
            Symptom.OUTPUT_ENDLESS,
            window.topology.engines[row],
            window.now - parameters.over,
            float(np.clip(share[row] - 0.1, 0.6, 1.0)),
            (
                Evidence(
                    "engine.finished.length",
                    f"{share[row] * 100:.0f} % of answers run to their length limit, before or elsewhere "
                    f"{usual[row] * 100:.0f} %{'' if np.isnan(mean[row]) else f'; {mean[row]:.0f} tokens on average'}",
                    float(share[row]),
                    expected=float(usual[row]),
                    unit="ratio",
                ),
            ),
        )
        for row in np.flatnonzero(found)
    ]
