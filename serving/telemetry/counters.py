"""Reset-aware arithmetic on counters and histograms, vectorised over entities.

A counter may restart at zero when its process restarts. An increase between two samples is the difference while the
process start stays the same and the value does not fall; otherwise the later value itself, which is what the new
process counted since it began (the rule of Prometheus' increase(), without its extrapolation).
"""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_ANOTHER_PROCESS = 1.0  # seconds: start times come rounded to 10 ms; one second is a restart
_FEW = 64  # rows: up to here an index of what is carried costs less than a turn for each column


def last_present(values: Floats) -> Floats:
    """Carry the last present value of each row forward over NaN. Shape (rows, times) in and out.

    Where nothing is missing, `values` itself is given back.
    """
    gaps = rows_with_gaps(values)
    if not len(gaps):
        return values
    filled = values.copy(order="K")
    if len(gaps) < _FEW or len(gaps) < len(values) // 2:
        filled[gaps] = _carried(values[gaps])
        return filled
    missing = np.isnan(values)  # column by column: many rows at once, and no index as large as the values
    for column in range(1, values.shape[1]):
        np.copyto(filled[:, column], filled[:, column - 1], where=missing[:, column])
    return filled


def rows_with_gaps(values: Floats) -> NDArray[np.intp]:
    """The rows in which any value is missing."""
    if values.shape[1] == 0:
        return np.empty(0, dtype=np.intp)
    return np.flatnonzero(np.isnan(values.min(axis=1)))  # NaN is what a minimum over it gives


def newest_present(values: Floats) -> NDArray[np.intp]:
    """The column of each row's last present value, -1 where a row has none. Shape (rows, times) in, (rows,) out."""
    columns = values.shape[1]
    newest = np.full(len(values), columns - 1, dtype=np.intp)
    if columns == 0:
        return newest
    older = np.flatnonzero(np.isnan(values[:, -1]))  # usually few: most rows end in a present value
    backwards = ~np.isnan(values[older, ::-1])
    newest[older] = np.where(backwards.any(axis=1), columns - 1 - backwards.argmax(axis=1), -1)
    return newest


def newest_value(values: Floats) -> Floats:
    """Each row's last present value, NaN where a row has none. Shape (rows, times) in, (rows,) out."""
    if values.shape[1] == 0:
        return np.full(len(values), np.nan)
    return np.asarray(values[np.arange(len(values)), newest_present(values)])


def increments(values: Floats, starts: Floats | None = None) -> Floats:
    """What a counter grew by at each sample since the sample before it. Shape (rows, times) in and out.

    `starts` are the process start times (same shape); a change of start is a reset even where the value did not fall.
    NaN where a sample or its predecessor is missing. The first present sample of a row has no predecessor: NaN.
    """
    grown = np.empty_like(values)
    grown[:, :1] = np.nan
    if values.shape[1] < 2:  # noqa: PLR2004 - one sample shows no change
        return grown
    np.subtract(values[:, 1:], values[:, :-1], out=grown[:, 1:])
    uneven = ~(grown[:, 1:].min(axis=1) >= 0)  # something is missing, or something fell
    if starts is not None:
        uneven[restarted(starts)] = True
    rows = np.flatnonzero(uneven)
    if len(rows):
        grown[rows] = _uneven_increments(values[rows], None if starts is None else starts[rows])
    return grown


def increase(values: Floats, starts: Floats | None = None) -> Floats:
    """What a counter grew by over all samples given. Shape (rows,); NaN where fewer than two samples are present."""
    if values.shape[1] < 2:  # noqa: PLR2004 - one sample shows no change
        return np.full(len(values), np.nan)
    grown = np.asarray(values[:, -1] - values[:, 0])  # the sum of all increments where nothing is missing and nothing fell
    uneven = ~((values[:, 1:] - values[:, :-1]).min(axis=1) >= 0)
    if starts is not None:
        uneven[restarted(starts)] = True
    rows = np.flatnonzero(uneven)
    if len(rows):
        steps = _uneven_increments(values[rows], None if starts is None else starts[rows])
        seen = ~np.isnan(steps)
        grown[rows] = np.where(seen.any(axis=1), np.nansum(steps, axis=1), np.nan)
    return grown


def restarted(starts: Floats) -> NDArray[np.intp]:
    """The rows in which the process start changes: the only ones whose counters it can reset."""
    if starts.shape[1] == 0:
        return np.empty(0, dtype=np.intp)
    least, most = np.fmin.reduce(starts, axis=1), np.fmax.reduce(starts, axis=1)
    return np.flatnonzero(most - least > _ANOTHER_PROCESS)


def quantile(bounds: Floats, counts: Floats, q: float) -> Floats:
    """The q-quantile of each row's histogram by linear interpolation inside its bucket, as Prometheus does.

    `bounds` (buckets,) are upper bounds, ascending, the last one +inf. `counts` (rows, buckets) are cumulative. A
    quantile in the last bucket is reported as the highest finite bound, one in a first bucket that ends at or below zero
    as that bound. NaN where a row holds no observation, or no bucket is finite.
    """
    if not 0.0 <= q <= 1.0:
        raise ValueError(f"a quantile lies between 0 and 1, not at {q}")
    counts = np.maximum.accumulate(np.nan_to_num(counts), axis=1)
    total = counts[:, -1]
    rank = q * total
    bucket = np.minimum((counts < rank[:, None]).sum(axis=1), len(bounds) - 1)
    lower = np.where(bucket > 0, bounds[np.maximum(bucket - 1, 0)], 0.0)
    upper = bounds[bucket]
    below = np.where(bucket > 0, np.take_along_axis(counts, np.maximum(bucket - 1, 0)[:, None], 1)[:, 0], 0.0)
    inside = np.take_along_axis(counts, bucket[:, None], 1)[:, 0] - below
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.where(inside > 0, (rank - below) / inside, 0.0)
        value = np.where(np.isinf(upper), lower, lower + (upper - lower) * share)
    value = np.where((bucket == 0) & (upper <= 0), upper, value)
    return np.where((total > 0) & (len(bounds) > 1), value, np.nan)


def rebucket(bounds: Floats, counts: Floats, wanted: Floats) -> Floats:
    """Cumulative `counts` (..., buckets) over `bounds`, said over the bounds `wanted` instead: (..., wanted buckets).

    A bound that the histogram lacks gets the count that linear interpolation inside its bucket gives, so that quantiles
    stay what they were and counters still never fall. Both bounds ascend and end in +inf.
    """
    if np.array_equal(bounds, wanted):
        return counts
    upper = np.searchsorted(bounds, wanted)
    lower = np.maximum(upper - 1, 0)
    base = np.where(upper > 0, bounds[lower], 0.0)
    below = np.where(upper > 0, counts[..., lower], 0.0)
    with np.errstate(invalid="ignore"):
        share = np.where(np.isinf(bounds[upper]), 0.0, np.clip((wanted - base) / (bounds[upper] - base), 0.0, 1.0))
        share = np.where(wanted == bounds[upper], 1.0, share)
        between: Floats = below + (counts[..., upper] - below) * share
    return np.where(np.isnan(counts[..., -1:]), np.nan, between)


def _carried(values: Floats) -> Floats:
    index = np.where(np.isnan(values), -1, np.arange(values.shape[1]))
    np.maximum.accumulate(index, axis=1, out=index)
    filled = np.take_along_axis(values, np.maximum(index, 0), axis=1)
    return np.where(index >= 0, filled, np.nan)


def _uneven_increments(values: Floats, starts: Floats | None) -> Floats:
    """The increments of rows in which samples are missing, values fall or the process starts anew."""
    grown = np.full_like(values, np.nan)
    grown[:, 1:] = values[:, 1:] - last_present(values)[:, :-1]
    reset = grown < 0
    if starts is not None:
        # each sample belongs to the process that was known to run when it was taken
        starts = np.where(np.isnan(values), np.nan, last_present(starts))
        reset[:, 1:] |= (starts[:, 1:] - last_present(starts)[:, :-1]) > _ANOTHER_PROCESS
    return np.where(reset, values, grown)
