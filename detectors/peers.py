"""Peers: an engine that takes longer for each token than true peers do under no greater load.

Peers share model, hardware and role. Between engines and ticks the logarithm of the time per token is compared with a
scale pooled over the whole group and the window, with a floor; the verdict needs a large deviation at once or a lesser
one for three blocks in a row, and an effect that matters. Under four peers there is no such verdict: then the engine's
own past and every peer must agree, and the severity stays low.
"""

import numpy as np
from numpy.typing import NDArray

from detectors.finding import Evidence, Finding, Symptom
from detectors.parameters import PeersParameters
from detectors.statistics import (
    Bools,
    Floats,
    block_ratio,
    histogram_steps,
    others_largest,
    others_median,
    own_past,
    pooled_scale,
)
from serving.telemetry.window import Window

NEEDS = frozenset({"engine.inter_token", "engine.step_tokens"})
HELPED_BY = frozenset({"engine.process_start"})

IN_A_ROW = 3


def detect(window: Window, parameters: PeersParameters) -> tuple[Finding, ...]:
    """SLOWER_THAN_PEERS."""
    if window.rows == 0 or len(window.times) == 0:
        return ()
    groups = window.topology.peer_group
    counts, sums = histogram_steps(window, "engine.inter_token")
    slowness = block_ratio(sums, counts, window.times, window.now, parameters.block)
    if slowness.shape[1] < IN_A_ROW:
        return ()
    span = IN_A_ROW * parameters.block
    recent, peers = _recent(window, parameters, span), _peer_count(window, parameters, span)
    strong = (peers >= parameters.least_peers) & _by_peers(parameters, slowness, recent, groups)
    found = _describe(window, parameters, strong & _no_more_load(window, parameters, span), span, slowness)
    if slowness.shape[1] < parameters.blocks_small_group + parameters.least_blocks:
        return tuple(found)
    span = parameters.blocks_small_group * parameters.block
    recent = _recent(window, parameters, span)
    weak = (peers < parameters.least_peers) & (peers > 0) & _alone(parameters, slowness, recent, groups)
    return (
        *found,
        *_describe(window, parameters, weak & _no_more_load(window, parameters, span), span, slowness, sure=False),
    )


def _recent(window: Window, parameters: PeersParameters, span: float) -> Floats:
    """Mean time per token over `span`; NaN where too few tokens make it up."""
    tokens = np.nan_to_num(window.observed("engine.inter_token", span)[1][:, -1])
    return np.where(tokens >= parameters.least_tokens, window.mean("engine.inter_token", span), np.nan)


def _peer_count(window: Window, parameters: PeersParameters, span: float) -> NDArray[np.intp]:
    return others_median(_recent(window, parameters, span), window.topology.peer_group)[1]


def _describe(
    window: Window, parameters: PeersParameters, found: Bools, span: float, slowness: Floats, *, sure: bool = True
) -> list[Finding]:
    recent = _recent(window, parameters, span)
    others, peers = others_median(recent, window.topology.peer_group)
    past = own_past(slowness, int(span / parameters.block), parameters.least_blocks)
    findings = []
    for row in np.flatnonzero(found):
        before = "" if np.isnan(past[row]) else f", before {past[row] * 1000:.0f} ms"
        says = (
            f"{recent[row] * 1000:.0f} ms a token over {span:.0f} s, its {peers[row]} peers {others[row] * 1000:.0f} ms"
            f"{before}, and no more load than they"
        )
        evidence = (Evidence("engine.inter_token", says, float(recent[row]), expected=float(others[row]), unit="seconds"),)
        effect = float(np.log2(recent[row] / others[row]))
        severity = min(1.0, 0.5 + 0.25 * effect) if sure else min(0.6, 0.3 + 0.15 * effect)
        findings.append(
            Finding(Symptom.SLOWER_THAN_PEERS, window.topology.engines[row], window.now - span, severity, evidence)
        )
    return findings


def _by_peers(parameters: PeersParameters, slowness: Floats, recent: Floats, groups: NDArray[np.intp]) -> Bools:
    others, _ = others_median(recent, groups)
    with np.errstate(invalid="ignore", divide="ignore"):
        logs = np.log(slowness)
        _, scale = pooled_scale(logs, groups, np.log(parameters.scale_floor))
        latest = logs[:, -IN_A_ROW:]
        centre = np.stack([others_median(latest[:, column], groups)[0] for column in range(IN_A_ROW)], axis=1)
        z = (latest - centre) / scale[:, None]
        return np.asarray(
            ((z[:, -1] > parameters.z_at_once) | (z > parameters.z_in_a_row).all(axis=1))
            & (recent >= parameters.effect * others)
        )


def _alone(parameters: PeersParameters, slowness: Floats, recent: Floats, groups: NDArray[np.intp]) -> Bools:
    """Few peers: slower than each of them and than before, over a longer span and in every block of it."""
    count = parameters.blocks_small_group
    past = own_past(slowness, count, parameters.least_blocks)
    latest = slowness[:, -count:]
    beside = np.stack([others_median(latest[:, column], groups)[0] for column in range(count)], axis=1)
    with np.errstate(invalid="ignore"):
        each = (latest >= parameters.effect_each_block * np.fmax(beside, past[:, None])).all(axis=1)
        against = np.fmax(past, others_largest(recent, groups))
        return np.asarray(each & ~np.isnan(past) & (recent >= parameters.effect_small_group * against))


def _no_more_load(window: Window, parameters: PeersParameters, span: float) -> Bools:
    tokens = window.rate("engine.step_tokens", span)
    others, _ = others_median(tokens, window.topology.peer_group)
    with np.errstate(invalid="ignore"):
        return np.asarray(tokens <= parameters.load_within * others)
