"""Pauses: gaps between steps that hit all requests of one engine at once, again and again, with steady speed between.

A collector's pause leaves a few very long waits between tokens in the histogram while most stay as short as ever, so
the tell is how often a reading holds a gap, not the mean. Compared with peers and with the engine's own past, since on
a crowded machine every engine has gaps now and then. What is compared is the rate of gaps: a reading that holds one may
hold several, so that of gaps at random `1 - exp(-rate)` of the readings hold any. An engine with more to compute than its
peers has as many more waits behind prompts, and a reading in which it read a prompt so long that all others had to wait for
it tells nothing of pauses.
"""

import numpy as np
from numpy.typing import NDArray

from detectors.finding import Evidence, Finding, Symptom
from detectors.parameters import PausesParameters
from detectors.statistics import (
    Bools,
    Floats,
    block_means,
    histogram_steps,
    others_largest,
    others_median,
    own_past,
    row_mean,
    row_median,
)
from serving.telemetry.columns import HistogramMatrix
from serving.telemetry.window import Window

NEEDS = frozenset({"engine.inter_token"})
HELPED_BY = frozenset({"engine.process_start", "engine.step_tokens", "engine.prompt_tokens", "engine.prefill_time"})


def detect(window: Window, parameters: PausesParameters) -> tuple[Finding, ...]:
    """STEP_GAPS."""
    matrix = window.histograms.get("engine.inter_token")
    if matrix is None or window.rows == 0 or len(window.times) == 0:
        return ()
    typical, bucket = _longest(window, matrix, parameters)
    gaps = _gaps(window, matrix, bucket)
    began = window.latest("engine.process_start", np.inf)
    gaps[window.times < (began + parameters.young)[:, None]] = np.nan
    lately = window.times > window.now - parameters.over
    seen = (~np.isnan(gaps[:, lately])).sum(axis=1)
    usual = np.where(seen >= parameters.least_readings, row_mean(gaps[:, lately]), np.nan)
    unexplained = np.where(_behind_prompts(window, parameters.behind_prompts * matrix.bounds[bucket]), gaps * 0.0, gaps)
    share = usual + row_mean(unexplained[:, lately]) - row_mean(gaps[:, lately])
    per_block = block_means(gaps, window.times, window.now, parameters.block)
    spanned = int(np.ceil(parameters.over / parameters.block))
    past = own_past(per_block, spanned, parameters.least_blocks)
    others, peers = others_median(usual, window.topology.peer_group)
    worst = others_largest(usual, window.topology.peer_group)
    beside = _share_at(_more_load(window, parameters), np.where(peers < parameters.least_peers, worst, others))
    reference = np.fmax(past, beside)
    with np.errstate(invalid="ignore", divide="ignore"):
        told = np.minimum(share, 1.0 - 0.5 / seen)  # a gap in every reading is no proof of more than the readings can tell
        found = (told >= parameters.share) & (told >= _share_at(parameters.ratio, np.nan_to_num(reference)))
        scatter = np.sqrt(np.fmax(reference, 1.0 / seen) * (1.0 - reference) / seen)  # of a binomial share
        small = peers < parameters.least_peers
        beyond = np.where(
            small, told - reference >= parameters.z_small_group * scatter, _surprise(told, reference, seen) >= parameters.z
        )
        found &= beyond & ((peers > 0) | ~np.isnan(past))
        bar = np.fmax(parameters.share_each, _share_at(parameters.ratio_each, np.nan_to_num(reference)))
        blocks = block_means(unexplained, window.times, window.now, parameters.block)[:, -spanned:]
        found &= (blocks >= bar[:, None]).all(axis=1) & (per_block.shape[1] >= spanned)
    findings = []
    for row in np.flatnonzero(found):
        limit = matrix.bounds[bucket[row]]
        says = (
            f"{share[row] * 100:.0f} % of readings hold a gap of over {limit * 1000:.0f} ms between tokens "
            f"(peers and past at most {reference[row] * 100:.0f} %), usual gap {typical[row] * 1000:.0f} ms"
        )
        evidence = (Evidence("engine.inter_token", says, float(share[row]), expected=float(reference[row]), unit="ratio"),)
        severity = float(np.clip(0.4 + 0.4 * (share[row] - reference[row]), 0.3, 0.9))
        since = window.now - parameters.over
        findings.append(Finding(Symptom.STEP_GAPS, window.topology.engines[row], since, severity, evidence))
    return tuple(findings)


def _surprise(share: Floats, reference: Floats, seen: NDArray[np.intp]) -> Floats:
    """How far a share of so many readings is above a reference, in standard deviations: the signed root of the deviance.

    A few readings of a rare thing scatter far more to the upper side than a normal distribution of their variance has it
    (the signed root of the likelihood ratio is normal to a higher order; Barndorff-Nielsen and Cox 1994, chapter 6).
    """
    least = 1.0 / np.maximum(seen, 1)
    usual = np.clip(reference, least, 1.0 - least)
    now = np.clip(share, 0.5 * least, 1.0 - 0.5 * least)
    deviance = 2.0 * seen * (now * np.log(now / usual) + (1.0 - now) * np.log((1.0 - now) / (1.0 - usual)))
    return np.asarray(np.sign(now - usual) * np.sqrt(np.maximum(deviance, 0.0)))


def short_waits(window: Window, parameters: PausesParameters, rows: NDArray[np.intp]) -> tuple[Floats, Floats]:
    """The new waits between tokens that are no gaps, at each sample of `rows` (ascending), and their summed length.

    Two arrays (rows, times), else as of `statistics.histogram_steps`. The mean of these is the pace of an engine between
    its pauses and those of a crowded machine. How much of all waiting the gaps are is told by the middles of their buckets.
    """
    matrix = window.histograms.get("engine.inter_token")
    if matrix is None or not len(rows):
        nothing = np.full((len(rows), len(window.times)), np.nan)
        return nothing, nothing
    bucket = _longest(window, matrix, parameters)[1][rows]
    middles = (np.concatenate(([0.0], matrix.bounds[:-1])) + np.append(matrix.bounds[:-1], matrix.bounds[-2])) / 2.0
    seen = matrix.counts[rows]
    counts, short = np.empty(seen.shape[:2]), np.empty(seen.shape[:2])
    for place in np.unique(bucket):
        mine = bucket == place
        counts[mine] = seen[mine, :, place]
        short[mine] = seen[mine, :, : place + 1] @ _of_cumulative(middles[: place + 1])
    whole = seen @ _of_cumulative(middles)
    new, part, all_of_them = (window.grown("engine.inter_token", values, rows) for values in (counts, short, whole))
    with np.errstate(invalid="ignore", divide="ignore"):  # the buckets tell the shares, the sum how much it was
        share = np.where(all_of_them > 0, part / all_of_them, part * 0.0)
    return new, share * histogram_steps(window, "engine.inter_token")[1][rows]


def _of_cumulative(each: Floats) -> Floats:
    """The weights by which cumulative counts give what `each` gives of the counts themselves."""
    return np.append(each[:-1] - each[1:], each[-1])


def _longest(window: Window, matrix: HistogramMatrix, parameters: PausesParameters) -> tuple[Floats, NDArray[np.intp]]:
    """The usual wait between tokens in seconds, and the bucket of the longest that is no gap. (engines,) both."""
    typical = window.once(
        ("usual wait", parameters.over), lambda: window.quantile("engine.inter_token", 0.5, parameters.over)
    )
    bucket = np.searchsorted(matrix.bounds, np.fmax(parameters.gap, parameters.gap_ratio * np.nan_to_num(typical)))
    return typical, np.minimum(bucket, len(matrix.bounds) - 2)


def _more_load(window: Window, parameters: PausesParameters) -> Floats:
    """How many times as much each engine has to compute as its peers; 1 where it is less, or unknown. (engines,)."""
    tokens = window.rate("engine.step_tokens", parameters.over)
    with np.errstate(invalid="ignore", divide="ignore"):
        more = tokens / others_median(tokens, window.topology.peer_group)[0]
    return np.asarray(np.where(np.isfinite(more), np.fmax(more, 1.0), 1.0))


def _behind_prompts(window: Window, span: Floats) -> Bools:
    """Readings with so many tokens above the engine's usual that to compute them took a `span`. (engines, times).

    What a token takes is told by the prompts of the engine or of its peers, whichever reads faster.
    """
    if "engine.step_tokens" not in window.signals or "engine.prompt_tokens" not in window.signals:
        return np.zeros((window.rows, len(window.times)), dtype=np.bool_)
    _, reading = histogram_steps(window, "engine.prefill_time")
    read = window.increments("engine.prompt_tokens")
    with np.errstate(invalid="ignore", divide="ignore"):
        per_token = np.nansum(reading, axis=1) / np.nansum(read, axis=1)
        per_token = np.fmin(per_token, others_median(per_token, window.topology.peer_group)[0])
        tokens = window.increments("engine.step_tokens")
        return np.asarray((tokens - row_median(tokens)[:, None]) * per_token[:, None] >= span[:, None], dtype=np.bool_)


def _share_at(ratio: float | Floats, reference: Floats) -> Floats:
    """The share of readings that hold a gap where gaps come `ratio` times as often as at a share of `reference`."""
    return np.asarray(1.0 - (1.0 - reference) ** ratio)


def _gaps(window: Window, matrix: HistogramMatrix, bucket: NDArray[np.intp]) -> Floats:
    """1 for a reading that holds a gap over the engine's bound, 0 for one that holds only shorter ones, else NaN."""
    total, _ = histogram_steps(window, "engine.inter_token")
    below = np.empty_like(total)
    for place in np.unique(bucket):  # few, for engines of one kind have about the same usual time
        rows = bucket == place
        below[rows] = matrix.counts[:, :, place] if rows.all() else matrix.counts[rows, :, place]
    short = window.grown("engine.inter_token", below)
    gaps = (total > short).astype(np.float64)
    gaps[~(total > 0)] = np.nan
    return gaps
