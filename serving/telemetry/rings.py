"""Rings: the newest ticks of one array, kept so that each window over them is one contiguous, frozen view.

A ring grows downwards through a block of memory and moves to a fresh block when it reaches the end. Nothing that a
window can see is ever written again, so a window stays what it was without any copying per tick.
"""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class Ring:
    """The last `capacity` ticks of an array of shape (rows, *tail), held time-major.

    `spare` ticks lie between two moves to fresh memory: a move costs a copy of `capacity` ticks.
    """

    def __init__(self, rows: int, capacity: int, *, tail: tuple[int, ...] = (), length: int = 0, spare: int = 0) -> None:
        self._capacity = capacity
        self._spare = spare or max(capacity // 2, 8)
        # The rows lie side by side in memory, also under a tail (a histogram's buckets), for they are what is worked over.
        self._data = np.moveaxis(np.empty((capacity + self._spare, *tail, rows)), -1, 1)
        self._end = min(length, capacity)
        self._data[: self._end] = np.nan

    def push(self) -> Floats:
        """A new tick of missing values, shape (rows, *tail), for the caller to fill before the next window is taken."""
        if self._end == len(self._data):
            self._move()
        tick: Floats = self._data[self._end]
        tick[...] = np.nan
        self._end += 1
        return tick

    def last(self) -> Floats:
        """The newest tick, writable, shape (rows, *tail)."""
        newest: Floats = self._data[self._end - 1]
        return newest

    def view(self, count: int) -> Floats:
        """The last `count` ticks, (rows, count, *tail), read-only. The ring must hold that many."""
        seen: Floats = self._data[self._end - count : self._end].swapaxes(0, 1)
        seen.flags.writeable = False
        return seen

    def copy(self) -> "Ring":
        """An independent ring with the same ticks."""
        return self.replaced(self._data[: self._end].copy())

    def with_rows(self, origins: NDArray[np.intp]) -> "Ring":
        """A ring whose row i holds this ring's row `origins[i]`, or nothing but missing values where that is negative."""
        held = self._data[: self._end]
        moved = np.full((self._end, len(origins), *held.shape[2:]), np.nan)
        kept = origins >= 0
        moved[:, kept] = held[:, origins[kept]]
        return self.replaced(moved)

    def replaced(self, ticks: Floats) -> "Ring":
        """A ring of the same size that holds `ticks`, (ticks, rows, *tail)."""
        ring = Ring(ticks.shape[1], self._capacity, tail=ticks.shape[2:], spare=self._spare)
        ring._end = min(len(ticks), self._capacity)
        ring._data[: ring._end] = ticks[len(ticks) - ring._end :]
        return ring

    def _move(self) -> None:
        kept = self._capacity - 1
        fresh = np.empty_like(self._data)
        fresh[:kept] = self._data[self._end - kept : self._end]
        self._data, self._end = fresh, kept
