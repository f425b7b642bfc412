"""Peers: an engine that takes longer for each token than true peers do under no greater load.

Peers share model, hardware and role. Between engines and ticks the logarithm of the time per token is compared with a
scale pooled over the whole group and the window, with a floor; the verdict needs a large deviation at once or a lesser
one for three blocks in a row, and an effect that matters. Under four peers there is no such verdict: then the engine's
own past and every peer must agree, and the severity stays low.
"""

import numpy as np

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
    recent_mean,
)
from serving.telemetry.window import Window

NEEDS = frozenset({"engine.inter_token", "engine.step_tokens"})
HELPED_BY = frozenset({"engine.process_start"})

IN_A_ROW = 3


def detect(window: Window, parameters: PeersParameters) -> tuple[Finding, ...]:
    """SLOWER_THAN_PEERS."""
    if window.rows == 0 or len(window.times) == 0:
        return ()
    seen = _Seen(window, parameters)
    if seen.slowness.shape[1] < IN_A_ROW:
        return ()
    found = _findings(seen, seen.by_peers() & seen.no_more_load(IN_A_ROW), IN_A_ROW, sure=True)
    many = parameters.blocks_small_group
    if seen.slowness.shape[1] < many + parameters.least_blocks:
        return tuple(found)
    return (*found, *_findings(seen, seen.alone() & seen.no_more_load(many), many, sure=False))


class _Seen:
    """What a window says of the time per token: per block, lately, at the peers and before."""

    def __init__(self, window: Window, parameters: PeersParameters) -> None:
        self.window, self.parameters = window, parameters
        self.groups = window.topology.peer_group
        self._steps = histogram_steps(window, "engine.inter_token")
        counts, sums = self._steps
        self.slowness = block_ratio(sums, counts, window.times, window.now, parameters.block)

    def recent(self, blocks: int) -> Floats:
        """Mean over the last `blocks`; NaN where too few tokens make it up."""
        lately = self.window.times > self.window.now - blocks * self.parameters.block
        return recent_mean(self._steps, lately, self.parameters.least_tokens)[0]

    def past(self, blocks: int) -> Floats:
        """The usual value before the last `blocks`."""
        return own_past(self.slowness, blocks, self.parameters.least_blocks)

    def by_peers(self) -> Bools:
        """Enough peers, and far from them by the scale of the whole group."""
        with np.errstate(invalid="ignore", divide="ignore"):
            logs = np.log(self.slowness)
        recent = self.recent(IN_A_ROW)
        others, peers = others_median(recent, self.groups)
        z = (logs[:, -IN_A_ROW:] - np.log(self._beside(IN_A_ROW))) / pooled_scale(
            logs, self.groups, np.log(self.parameters.scale_floor)
        )[:, None]
        far = (z[:, -1] > self.parameters.z_at_once) | (z > self.parameters.z_in_a_row).all(axis=1)
        return np.asarray(far & (recent >= self.parameters.effect * others) & (peers >= self.parameters.least_peers))

    def alone(self) -> Bools:
        """Few peers: slower than each of them and than before, over a longer span and in every block of it."""
        count = self.parameters.blocks_small_group
        past, recent = self.past(count), self.recent(count)
        _, peers = others_median(recent, self.groups)
        usual = np.fmax(self._beside(count), past[:, None])
        each = (self.slowness[:, -count:] >= self.parameters.effect_each_block * usual).all(axis=1)
        against = np.fmax(past, others_largest(recent, self.groups))
        few = (peers > 0) & (peers < self.parameters.least_peers) & ~np.isnan(past)
        return np.asarray(each & few & (recent >= self.parameters.effect_small_group * against))

    def no_more_load(self, blocks: int) -> Bools:
        """No more tokens to compute than its peers have."""
        tokens = self.window.rate("engine.step_tokens", blocks * self.parameters.block)
        others, _ = others_median(tokens, self.groups)
        return np.asarray(tokens <= self.parameters.load_within * others)

    def _beside(self, count: int) -> Floats:
        """The median of the others in each of the last `count` blocks."""
        latest = self.slowness[:, -count:]
        return np.stack([others_median(latest[:, column], self.groups)[0] for column in range(latest.shape[1])], axis=1)


def _findings(seen: _Seen, found: Bools, blocks: int, *, sure: bool) -> list[Finding]:
    recent, past = seen.recent(blocks), seen.past(blocks)
    others, peers = others_median(recent, seen.groups)
    span = blocks * seen.parameters.block
    findings = []
    for row in np.flatnonzero(found):
        before = "" if np.isnan(past[row]) else f", before {past[row] * 1000:.0f} ms"
        says = (
            f"{recent[row] * 1000:.0f} ms a token over {span:.0f} s, its {peers[row]} peers {others[row] * 1000:.0f} ms"
            f"{before}, and no more load than they"
        )
        evidence = (Evidence("engine.inter_token", says, float(recent[row]), expected=float(others[row]), unit="seconds"),)
        effect = float(np.log2(recent[row] / others[row]))
        severity = min(1.0, 0.5 + 0.25 * effect) if sure else min(0.75, 0.35 + 0.2 * effect)
        engine = seen.window.topology.engines[row]
        findings.append(Finding(Symptom.SLOWER_THAN_PEERS, engine, seen.window.now - span, severity, evidence))
    return findings
