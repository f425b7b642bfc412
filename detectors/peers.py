"""Peers: an engine that takes longer for each token than true peers do under no greater load.

Peers share model, hardware and role. Between engines and ticks the logarithm of the time per token is compared with a
scale pooled over the whole group and the window, with a floor; the verdict needs a large deviation at once or a lesser
one for three blocks in a row, and an effect that matters. Under four peers there is no such verdict: then the engine's
own past and every peer must agree, and the severity stays low. There the pace between pauses is compared, for a few long
waits on a crowded machine move a mean more than a slow engine does, and pauses have a detector of their own.
"""

import numpy as np
from numpy.typing import NDArray

from detectors.finding import Evidence, Finding, Symptom
from detectors.parameters import PausesParameters, PeersParameters
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
    pooled_scale,
    recent_mean,
)
from serving.telemetry.window import Window

NEEDS = frozenset({"engine.inter_token", "engine.step_tokens"})
HELPED_BY = frozenset({"engine.process_start"})

IN_A_ROW = 3


def detect(window: Window, parameters: PeersParameters, of_pauses: PausesParameters) -> tuple[Finding, ...]:
    """SLOWER_THAN_PEERS."""
    if window.rows == 0 or len(window.times) == 0:
        return ()
    seen = _Seen(window, parameters, histogram_steps(window, "engine.inter_token"))
    if seen.slowness.shape[1] < IN_A_ROW:
        return ()
    slow = seen.by_peers() & seen.no_more_load(IN_A_ROW)
    found = _findings(seen, _between_pauses_too(seen, of_pauses, slow), IN_A_ROW, sure=True)
    few = in_small_groups(window.topology.peer_group, parameters.least_peers)
    if not len(few):
        return tuple(found)
    between = _Seen(window, parameters, _spread(window, few, short_waits(window, of_pauses, few)))
    known = np.zeros(window.rows, dtype=np.bool_)
    for count, effect in (
        (parameters.blocks_small_group, parameters.effect_small_group),
        (parameters.blocks_lasting, parameters.effect_lasting),
    ):
        if between.slowness.shape[1] < count + parameters.least_blocks:
            break
        slow = between.alone(count, effect) & between.no_more_load(count) & ~known
        found += _findings(between, slow, count, sure=False)
        known |= slow
    return tuple(found)


def _between_pauses_too(seen: "_Seen", of_pauses: PausesParameters, slow: Bools) -> Bools:
    """Of the `slow` those that are so between their pauses: one standstill while a shape compiles slows no engine."""
    rows = np.flatnonzero(slow)
    if not len(rows):
        return slow
    lately = seen.window.times > seen.window.now - IN_A_ROW * seen.parameters.block
    pace, _ = recent_mean(short_waits(seen.window, of_pauses, rows), lately, 1)
    others, _ = others_median(seen.recent(IN_A_ROW), seen.groups)
    still = np.zeros_like(slow)
    with np.errstate(invalid="ignore"):
        still[rows] = pace >= seen.parameters.effect * others[rows]
    return still


def _spread(window: Window, rows: NDArray[np.intp], steps: tuple[Floats, Floats]) -> tuple[Floats, Floats]:
    """The `steps` of some rows among those of all, which are unknown."""
    counts, sums = (np.full((window.rows, len(window.times)), np.nan) for _ in range(2))
    counts[rows], sums[rows] = steps
    return counts, sums


class _Seen:
    """What a window says of the time per token: per block, lately, at the peers and before."""

    def __init__(self, window: Window, parameters: PeersParameters, steps: tuple[Floats, Floats]) -> None:
        self.window, self.parameters = window, parameters
        self.groups = window.topology.peer_group
        self._steps = steps
        counts, sums = steps
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

    def alone(self, count: int, effect: float) -> Bools:
        """Few peers: by `effect` slower than each of them and than before over `count` blocks, and so in most of these."""
        past, recent = self.past(count), self.recent(count)
        _, peers = others_median(recent, self.groups)
        usual = np.fmax(self._beside(count), past[:, None])
        agree = (self.slowness[:, -count:] >= self.parameters.effect_each_block * usual).sum(axis=1)
        each = agree >= self.parameters.blocks_agree * count
        against = np.fmax(past, others_largest(recent, self.groups))
        few = (peers > 0) & (peers < self.parameters.least_peers) & ~np.isnan(past)
        return np.asarray(each & few & (recent >= effect * against))

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
        left_out = "" if sure else ", pauses left out"
        says = (
            f"{recent[row] * 1000:.0f} ms a token over {span:.0f} s{left_out}, its {peers[row]} peers "
            f"{others[row] * 1000:.0f} ms{before}, and no more load than they"
        )
        evidence = (Evidence("engine.inter_token", says, float(recent[row]), expected=float(others[row]), unit="seconds"),)
        effect = float(np.log2(recent[row] / others[row]))
        severity = min(1.0, 0.5 + 0.25 * effect) if sure else min(0.75, 0.35 + 0.2 * effect)
        engine = seen.window.topology.engines[row]
        findings.append(Finding(Symptom.SLOWER_THAN_PEERS, engine, seen.window.now - span, severity, evidence))
    return findings
