"""Spans of time of many things: how long at least one of a thing's spans lasts."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]


def covered(rows: Rows, starts: Floats, ends: Floats, count: int) -> Floats:
    """The length of the union of the intervals [start, end) of each row, (count,). Empty ones add nothing."""
    if len(rows) == 0:
        return np.zeros(count)
    apart = rows * (float(max(ends.max(), starts.max())) + 1.0)  # so that intervals of different rows never meet
    order = np.argsort(starts + apart)
    first = (starts + apart)[order]
    last = np.maximum.accumulate(np.maximum((ends + apart)[order], first))
    before = np.concatenate([first[:1], last[:-1]])
    return np.asarray(
        np.bincount(rows[order], np.maximum(last - np.maximum(first, before), 0.0), minlength=count), dtype=float
    )
