"""The arithmetic that detectors share: runs that last until now, blocks of the past, and comparison with true peers.

Everything is vectorised over engines (rows); NaN is missing and never counts as zero. Does not belong here: any
threshold, anything that knows a symptom.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from serving.telemetry import counters
from serving.telemetry.window import Window

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

FEW_ROWS = 256  # up to here summing all blocks at once is faster than one after the other


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

    Unknown samples neither break nor lengthen a run. `at` ascends along each row.
    """
    run = Run(np.full(len(condition), np.nan), np.zeros(len(condition)))
    newest = counters.newest_present(condition)
    rows = np.flatnonzero(newest >= 0)
    rows = rows[condition[rows, newest[rows]] == 1]  # all others hold nothing, and mostly nearly all are others
    if len(rows):
        said, taken = (condition, at) if len(rows) == len(condition) else (condition[rows], at[rows])
        false_at = np.where(said == 0, taken, -np.inf).max(axis=1)
        inside = (said == 1) & (taken > false_at[:, None])
        first = np.where(inside, taken, np.inf).min(axis=1)
        holds = np.isfinite(first)
        run.since[rows] = np.where(holds, first, np.nan)
        run.held[rows] = np.where(holds, taken[np.arange(len(rows)), newest[rows]] - np.where(holds, first, 0.0), 0.0)
    return run


def lasting(condition: Floats, at: Floats) -> Floats:
    """For how many seconds `condition` (1, 0 or NaN) has held at each sample taken at `at`: 0 where it does not.

    Shapes (engines, times). NaN where unknown; unknown samples neither break nor lengthen a run.
    """
    held = condition * 0.0
    rows = np.flatnonzero((condition == 1).any(axis=1))
    if not len(rows):
        return held
    said, taken = (condition, at) if len(rows) == len(condition) else (condition[rows], at[rows])
    true = said == 1
    begins = true.copy(order="K")
    begins[:, 1:] &= counters.last_present(said)[:, :-1] != 1
    begun = np.where(begins, taken, -np.inf)
    np.maximum.accumulate(begun, axis=1, out=begun)
    with np.errstate(invalid="ignore"):
        held[rows] = np.where(true, taken - begun, said * 0.0)
    return held


def condition(values: Floats, true: Bools) -> Floats:
    """`true` as 1 and 0, NaN where `values` is missing."""
    known = true.astype(np.float64)
    gaps = counters.rows_with_gaps(values)
    if len(gaps):
        known[gaps] = np.where(np.isnan(values[gaps]), np.nan, known[gaps])
    return known


def row_mean(values: Floats) -> Floats:
    """The mean of each row's present values; NaN where there are none."""
    total, count = _sums(values)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(count > 0, total / count, np.nan)


def _sums(values: Floats) -> tuple[Floats, Floats]:
    """The sum of each row's present values, and how many there are."""
    total, count = np.asarray(values.sum(axis=1)), np.full(len(values), float(values.shape[1]))
    rows = np.flatnonzero(np.isnan(total))
    if len(rows):
        some = values if len(rows) == len(values) else values[rows]
        missing = np.isnan(some)
        total[rows] = np.where(missing, 0.0, some).sum(axis=1)
        count[rows] -= missing.sum(axis=1)
    return total, count


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
    """When each present sample of `signal` was taken, (engines, times), read-only; NaN where missing."""
    return window.once(("sample times", signal), lambda: _sample_times(window, signal))


def _sample_times(window: Window, signal: str) -> Floats:
    matrix = window.signals.get(signal)
    if matrix is None:
        return np.full((window.rows, len(window.times)), np.nan)
    gaps = counters.rows_with_gaps(matrix.values)
    if not len(gaps):
        return matrix.sampled_at
    taken = matrix.sampled_at.copy(order="K")
    taken[gaps] = np.where(np.isnan(matrix.values[gaps]), np.nan, taken[gaps])
    taken.flags.writeable = False
    return taken


def histogram_steps(window: Window, histogram: str) -> tuple[Floats, Floats]:
    """New observations and their summed value at each sample: two arrays (engines, times), NaN where unknown."""
    return window.histogram_increments(histogram)


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
    if count and len(values) <= FEW_ROWS:
        return _blocks_at_once(values[:, edges[0] : edges[-1]], edges - edges[0])
    shape = (values.shape[0], len(edges) - 1)
    totals, counted = np.empty(shape, order="F"), np.empty(shape, order="F")
    for block, (begin, end) in enumerate(pairwise(edges)):
        totals[:, block], counted[:, block] = _sums(values[:, begin:end])
    return totals, counted


def _blocks_at_once(values: Floats, edges: NDArray[np.intp]) -> tuple[Floats, Floats]:
    """The same by one sum over all blocks: several times as fast for few rows, where the calls are what costs."""
    missing = np.isnan(values)
    padded = np.zeros((len(values), values.shape[1] + 1))  # for a last block without samples
    np.copyto(padded[:, :-1], values, where=~missing)
    totals = np.add.reduceat(padded, edges[:-1], axis=1)
    padded[:, :-1] = ~missing
    counted = np.add.reduceat(padded, edges[:-1], axis=1)
    empty = np.diff(edges) == 0
    totals[:, empty] = counted[:, empty] = 0.0
    return totals, counted


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
    median = (ordered.of_others((ordered.others - 1) // 2) + ordered.of_others(ordered.others // 2)) / 2.0
    return np.where(ordered.others > 0, median, np.nan), ordered.others


def in_small_groups(groups: NDArray[np.intp], least: int) -> NDArray[np.intp]:
    """The rows that have other members in their group, and fewer than `least`: too few to say what is usual."""
    size = np.bincount(groups)[groups] if len(groups) else groups
    return np.flatnonzero((size > 1) & (size <= least))


def others_largest(values: Floats, groups: NDArray[np.intp]) -> Floats:
    """For each engine the largest value among the *other* members of its group; NaN where none has one. (engines,)."""
    ordered = _Ordered(values, groups)
    return np.where(ordered.others > 0, ordered.of_others(ordered.others - 1), np.nan)


class _Ordered:
    """Values in ascending order inside each group, for all groups at once. NaN comes last in its group.

    `others` (engines,) is how many other members of an engine's group have a value.
    """

    def __init__(self, values: Floats, groups: NDArray[np.intp]) -> None:
        order, edges = _by_group(groups)
        self._values, self._known = values, ~np.isnan(values)
        self._sorted = values[order]
        for begin, end in pairwise(edges):
            self._sorted[begin:end].sort()
        known = np.bincount(groups, weights=self._known, minlength=len(edges) - 1).astype(np.intp)
        self._first = edges[:-1][groups]
        self.others = np.maximum(known[groups] - self._known, 0)

    def of_others(self, place: NDArray[np.intp]) -> Floats:
        """The value at `place` (0 is the least) of the other members of each engine's group. (engines,)."""
        at = self._first + np.maximum(place, 0)
        found = self._sorted[np.minimum(at, len(self._sorted) - 1)]
        after = self._sorted[np.minimum(at + 1, len(self._sorted) - 1)]
        # Without itself, every member from its own value on moves one place down; among equals it does not matter which.
        return np.asarray(np.where(self._known & (self._values <= found), after, found))


def _by_group(groups: NDArray[np.intp]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The rows ordered by group, and where each group begins in that order, with the end of the last."""
    order = np.argsort(groups.astype(np.min_scalar_type(len(groups))), kind="stable")
    sizes = np.bincount(groups, minlength=int(groups.max(initial=-1)) + 1)
    return order, np.concatenate(([0], np.cumsum(sizes)))


def pooled_scale(logs: Floats, groups: NDArray[np.intp], floor: float) -> Floats:
    """The scale of each group, pooled over its engines and all blocks of `logs` (engines, blocks). Shape (engines,).

    1.4826 times the median absolute deviation from the group's median, not below `floor`. Pooling over ticks keeps the
    scale of small groups from collapsing by chance.
    """
    spread = np.abs(logs - _group_median(logs, groups)[:, None])
    return np.fmax(floor, 1.4826 * _group_median(spread, groups))


def _group_median(values: Floats, groups: NDArray[np.intp]) -> Floats:
    """The median of all present values of each group's rows, given back for each row."""
    order, edges = _by_group(groups)
    median = np.full(len(edges) - 1, np.nan)
    for group, (begin, end) in enumerate(pairwise(edges)):
        members = values[order[begin:end]]
        known = members[~np.isnan(members)]
        if len(known):
            middle = ((len(known) - 1) // 2, len(known) // 2)
            median[group] = np.partition(known, middle)[list(middle)].mean()
    return np.asarray(median[groups], dtype=np.float64)


def recent_mean(steps: tuple[Floats, Floats], lately: Bools, least: float) -> tuple[Floats, Floats]:
    """Mean and number of a histogram's observations in the columns `lately`, from its `histogram_steps`. (engines,) both.

    The mean is NaN where fewer than `least` observations make it up.
    """
    columns = np.flatnonzero(lately)
    span = slice(columns[0], columns[-1] + 1) if len(columns) and columns[-1] - columns[0] < len(columns) else lately
    counts, sums = (_sums(part[:, span])[0] for part in steps)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(counts >= max(least, 1.0), sums / counts, np.nan), counts


def rising(value: Floats, low: float, high: float) -> Floats:
    """Severity: 0.3 at `low`, 1 at `high`, straight between, kept inside."""
    with np.errstate(invalid="ignore"):
        return np.clip(0.3 + 0.7 * (value - low) / (high - low), 0.0, 1.0)


def block_minima(values: Floats, times: Floats, now: float, seconds: float) -> Floats:
    """The least present sample of each block, (engines, blocks), blocks as in `blocks`; NaN where a block has none."""
    if len(times) == 0:
        return np.zeros((values.shape[0], 0))
    first = times[0] - (times[1] - times[0] if len(times) > 1 else 0.0)
    count = int((now - first) / seconds + 1e-6)
    edges = np.searchsorted(times, now - seconds * np.arange(count, -1, -1) + 1e-6)
    least = [np.fmin.reduce(values[:, begin:end], axis=1, initial=np.inf) for begin, end in pairwise(edges)]
    table = np.stack(least, axis=1) if least else np.zeros((values.shape[0], 0))
    return np.where(np.isfinite(table), table, np.nan)


def others_share(found: Bools, judged: Bools, groups: NDArray[np.intp]) -> Floats:
    """The share of the *other* judged members of each engine's group that are found too; NaN without any. (engines,)."""
    size = int(groups.max(initial=-1)) + 1
    shown = np.bincount(groups, weights=found & judged, minlength=size)[groups] - (found & judged)
    asked = np.bincount(groups, weights=judged, minlength=size)[groups] - judged
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(asked > 0, shown / asked, np.nan)
