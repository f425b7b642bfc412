"""Statistics: rates, counts and quantiles, each with an interval that says how far it can be trusted. Pure.

Intervals are at `CONFIDENCE`. Rates get Wilson's score interval (Wilson 1927), which stays sensible near 0 and 1 where most
figures here lie; counts over an exposure get Garwood's exact Poisson interval (Garwood 1936); quantiles get the percentile
bootstrap (Efron 1979), seeded, so that the same trials give the same interval.
"""

import math
from collections.abc import Callable, Sequence
from statistics import NormalDist

import numpy as np
from pydantic import BaseModel, ConfigDict

CONFIDENCE = 0.95
RESAMPLES = 1_000
_TINY = 1e-12


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Rate(_Record):
    """`hits` of `of`. `value`, `low` and `high` are None when there was nothing to count (`of` is 0)."""

    hits: int
    of: int
    value: float | None
    low: float | None
    high: float | None


class Frequency(_Record):
    """`count` events over an `exposure`, per `per` of its unit. `value` and the bounds are None without exposure."""

    count: int
    exposure: float
    per: float
    value: float | None
    low: float | None
    high: float | None


class Quantile(_Record):
    """The quantile `share` of `of` values, and the interval of that quantile; None when there are no values."""

    share: float
    of: int
    value: float | None
    low: float | None
    high: float | None


def rate(hits: int, of: int, confidence: float = CONFIDENCE) -> Rate:
    """A share with Wilson's score interval. Raises ValueError unless 0 <= hits <= of."""
    if not 0 <= hits <= of:
        raise ValueError(f"{hits} of {of} is no share")
    if of == 0:
        return Rate(hits=0, of=0, value=None, low=None, high=None)
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    p = hits / of
    scale = 1 + z**2 / of
    middle = (p + z**2 / (2 * of)) / scale
    half = z * math.sqrt(p * (1 - p) / of + z**2 / (4 * of**2)) / scale
    low = 0.0 if hits == 0 else max(0.0, middle - half)
    high = 1.0 if hits == of else min(1.0, middle + half)
    return Rate(hits=hits, of=of, value=p, low=low, high=high)


def frequency(count: int, exposure: float, per: float = 1.0, confidence: float = CONFIDENCE) -> Frequency:
    """Events per `per` units of exposure, with Garwood's exact interval. Raises ValueError for negative numbers."""
    if count < 0 or exposure < 0:
        raise ValueError(f"{count} events in {exposure} is no frequency")
    if exposure == 0:
        return Frequency(count=count, exposure=exposure, per=per, value=None, low=None, high=None)
    low, high = poisson_bounds(count, confidence)
    scale = per / exposure
    return Frequency(count=count, exposure=exposure, per=per, value=count * scale, low=low * scale, high=high * scale)


def poisson_bounds(count: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """The least and greatest mean for which `count` events are not yet too unlikely (Garwood's exact interval)."""
    tail = (1 - confidence) / 2
    beyond = 10.0 * (count + 10.0)
    low = 0.0 if count == 0 else _crossing(lambda mean: at_most(count - 1, mean) - (1 - tail), 0.0, float(count))
    high = _crossing(lambda mean: at_most(count, mean) - tail, float(count), beyond)
    return low, high


def at_most(count: int, mean: float) -> float:
    """The probability of at most `count` events where `mean` are expected, by Poisson's law."""
    if mean <= 0:
        return 1.0
    terms = [k * math.log(mean) - mean - math.lgamma(k + 1) for k in range(count + 1)]
    top = max(terms)
    return min(1.0, math.exp(top) * math.fsum(math.exp(term - top) for term in terms))


def quantile(values: Sequence[float], share: float, seed: int, confidence: float = CONFIDENCE) -> Quantile:
    """A quantile with its percentile-bootstrap interval, drawn from `seed`. Order and repetition of calls do not matter.

    With few values the interval of an outer quantile is too narrow: no resample holds what was never seen.
    """
    known = np.sort(np.asarray(values, dtype=np.float64))
    if known.size == 0:
        return Quantile(share=share, of=0, value=None, low=None, high=None)
    drawn = np.random.default_rng(seed).integers(0, known.size, (RESAMPLES, known.size))
    resampled = np.quantile(known[drawn], share, axis=1)
    low, high = np.quantile(resampled, [(1 - confidence) / 2, (1 + confidence) / 2])
    value = float(np.quantile(known, share))
    return Quantile(share=share, of=int(known.size), value=value, low=float(low), high=float(high))


def _crossing(falls: Callable[[float], float], low: float, high: float) -> float:
    """Where a falling function passes 0 between `low` and `high`, by bisection."""
    while high - low > _TINY * max(1.0, high):
        middle = (low + high) / 2
        if middle in {low, high}:
            break
        if falls(middle) > 0:
            low = middle
        else:
            high = middle
    return (low + high) / 2
