"""Tokens per expert, reduced to a few columns while they are read: how unevenly experts are used lately, and the hottest.

A mixture-of-experts engine with our counter (serving.engines.expert_counter) shows one series for each layer and expert,
thousands for a large model. Every source hands them to `ExpertLoads`, so that a window holds four numbers an engine.

What was counted fades: a token that was routed `HALF_LIFE` seconds ago weighs half. So one reading with few tokens does not
jump, nothing but one vector of counts an engine is kept, and the past is soon forgotten. The imbalance of a layer is the
most tokens of an expert over the mean of its experts; the engine's is that of its worst layer.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from serving.telemetry.exposition import Labels, Samples

Floats = NDArray[np.float64]
Key = tuple[int, int]

TOKENS = "fleetwarden:expert_tokens_total"
OWN_PREFIX = "fleetwarden:expert"
REDUCED = ("experts.imbalance", "experts.per_expert", "experts.layer", "experts.expert")

HALF_LIFE = 10.0
"""Seconds. Two requests a second over three small engines then leave about 30 tokens an expert to judge by."""
MOST_SERIES = 200_000
"""Of one engine; the largest public models have about 20,000 (layers times experts) a rank."""
BUSY_LAYER = 0.5
"""A layer counts when it routed at least this part of what the busiest one did: a drafting head sees few tokens."""

_NOTHING: Mapping[str, float] = MappingProxyType({})


@dataclass(slots=True, eq=False)
class _Engine:
    """What is kept of one engine: its experts in order of layer and number, counts as last exposed, and faded counts."""

    keys: tuple[Key, ...]
    place: Mapping[Key, int]
    begins: NDArray[np.intp]
    last: Floats
    faded: Floats
    at: float
    told: Mapping[str, float] = field(default_factory=lambda: _NOTHING)


class ExpertLoads:
    """Keeps the faded counts of each engine, by name, and says the four columns of `REDUCED`. For one source's thread."""

    def __init__(self, half_life: float = HALF_LIFE) -> None:
        self._half_life = half_life
        self._engines: dict[str, _Engine] = {}

    def columns(self, samples: Mapping[int, Samples], engines: Sequence[str], taken: Floats) -> dict[str, Floats]:
        """The columns from the samples by row; `engines` are the names of all rows, `taken` when each was sampled.

        Empty where no engine counts its experts.
        """
        told = {
            row: self.take(engines[row], loads_of(said[TOKENS]), float(taken[row]))
            for row, said in samples.items()
            if said.get(TOKENS)
        }
        if not told:
            return {}
        found = {name: np.full(len(engines), np.nan) for name in REDUCED}
        for row, values in told.items():
            for name, value in values.items():
                found[name][row] = value
        return found

    def take(self, engine: str, loads: Mapping[Key, float], at: float) -> Mapping[str, float]:
        """Take in the counters of one engine, sampled at `at` (Unix seconds), and say its columns; empty while unknown.

        A counter that fell began anew; one that is seen for the first time has not grown yet. A sample that is not newer
        than the last one changes nothing.
        """
        known = self._engines.get(engine)
        if known is not None and not at > known.at:
            return known.told
        if not loads or np.isnan(at):
            return _NOTHING
        if known is None or known.place.keys() != loads.keys():
            known = self._engines[engine] = _laid_out(loads, known, at)
        counts = np.array([loads[key] for key in known.keys])
        grown = np.where(counts >= known.last, counts - known.last, counts)
        known.faded = known.faded * 0.5 ** ((at - known.at) / self._half_life) + grown
        known.last, known.at = counts, at
        known.told = _told(known)
        return known.told


def loads_of(series: Iterable[tuple[Labels, float]]) -> dict[Key, float]:
    """Tokens by layer and expert, summed over ranks. Series without both numbers, or past MOST_SERIES, are left out."""
    loads: dict[Key, float] = {}
    for labels, value in series:
        key = key_of(labels)
        if key is None or value != value:  # noqa: PLR0124 - NaN
            continue
        if key in loads:
            loads[key] += value
        elif len(loads) < MOST_SERIES:
            loads[key] = value
    return loads


def key_of(labels: Labels) -> Key | None:
    """Layer and expert of a series; None where it does not say both."""
    try:
        return int(labels["layer"]), int(labels["expert"])
    except (KeyError, ValueError):
        return None


def only_counts_experts(samples: Samples) -> bool:
    """Whether a target is an engine's expert counter and nothing else: then its being up says nothing of the engine."""
    own = [name for name in samples if name.startswith(OWN_PREFIX)]
    return bool(own) and not any(name.startswith("vllm:") for name in samples)


def _laid_out(loads: Mapping[Key, float], before: _Engine | None, at: float) -> _Engine:
    """An engine with these experts, which goes on with what was known of them."""
    keys = tuple(sorted(loads))
    layers = np.array([layer for layer, _ in keys])
    last = np.array([loads[key] for key in keys])
    faded = np.zeros(len(keys))
    if before is not None:
        for place, key in enumerate(keys):
            if key in before.place:
                last[place], faded[place] = before.last[before.place[key]], before.faded[before.place[key]]
    return _Engine(
        keys=keys,
        place={key: place for place, key in enumerate(keys)},
        begins=np.flatnonzero(np.r_[True, layers[1:] != layers[:-1]]),
        last=last,
        faded=faded,
        at=at if before is None else before.at,
    )


def _told(engine: _Engine) -> Mapping[str, float]:
    total = np.add.reduceat(engine.faded, engine.begins)
    most = np.maximum.reduceat(engine.faded, engine.begins)
    sizes = np.diff(np.r_[engine.begins, len(engine.keys)])
    if not total.max(initial=0.0) > 0:
        return _NOTHING
    with np.errstate(invalid="ignore", divide="ignore"):
        uneven = np.where(total >= BUSY_LAYER * total.max(), most * sizes / total, 0.0)
    worst = int(uneven.argmax())
    begin = int(engine.begins[worst])
    hottest = begin + int(engine.faded[begin : begin + int(sizes[worst])].argmax())
    layer, expert = engine.keys[hottest]
    found = (float(uneven[worst]), float(total[worst] / sizes[worst]), float(layer), float(expert))
    return dict(zip(REDUCED, found, strict=True))
