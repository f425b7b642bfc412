"""Prefill: prompts much longer than usual, and an engine whose time goes into reading prompts."""

import numpy as np

from detectors.finding import Evidence, Finding, Symptom
from detectors.parameters import PrefillParameters
from detectors.statistics import Floats, block_ratio, histogram_steps, others_median, own_past, recent_mean
from serving.telemetry.window import Window

NEEDS = frozenset({"engine.prompt_length", "engine.prefill_time"})
HELPED_BY = frozenset({"engine.prompt_tokens", "engine.prompt_tokens.computed", "engine.generation_tokens"})


def detect(window: Window, parameters: PrefillParameters) -> tuple[Finding, ...]:
    """LONG_PROMPTS and PREFILL_BUSY."""
    if window.rows == 0 or len(window.times) == 0:
        return ()
    return (*_long(window, parameters), *_busy(window, parameters))


def _long(window: Window, parameters: PrefillParameters) -> list[Finding]:
    counts, sums = steps = histogram_steps(window, "engine.prompt_length")
    recent, _ = recent_mean(steps, window.times > window.now - parameters.over, parameters.least_requests)
    per_block = block_ratio(sums, counts, window.times, window.now, parameters.over)
    past = own_past(per_block, 1, parameters.least_blocks)
    others, _ = others_median(recent, window.topology.peer_group)
    usual = np.where(np.isnan(past), others, past)
    found = (recent >= parameters.long_ratio * usual) & (recent >= parameters.long_least)
    return [
        Finding(
            Symptom.LONG_PROMPTS,
            window.topology.engines[row],
            window.now - parameters.over,
            float(np.clip(0.3 + 0.1 * recent[row] / usual[row], 0.3, 1.0)),
            (
                Evidence(
                    "engine.prompt_length",
                    f"prompts of {recent[row]:.0f} tokens on average over {parameters.over:.0f} s, "
                    f"{'before' if not np.isnan(past[row]) else 'at its peers'} {usual[row]:.0f}",
                    float(recent[row]),
                    expected=float(usual[row]),
                    unit="tokens",
                ),
            ),
        )
        for row in np.flatnonzero(found)
    ]


def _prompt_share(window: Window, seconds: float) -> Floats:
    computed = window.rate("engine.prompt_tokens.computed", seconds)
    computed = np.where(np.isnan(computed), window.rate("engine.prompt_tokens", seconds), computed)
    generated = window.rate("engine.generation_tokens", seconds)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(computed + generated > 0, computed / (computed + generated), np.nan)


def _busy(window: Window, parameters: PrefillParameters) -> list[Finding]:
    share = _prompt_share(window, parameters.over)
    _, sums = histogram_steps(window, "engine.prefill_time")
    lately = window.times > window.now - parameters.over
    spent = np.where(np.isnan(sums[:, lately]), 0.0, sums[:, lately]).sum(axis=1) / parameters.over
    found = (share >= parameters.prompt_share) & (spent >= parameters.busy)
    return [
        Finding(
            Symptom.PREFILL_BUSY,
            window.topology.engines[row],
            window.now - parameters.over,
            float(np.clip(spent[row], 0.4, 1.0)),
            (
                Evidence(
                    "engine.prefill_time",
                    f"{share[row] * 100:.0f} % of its tokens are prompt tokens, and finished requests spent "
                    f"{spent[row]:.1f} s of each second in prefill",
                    float(spent[row]),
                    unit="ratio",
                ),
            ),
        )
        for row in np.flatnonzero(found)
    ]
