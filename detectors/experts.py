"""Hot experts: one expert of a layer gets far more tokens than its share, for long, and with enough tokens to say so.

How uneven the experts of a healthy model are is its own affair, so the imbalance is held against the engine's own past and
against its peers. More work that is as mixed as before raises nothing: it leaves the ratio where it was. When most engines
of a model are hot against their own past, no engine stands out: what is asked of the model has changed, and it is found on
the model.
"""

import numpy as np
from numpy.typing import NDArray

from detectors.finding import Evidence, Finding, Symptom
from detectors.parameters import ExpertsParameters
from detectors.statistics import Bools, Floats, block_means, others_median, rising
from serving.fleet.entity import Entity, EntityKind
from serving.telemetry.window import Window

NEEDS = frozenset({"experts.imbalance", "experts.per_expert"})
HELPED_BY = frozenset({"experts.layer", "experts.expert", "experts.tokens", "door.started", "engine.prompt_length"})

Rows = NDArray[np.intp]

SURELY = 3.0  # times `ratio`: an expert that takes all of its layer's tokens in a small model


def detect(window: Window, parameters: ExpertsParameters) -> tuple[Finding, ...]:
    """EXPERTS_HOT."""
    if "experts.imbalance" not in window.signals or len(window.times) == 0:
        return ()
    seen = _Seen(window, parameters)
    findings: list[Finding] = []
    shared = np.zeros(window.rows, dtype=bool)
    for name, rows in sorted(window.topology.rows_of_model.items()):
        if seen.is_the_models(rows):
            shared[rows] = True
            findings.append(seen.on_model(Entity(EntityKind.MODEL, name), rows))
    return (*findings, *(seen.on_engine(int(row)) for row in np.flatnonzero(seen.standing_out() & ~shared)))


class _Seen:
    """What a window says of the imbalance: lately, before, and at the peers. Arrays are (engines,)."""

    def __init__(self, window: Window, parameters: ExpertsParameters) -> None:
        self.window, self.parameters = window, parameters
        values = window.values("experts.imbalance")
        sure = window.values("experts.per_expert") >= parameters.least_tokens
        blocks = block_means(np.where(sure, values, np.nan), window.times, window.now, parameters.block)
        hold = parameters.hold_blocks
        lately, before = blocks[:, -hold:], blocks[:, :-hold]
        enough = lately.shape[1] == hold
        self.lately = lately.min(axis=1) if enough else np.full(window.rows, np.nan)  # NaN where a block says nothing
        self.past = _quantile(before, parameters.usual, parameters.least_blocks)
        self.others, self.peers = others_median(self.lately, window.topology.peer_group)

    @property
    def span(self) -> float:
        """Seconds over which it is hot at least."""
        return self.parameters.hold_blocks * self.parameters.block

    def risen(self) -> Bools:
        """Hot against its own past, where there is one."""
        return self._hot() & (self.lately >= self.parameters.ratio * self.past)

    def standing_out(self) -> Bools:
        """Hot against its past and its peers; where one of them is not known, against the other."""
        beyond_past = (self.lately >= self.parameters.ratio * self.past) | np.isnan(self.past)
        beyond_peers = (self.lately >= self.parameters.ratio * self.others) | np.isnan(self.others)
        known = ~(np.isnan(self.past) & np.isnan(self.others))
        return np.asarray(self._hot() & beyond_past & beyond_peers & known)

    def is_the_models(self, rows: Rows) -> bool:
        """Whether so many of these engines, all of one model, have become hot that none of them stands out."""
        told = int((~np.isnan(self.lately[rows])).sum())
        hot = int(self.risen()[rows].sum())
        return hot >= self.parameters.least_engines and hot >= self.parameters.share_of_model * told

    def on_engine(self, row: int) -> Finding:
        """The finding on one engine, with the expert and the traffic that makes it hot."""
        before = "" if np.isnan(self.past[row]) else f", before {self.past[row]:.1f}"
        beside = "" if np.isnan(self.others[row]) else f", its peers' {self.others[row]:.1f}"
        says = f"{self._expert(row)} gets {self.lately[row]:.1f} times its share of tokens{beside}{before}"
        usual = np.fmax(self.past[row], self.others[row])
        return self._finding(self.window.topology.engines[row], says, self.lately[row], usual, np.array([row]))

    def on_model(self, model: Entity, rows: Rows) -> Finding:
        """The finding on a model."""
        hot = rows[self.risen()[rows]]
        now, usual = float(np.median(self.lately[hot])), float(np.median(self.past[hot]))
        says = (
            f"{self._expert(int(hot[0]))} gets {now:.1f} times its share of tokens, on {len(hot)} of {len(rows)} engines"
            f" alike, before {usual:.1f}: the traffic does it, no engine stands out"
        )
        return self._finding(model, says, now, usual, hot)

    def _hot(self) -> Bools:
        return np.asarray(self.lately >= self.parameters.least)

    def _expert(self, row: int) -> str:
        layer, expert = (self.window.latest(f"experts.{name}", self.span)[row] for name in ("layer", "expert"))
        return "one expert" if np.isnan(layer + expert) else f"expert {expert:.0f} of layer {layer:.0f}"

    def _finding(self, entity: Entity, says: str, now: float, usual: float, rows: Rows) -> Finding:
        evidence = [Evidence("experts.imbalance", says, float(now), expected=float(usual), unit="ratio")]
        evidence += [told for told in (self._arrivals(rows), self._prompts(rows)) if told is not None]
        severity = float(rising(np.array(now / usual), self.parameters.ratio, SURELY * self.parameters.ratio))
        return Finding(Symptom.EXPERTS_HOT, entity, self.window.now - self.span, severity, tuple(evidence))

    def _arrivals(self, rows: Rows) -> Evidence | None:
        """The traffic, where more or less of it came when the expert became hot."""
        now = float(np.nansum(self.window.rate("door.started", self.span)[rows]))
        before = float(np.nansum(_rate_before(self.window, self.span)[rows]))
        if not (now > 0 and before > 0) or max(now / before, before / now) < self.parameters.traffic_ratio:
            return None
        says = f"{now:.1f} requests a second arrive there, before {before:.1f}"
        return Evidence("door.started", says, now, expected=before, unit="requests a second")

    def _prompts(self, rows: Rows) -> Evidence | None:
        """Whose prompts: how long they are now, against before."""
        now = _mean(self.window.mean("engine.prompt_length", self.span)[rows])
        before = _mean(self.window.mean("engine.prompt_length", 1e9)[rows])
        if np.isnan(now) or np.isnan(before):
            return None
        return Evidence(
            "engine.prompt_length",
            f"its prompts have {now:.0f} tokens, over the whole time {before:.0f}: look for requests of that length that"
            " repeat a text",
            now,
            expected=before,
            unit="tokens",
        )


def _rate_before(window: Window, seconds: float) -> Floats:
    """Requests a second that came before the last `seconds`."""
    grown = window.increments("door.started")
    old = window.times <= window.now - seconds
    span = window.times[old][-1] - window.times[old][0] if old.sum() > 1 else np.nan
    return np.asarray(np.nansum(grown[:, old], axis=1) / span)


def _quantile(values: Floats, share: float, least: int) -> Floats:
    """That quantile of each row's present values (the lower neighbour); NaN with fewer than `least`."""
    count = (~np.isnan(values)).sum(axis=1)
    if values.shape[1] == 0:
        return np.full(len(values), np.nan)
    ascending = np.sort(values, axis=1)  # NaN comes last
    place = np.minimum((share * np.maximum(count - 1, 0)).astype(np.intp), values.shape[1] - 1)
    return np.where(count >= least, np.take_along_axis(ascending, place[:, None], axis=1)[:, 0], np.nan)


def _mean(values: Floats) -> float:
    present = values[~np.isnan(values)]
    return float(present.mean()) if len(present) else float("nan")
