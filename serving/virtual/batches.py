"""The requests in the batches of all engines, as one table: a column a request, in the order in which they were admitted."""

import numpy as np
from numpy.typing import NDArray

from serving.virtual.queues import Requests

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]
Bools = NDArray[np.bool_]

_PROMPT, _UNREAD, _LEFT, _MADE, _ARRIVED, _BEGAN, _FIRST = range(7)


class Batches:
    """`rows` is the engine of each request; the other columns are views that may be written to.

    Tokens: `prompt`, `unread` of it, `made`, and `left` to make. Unix seconds: `arrived`, `began` to be read, `first`, NaN
    until its first token. What it costs grows with the requests that are inside, not with the places there are.
    """

    def __init__(self) -> None:
        self.rows: Rows = np.zeros(0, dtype=np.intp)
        self._table = np.zeros((7, 0))

    @property
    def prompt(self) -> Floats:
        """Tokens asked with."""
        return self._column(_PROMPT)

    @property
    def unread(self) -> Floats:
        """Tokens of the prompt that are still to be read."""
        return self._column(_UNREAD)

    @property
    def left(self) -> Floats:
        """Tokens still to make."""
        return self._column(_LEFT)

    @property
    def made(self) -> Floats:
        """Tokens made."""
        return self._column(_MADE)

    @property
    def arrived(self) -> Floats:
        """When it came."""
        return self._column(_ARRIVED)

    @property
    def began(self) -> Floats:
        """When it began to be read."""
        return self._column(_BEGAN)

    @property
    def first(self) -> Floats:
        """When it got its first token; NaN before."""
        return self._column(_FIRST)

    def _column(self, number: int) -> Floats:
        return np.asarray(self._table[number])

    def add(self, admitted: Requests, left: Floats, began: Floats) -> None:
        """Requests that are admitted after all others: `left` tokens to make, reading from `began` on."""
        nothing = np.zeros(len(admitted.rows))
        new = (admitted.prompt, admitted.prompt, left, nothing, admitted.arrived, began, nothing + np.nan)
        self.rows = np.concatenate([self.rows, admitted.rows])
        self._table = np.concatenate([self._table, np.stack(new)], axis=1)

    def keep(self, some: Bools) -> None:
        """Let go of all others."""
        at = some.nonzero()[0]
        self.rows = self.rows[at]
        self._table = self._table.take(at, axis=1)

    def inside(self, engines: int) -> Floats:
        """How many each of so many engines has."""
        return np.bincount(self.rows, minlength=engines).astype(np.float64)

    def total(self, values: Floats | Bools, engines: int) -> Floats:
        """The sum of one value a request for each of so many engines."""
        return np.asarray(np.bincount(self.rows, values, minlength=engines), dtype=np.float64)  # whole numbers where empty

    def context(self, block: Floats) -> Floats:
        """Tokens that each holds in the KV cache, in whole blocks of `block` tokens, (engines,)."""
        size = block[self.rows]
        return np.asarray(np.ceil((self.prompt - self.unread + self.made) / size) * size)

    def latest(self, engines: int) -> Rows:
        """The place of the request that each engine admitted last; -1 where it has none."""
        last = np.full(engines, -1, dtype=np.intp)
        last[self.rows] = np.arange(len(self.rows))  # of equal rows the last one is written
        return last

    def find(self, rows: Rows, arrived: Floats) -> Bools:
        """Which of them are on one of `rows` and came at exactly the moment beside it in `arrived`."""
        found = np.isin(self.arrived, arrived)
        wanted = set(zip(rows.tolist(), arrived.tolist(), strict=True))
        for at in found.nonzero()[0].tolist():
            found[at] = (int(self.rows[at]), float(self.arrived[at])) in wanted
        return found
