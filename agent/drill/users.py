"""How users were served lately, from the front door's growing counts. Pure but for what it remembers."""

from collections import deque
from dataclasses import dataclass

import numpy as np

from agent.drill.fleet import UserCounts
from runbooks.drill_conditions import USERS_SPAN_S
from serving.telemetry import counters

OK = "ok"
_FAILED = ("timeout", "connection", "http_5")
TAIL = 0.95


@dataclass(frozen=True, slots=True)
class Served:
    """Over a span: answers, the share that was whole, and the seconds within which 95 % of first bytes came. NaN: none."""

    requests: float
    success: float
    ttft: float


def failed(counts: UserCounts) -> float:
    """Requests that failed users; what clients did themselves (left, asked for nonsense) is not among them."""
    return sum(count for result, count in counts.results.items() if result.startswith(_FAILED))


def between(before: UserCounts, after: UserCounts) -> Served:
    """How users were served between two looks. A door that restarted in between has counted from zero again."""
    ok, bad = (_grown(before, after, each) for each in ("ok", "failed"))
    total = ok + bad
    grown = np.asarray(after.first_bytes, dtype=np.float64)
    if before.bounds == after.bounds and before.first_bytes and grown[-1] >= before.first_bytes[-1]:
        grown = grown - np.asarray(before.first_bytes, dtype=np.float64)
    known = len(grown) > 0 and grown[-1] > 0
    ttft = float(counters.quantile(np.asarray(after.bounds), grown[np.newaxis, :], TAIL)[0]) if known else np.nan
    return Served(total, ok / total if total > 0 else np.nan, ttft)


def _grown(before: UserCounts, after: UserCounts, what: str) -> float:
    old, new = (failed(c) if what == "failed" else c.results.get(OK, 0.0) for c in (before, after))
    return new - old if new >= old else new


class Users:
    """Remembers enough looks to tell how users were served over the last USERS_SPAN_S seconds."""

    def __init__(self) -> None:
        self._looks: deque[tuple[float, UserCounts]] = deque()

    def add(self, now: float, counts: UserCounts) -> None:
        """One more look."""
        self._looks.append((now, counts))
        while len(self._looks) > 2 and self._looks[1][0] <= now - USERS_SPAN_S:  # noqa: PLR2004 - the ends of a span
            self._looks.popleft()

    def lately(self) -> Served:
        """Between the oldest look of the span and the newest; nothing before there are two."""
        if len(self._looks) < 2:  # noqa: PLR2004 - the ends of a span
            return Served(0.0, np.nan, np.nan)
        return between(self._looks[0][1], self._looks[-1][1])


class Failures:
    """User requests that failed since it was made, also across a restart of the door."""

    def __init__(self, counts: UserCounts) -> None:
        self._last = failed(counts)
        self.total = 0.0

    def add(self, counts: UserCounts) -> None:
        """One more look."""
        now = failed(counts)
        self.total += now - self._last if now >= self._last else now
        self._last = now
