"""Regular pauses of engines, as columns: in the first `length` of every `every` seconds from `since` on nothing moves."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]


class Pauses:
    """An engine without pauses has `length` 0."""

    def __init__(self, rows: int) -> None:
        self.length = np.zeros(rows)
        self.every = np.ones(rows)
        self.since = np.zeros(rows)

    def within(self, now: float, dt: float) -> Floats:
        """Seconds of pause in the tick that begins at `now`; never more than the tick, whatever was rounded."""
        return np.clip(self._until(now + dt) - self._until(now), 0.0, dt)

    def ended(self, now: float, dt: float) -> tuple[Floats, Floats]:
        """How many pauses end in the tick that begins at `now`, and how long one is."""
        last = self.since + self.length
        count = np.floor((now + dt - last) / self.every) - np.floor((now - last) / self.every)
        return np.where((self.length > 0) & (now >= self.since), count, 0.0), self.length

    def end(self, rows: Rows, start: Floats, work: Floats) -> Floats:
        """When work of `work` seconds begun at `start` ends on each of `rows`."""
        length, every, since = self.length[rows], self.every[rows], self.since[rows]
        offset = np.mod(start - since, every)
        paused = (length > 0) & (start >= since)
        begins = np.where(paused & (offset < length), start - offset + length, start)
        room = every - np.maximum(offset, length)
        more = np.where(work > room, np.ceil((work - room) / np.maximum(every - length, 1e-9)), 0.0)
        return np.where(paused, begins + work + more * length, start + work)

    def _until(self, moment: float) -> Floats:
        elapsed = np.maximum(moment - self.since, 0.0)
        whole = np.floor(elapsed / self.every)
        return np.where(self.length > 0, whole * self.length + np.minimum(elapsed - whole * self.every, self.length), 0.0)
