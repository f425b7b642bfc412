"""Spans of time in rows: how long at least one of a row's spans lasts."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def covered(starts: Floats, ends: Floats) -> Floats:
    """The length of the union of each row's intervals [start, end): (rows, intervals) -> (rows,). Empty ones add nothing."""
    if starts.shape[1] == 0:
        return np.zeros(len(starts))
    order = np.argsort(starts, axis=1)
    first = np.take_along_axis(starts, order, axis=1)
    last = np.maximum.accumulate(np.maximum(np.take_along_axis(ends, order, axis=1), first), axis=1)
    before = np.concatenate([first[:, :1], last[:, :-1]], axis=1)
    return np.asarray(np.maximum(last - np.maximum(first, before), 0.0).sum(axis=1))
