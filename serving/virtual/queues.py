"""The queues before the batches, as one ring an engine."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]
Bools = NDArray[np.bool_]

LONGEST = 512  # of a queue; what comes on top is rejected, as --max-num-queued-reqs does


@dataclass(frozen=True, slots=True)
class Requests:
    """Requests with the engine each is for: when it came, prompt tokens, tokens to generate. Equal lengths."""

    rows: Rows
    arrived: Floats
    prompt: Floats
    output: Floats

    def part(self, some: Bools | slice) -> "Requests":
        """Those of which `some` is true, or those of a slice."""
        return Requests(self.rows[some], self.arrived[some], self.prompt[some], self.output[some])


class Queues:
    """First come, first served."""

    def __init__(self, rows: int) -> None:
        self.size = np.zeros(rows, dtype=np.intp)
        self._head = np.zeros(rows, dtype=np.intp)
        self._kept = {name: np.zeros((rows, LONGEST)) for name in ("arrived", "prompt", "output")}

    def push(self, new: Requests) -> Rows:
        """Append; returns the rows of those for which there was no room."""
        order = np.argsort(new.rows, kind="stable")
        rows = new.rows[order]
        rank = np.arange(len(rows)) - np.searchsorted(rows, rows)
        fits = self.size[rows] + rank < LONGEST
        kept, rank, order = rows[fits], rank[fits], order[fits]
        at = (self._head[kept] + self.size[kept] + rank) % LONGEST
        for name, ring in self._kept.items():
            ring[kept, at] = getattr(new, name)[order]
        np.add.at(self.size, kept, 1)
        return rows[~fits]

    def push_front(self, again: Requests) -> None:
        """Put back at the head; at most one a row. A full queue lets its last one go."""
        rows = again.rows
        self._head[rows] = (self._head[rows] - 1) % LONGEST
        for name, ring in self._kept.items():
            ring[rows, self._head[rows]] = getattr(again, name)
        self.size[rows] = np.minimum(self.size[rows] + 1, LONGEST)

    def heads(self, rows: Rows) -> Requests:
        """The first of each of `rows`, none of which is empty."""
        at = self._head[rows]
        return Requests(rows, *(self._kept[name][rows, at] for name in ("arrived", "prompt", "output")))

    def all_of(self, rows: Rows) -> Requests:
        """Everything in the queues of `rows`, which are in ascending order; each queue in its order."""
        many = self.size[rows]
        of = np.repeat(rows, many)
        place = np.arange(len(of)) - np.repeat(np.cumsum(many) - many, many)
        at = (self._head[of] + place) % LONGEST
        return Requests(of, *(self._kept[name][of, at] for name in ("arrived", "prompt", "output")))

    def pop(self, rows: Rows) -> None:
        """Take the first of each of `rows` away."""
        self._head[rows] = (self._head[rows] + 1) % LONGEST
        self.size[rows] -= 1

    def clear(self, rows: Rows) -> None:
        """Empty the queues of `rows`."""
        self.size[rows] = 0

    def drop(self, rows: Rows, arrived: Floats) -> Rows:
        """Take away those of `rows` that came at exactly `arrived`, wherever they stand; a row for each that was there."""
        gone: list[int] = []
        for row in np.unique(rows[self.size[rows] > 0]).tolist():
            at = (self._head[row] + np.arange(self.size[row])) % LONGEST
            keeps = ~np.isin(self._kept["arrived"][row, at], arrived[rows == row])
            gone.extend([row] * int((~keeps).sum()))
            for ring in self._kept.values():
                ring[row, at[: int(keeps.sum())]] = ring[row, at[keeps]]
            self.size[row] = int(keeps.sum())
        return np.array(gone, dtype=np.intp)

    def drop_before(self, before: float) -> Rows:
        """Take away those that came before `before`, from the head on; a row for each."""
        gone: list[Rows] = []
        while True:
            rows = np.flatnonzero(self.size > 0)
            rows = rows[self._kept["arrived"][rows, self._head[rows]] < before] if len(rows) else rows
            if len(rows) == 0:
                return np.concatenate(gone) if gone else rows
            self.pop(rows)
            gone.append(rows)
