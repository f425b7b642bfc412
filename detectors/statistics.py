"""The arithmetic that detectors share: runs that last until now, blocks of the past, and comparison with true peers.

Everything is vectorised over engines (rows); NaN is missing and never counts as zero. Does not belong here: any
threshold, anything that knows a symptom.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from serving.telemetry import counters
from serving.telemetry.window import Window

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """A condition that holds until now.

    `since` (Unix seconds) and `held` (seconds between its first and its latest sample) have shape (engines,); since is
    NaN and held 0 where the condition does not hold at its latest sample.
    """

    since: Floats
    held: Floats


def trailing_run(condition: Floats, at: Floats) -> Run:
    """How long `condition` (1 true, 0 false, NaN unknown) has held up to its latest sample, taken at `at` (same shape).

    Unknown samples neither break nor lengthen a run.
    """
    if condition.shape[1] == 0:
        rows = condition.shape[0]
        return Run(np.full(rows, np.nan), np.zeros(rows))
    false_at = np.where(condition == 0, at, -np.inf).max(axis=1, initial=-np.inf)
    true_at = np.where(condition == 1, at, -np.inf)
    latest = true_at.max(axis=1, initial=-np.inf)
    holds = latest > false_at
    inside = (condition == 1) & (at > false_at[:, None])
    first = np.where(inside, at, np.inf).min(axis=1, initial=np.inf)
    with np.errstate(invalid="ignore"):
        return Run(np.where(holds, first, np.nan), np.where(holds, latest - first, 0.0))


def lasting(condition: Floats, at: Floats) -> Floats:
    """For how many seconds `condition` (1, 0 or NaN) has held at each sample taken at `at`: 0 where it does not.

    Shapes (engines, times). NaN where unknown; unknown samples neither break nor lengthen a run.
    """
    before = np.full_like(condition, np.nan)
    before[:, 1:] = counters.last_present(condition)[:, :-1]
    begun = np.where((condition == 1) & (before != 1), at, -np.inf)
    if begun.shape[1]:
        begun = np.maximum.accumulate(begun, axis=1)
    with np.errstate(invalid="ignore"):
        return np.where(np.isnan(condition), np.nan, np.where(condition == 1, at - begun, 0.0))


def condition(values: Floats, true: Bools) -> Floats:
    """`true` as 1 and 0, NaN where `values` is missing."""
    return np.where(np.isnan(values), np.nan, true.astype(np.float64))


def share_true(condition: Floats) -> Floats:
    """The share of known samples that are true. Shape (engines,); NaN where none is known."""
    return row_mean(condition)


def row_mean(values: Floats) -> Floats:
    """The mean of each row's present values; NaN where there are none."""
    known = ~np.isnan(values)
    count = known.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(count > 0, np.where(known, values, 0.0).sum(axis=1) / count, np.nan)


def row_median(values: Floats) -> Floats:
    """The median of each row's present values; NaN where there are none."""
    count = (~np.isnan(values)).sum(axis=1)
    if values.shape[1] == 0:
        return np.full(values.shape[0], np.nan)
    ascending = np.sort(values, axis=1)  # NaN comes last
    low = np.take_along_axis(ascending, np.maximum((count - 1) // 2, 0)[:, None], axis=1)[:, 0]
    high = np.take_along_axis(ascending, np.minimum(count // 2, values.shape[1] - 1)[:, None], axis=1)[:, 0]
    return np.where(count > 0, (low + high) / 2.0, np.nan)


def sample_times(window: Window, signal: str) -> Floats:
    """When each present sample of `signal` was taken, (engines, times); NaN where missing."""
    matrix = window.signals.get(signal)
    if matrix is None:
        return np.full((window.rows, len(window.times)), np.nan)
    return np.where(np.isnan(matrix.values), np.nan, matrix.sampled_at)


def histogram_steps(window: Window, histogram: str) -> tuple[Floats, Floats]:
    """New observations and their summed value at each sample: two arrays (engines, times), NaN where unknown."""
    matrix = window.histograms.get(histogram)
    if matrix is None:
        empty = np.full((window.rows, len(window.times)), np.nan)
        return empty, empty
    starts = window.values("engine.process_start") if histogram.startswith("engine.") else None
    return counters.increments(matrix.counts[:, :, -1], starts), counters.increments(matrix.sums, starts)


def blocks(values: Floats, times: Floats, now: float, seconds: float) -> tuple[Floats, Floats]:
    """Sums over blocks of `seconds`, counted back from `now`, oldest first; the last block ends at `now`.

    Returns the sums and how many samples were present, both (engines, blocks). A block that the window does not cover
    whole is left out.
    """
    if len(times) == 0:
        return np.zeros((values.shape[0], 0)), np.zeros((values.shape[0], 0))
    first = times[0] - (times[1] - times[0] if len(times) > 1 else 0.0)
    count = int((now - first) / seconds + 1e-6)
    edges = np.searchsorted(times, now - seconds * np.arange(count, -1, -1) + 1e-6)
    known = ~np.isnan(values)
    totals = np.cumsum(np.where(known, values, 0.0), axis=1)
    counted = np.cumsum(known, axis=1)
    pad = np.zeros((values.shape[0], 1))
    totals, counted = np.hstack([pad, totals]), np.hstack([pad, counted])
    return np.diff(totals[:, edges], axis=1), np.diff(counted[:, edges], axis=1)


def block_means(values: Floats, times: Floats, now: float, seconds: float) -> Floats:
    """Mean of the present samples of each block, (engines, blocks); NaN where a block has none."""
    totals, counted = blocks(values, times, now, seconds)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(counted > 0, totals / counted, np.nan)


def block_ratio(top: Floats, bottom: Floats, times: Floats, now: float, seconds: float) -> Floats:
    """Sum of `top` over sum of `bottom` in each block, (engines, blocks); NaN where the bottom is zero."""
    above, _ = blocks(top, times, now, seconds)
    below, _ = blocks(bottom, times, now, seconds)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(below > 0, above / below, np.nan)


def own_past(per_block: Floats, recent: int, least: int) -> Floats:
    """The median over the blocks before the `recent` last ones; NaN with fewer than `least` blocks that say something.

    The median, so that a past fault of less than half the window does not become the norm.
    """
    past = per_block[:, : max(0, per_block.shape[1] - recent)]
    enough = (~np.isnan(past)).sum(axis=1) >= least
    return np.where(enough, row_median(past), np.nan)


def others_median(values: Floats, groups: NDArray[np.intp]) -> tuple[Floats, NDArray[np.intp]]:
    """For each engine the median of the *other* members of its group, and how many of them have a value. (engines,)."""
    ordered = _Ordered(values, groups)
    rest = np.maximum(ordered.known_in_group - ordered.is_known, 0)
    low, high = np.maximum((rest - 1) // 2, 0), rest // 2
    # Places in the ascending order of the group; the engine itself is stepped over.
    low = low + (ordered.is_known & (low >= ordered.place))
    high = high + (ordered.is_known & (high >= ordered.place))
    median = (ordered.at(low) + ordered.at(high)) / 2.0
    return np.where(rest > 0, median, np.nan), rest.astype(np.intp)


def others_largest(values: Floats, groups: NDArray[np.intp]) -> Floats:
    """For each engine the largest value among the *other* members of its group; NaN where none has one. (engines,)."""
    ordered = _Ordered(values, groups)
    rest = np.maximum(ordered.known_in_group - ordered.is_known, 0)
    last = ordered.known_in_group - 1
    last = last - (ordered.is_known & (last == ordered.place))
    return np.where(rest > 0, ordered.at(np.maximum(last, 0)), np.nan)


class _Ordered:
    """Values in ascending order inside each group, for all groups at once. NaN comes last in its group."""

    def __init__(self, values: Floats, groups: NDArray[np.intp]) -> None:
        order = np.lexsort((values, groups))
        self._sorted = values[order]
        sizes = np.bincount(groups, minlength=int(groups.max(initial=-1)) + 1)
        first = np.cumsum(sizes) - sizes
        self._first = first[groups]
        self.is_known = ~np.isnan(values)
        self.known_in_group = np.bincount(groups, weights=self.is_known, minlength=len(sizes)).astype(np.intp)[groups]
        self.place = np.empty(len(values), dtype=np.intp)
        self.place[order] = np.arange(len(values)) - first[groups[order]]

    def at(self, place: NDArray[np.intp]) -> Floats:
        """The value at `place` of each engine's group, (engines,)."""
        if not len(self._sorted):
            return np.empty(0)
        return np.asarray(self._sorted[np.minimum(self._first + place, len(self._sorted) - 1)], dtype=np.float64)


def pooled_scale(logs: Floats, groups: NDArray[np.intp], floor: float) -> Floats:
    """The scale of each group, pooled over its engines and all blocks of `logs` (engines, blocks). Shape (engines,).

    1.4826 times the median absolute deviation from the group's median, not below `floor`. Pooling over ticks keeps the
    scale of small groups from collapsing by chance.
    """
    spread = np.abs(logs - _group_median(logs, groups)[:, None])
    return np.fmax(floor, 1.4826 * _group_median(spread, groups))


def _group_median(values: Floats, groups: NDArray[np.intp]) -> Floats:
    """The median of all present values of each group's rows, given back for each row."""
    flat, flat_groups = values.ravel(), np.repeat(groups, values.shape[1])
    known = ~np.isnan(flat)
    flat, flat_groups = flat[known], flat_groups[known]
    ascending = flat[np.lexsort((flat, flat_groups))]
    sizes = np.bincount(flat_groups, minlength=int(groups.max(initial=-1)) + 1)
    first = np.cumsum(sizes) - sizes
    median = np.full(len(sizes), np.nan)
    some = np.flatnonzero(sizes)
    median[some] = (ascending[first[some] + (sizes[some] - 1) // 2] + ascending[first[some] + sizes[some] // 2]) / 2.0
    return np.asarray(median[groups], dtype=np.float64)


def recent_mean(steps: tuple[Floats, Floats], lately: Bools, least: float) -> tuple[Floats, Floats]:
    """Mean and number of a histogram's observations in the columns `lately`, from its `histogram_steps`. (engines,) both.

    The mean is NaN where fewer than `least` observations make it up.
    """
    counts, sums = (np.where(np.isnan(part[:, lately]), 0.0, part[:, lately]).sum(axis=1) for part in steps)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(counts >= max(least, 1.0), sums / counts, np.nan), counts


def rising(value: Floats, low: float, high: float) -> Floats:
    """Severity: 0.3 at `low`, 1 at `high`, straight between, kept inside."""
    with np.errstate(invalid="ignore"):
        return np.clip(0.3 + 0.7 * (value - low) / (high - low), 0.0, 1.0)
