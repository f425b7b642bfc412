"""From exposed series to canonical signals: which names, which labels, and how several series become one value.

Both kinds of sources that carry series use this, so a signal means the same however it was fetched.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from serving.telemetry import counters
from serving.telemetry.exposition import Labels, Samples
from serving.telemetry.reading import HistogramReading
from serving.telemetry.registry import Combine, SignalKind, SignalSpec

Floats = NDArray[np.float64]

_COMBINED: Mapping[Combine, Callable[[Iterable[float]], float]] = {Combine.SUM: sum, Combine.MAX: max, Combine.MIN: min}


@dataclass(frozen=True, slots=True)
class Histogram:
    """One engine's histogram: cumulative count by upper bound, and the sum of what was observed (NaN where not said)."""

    buckets: Mapping[float, float]
    total: float


@dataclass(frozen=True, slots=True)
class EngineSignals:
    """What one engine's series say, by canonical name. A signal that no series carries is absent."""

    values: dict[str, float] = field(default_factory=dict)
    histograms: dict[str, Histogram] = field(default_factory=dict)


def select(samples: Samples, specs: Mapping[str, SignalSpec]) -> EngineSignals:
    """The signals of `specs` found in one engine's `samples`."""
    chosen = EngineSignals()
    for signal, spec in specs.items():
        for name in () if spec.reduced else spec.names:
            if spec.kind is SignalKind.HISTOGRAM:
                histogram = _histogram(name, samples, spec)
                if histogram is not None:
                    chosen.histograms[signal] = histogram
                    break
            else:
                values = [value for value in _matching(samples.get(name, ()), spec) if value == value]  # noqa: PLR0124 - NaN
                if values:
                    chosen.values[signal] = float(_COMBINED[spec.combine](values))
                    break
    return chosen


def _matching(series: Iterable[tuple[Labels, float]], spec: SignalSpec) -> list[float]:
    if not spec.where:
        return [value for _, value in series]
    return [value for labels, value in series if _selected(labels, spec)]


def _selected(labels: Labels, spec: SignalSpec) -> bool:
    return all(pattern.fullmatch(labels.get(label, "")) for label, pattern in spec.matchers)


def _histogram(name: str, samples: Samples, spec: SignalSpec) -> Histogram | None:
    buckets: dict[float, float] = {}
    for labels, value in samples.get(name + "_bucket", ()):
        if spec.where and not _selected(labels, spec):
            continue
        bound = _bound(labels.get("le", ""))
        if bound is not None:
            buckets[bound] = buckets.get(bound, 0.0) + value
    if np.inf not in buckets:  # without its last bucket a histogram has no count
        return None
    sums = _matching(samples.get(name + "_sum", ()), spec)
    return Histogram(buckets, float(sum(sums)) if sums else np.nan)


def _bound(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def columns(
    chosen: Mapping[int, EngineSignals], rows: int, specs: Mapping[str, SignalSpec]
) -> tuple[dict[str, Floats], dict[str, HistogramReading]]:
    """The signals of many engines, by row, as one column each. Signals that no engine carries are left out."""
    values: dict[str, Floats] = {}
    histograms: dict[str, HistogramReading] = {}
    for signal, spec in specs.items():
        if spec.kind is SignalKind.HISTOGRAM:
            carried = {row: each.histograms[signal] for row, each in chosen.items() if signal in each.histograms}
            if carried:
                histograms[signal] = _side_by_side(carried, rows)
        else:
            column = np.full(rows, np.nan)
            present = [row for row, each in chosen.items() if signal in each.values]
            if present:
                column[present] = [chosen[row].values[signal] for row in present]
                values[signal] = column
    return values, histograms


def _side_by_side(carried: Mapping[int, Histogram], rows: int) -> HistogramReading:
    """Histograms of engines whose bounds may differ, over all the bounds that any of them has."""
    same_bounds: dict[tuple[float, ...], list[int]] = {}
    for row, histogram in carried.items():
        same_bounds.setdefault(tuple(sorted(histogram.buckets)), []).append(row)
    bounds = np.array(sorted({bound for own in same_bounds for bound in own}))
    counts = np.full((rows, len(bounds)), np.nan)
    sums = np.full(rows, np.nan)
    for own, members in same_bounds.items():
        table = np.array([[carried[row].buckets[bound] for bound in own] for row in members])
        counts[members] = counters.rebucket(np.array(own), table, bounds)
        sums[members] = [carried[row].total for row in members]
    return HistogramReading(bounds, counts, sums)
