"""The front door as columns: who gets which request, orders to drain, and what it counts.

It chooses as serving.gateway does: of two engines drawn by weight the one with fewer requests in flight; one that refuses
connections is left out after some failures and tried again later; a request that found nobody listening goes to another.
"""

import numpy as np
from numpy.typing import NDArray

from serving.gateway.orders import Standing
from serving.virtual.engines import Answers
from serving.virtual.measures import DOOR_COUNTERS, DOOR_HISTOGRAMS, Measures
from serving.virtual.plan import FleetPlan
from serving.virtual.queues import Requests
from serving.virtual.users import Arrivals

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]
Bools = NDArray[np.bool_]

TRIES = 3
EJECT_AFTER = 3.0  # failures in a row
TRIAL_S = 10.0
OWN_S = 0.002  # what the door itself adds to a first byte


class Door:
    """One door before all models. `blind`: engines it does not know; `most_inside`: requests it lets into each."""

    def __init__(self, plan: FleetPlan, rng: np.random.Generator) -> None:
        rows = len(plan.engine_names)
        self.measures = Measures(rows, DOOR_COUNTERS, DOOR_HISTOGRAMS)
        self.standing = [Standing(None, 1.0) for _ in range(rows)]
        self.weight = np.ones(rows)
        self.drained = np.zeros(rows, dtype=np.bool_)
        self.ejected = np.zeros(rows, dtype=np.bool_)
        self.blind = np.zeros(rows, dtype=np.bool_)
        self.most_inside = np.inf
        self.failed = 0.0  # requests that users saw fail
        self.answered = 0.0
        self.refreshed = 0
        self._failures = np.zeros(rows)
        self._trial_at = np.zeros(rows)
        self._members = [np.flatnonzero(plan.engine_model == number) for number in range(len(plan.models))]
        self._rng = rng
        self._outside: list[Arrivals] = []

    def order(self, row: int, standing: Standing) -> None:
        """Carry out what an order made of an engine's standing."""
        self.standing[row] = standing
        self.drained[row] = standing.drained_by is not None
        self.weight[row] = standing.weight

    def refresh(self) -> None:
        """Read the engines anew: what was forgotten is known again."""
        self.blind[:] = False
        self.most_inside = np.inf
        self.refreshed += 1

    def route(self, now: float, new: Arrivals, in_flight: Floats, listening: Bools) -> Requests:
        """Send each request to an engine; those for whom nobody listens fail."""
        self._try_again(now, listening)
        load = in_flight.copy()
        sent: list[Requests] = []
        for number, members in enumerate(self._members):
            mine = new.model == number
            if mine.any():
                requests = Requests(
                    np.zeros(int(mine.sum()), dtype=np.intp), new.arrived[mine], new.prompt[mine], new.output[mine]
                )
                sent.append(self._send(now, members, requests, load, listening))
        return _joined(sent)

    def take(self, answers: Answers) -> None:
        """Answers that came whole."""
        rows = answers.rows
        self.measures.count("door.finished.ok", rows)
        self.measures.observe("door.ttft", rows, answers.first - answers.arrived + OWN_S)
        self.measures.observe("door.e2e", rows, answers.ended - answers.arrived + OWN_S)
        self.answered += len(rows)
        self._failures[rows] = 0.0

    def straight(self, requests: Requests, refused: Bools, listening: Bools) -> Requests:
        """Send each request to the engine it names, with no choice and no second try; returns those that reach a core.

        `refused`: those that the engine's API answers as the client's mistake.
        """
        there = listening[requests.rows]
        self.measures.count("door.started", requests.rows)
        self.measures.count("door.finished.connection", requests.rows[~there])
        self.measures.count("door.finished.http_4xx", requests.rows[there & refused])
        self.failed += float((~there).sum())
        return requests.part(there & ~refused)

    def gave_up(self, rows: Rows) -> None:
        """Requests whose time limit passed."""
        self.measures.count("door.finished.timeout", rows)
        self.failed += len(rows)

    def lost(self, rows: Rows, counts: Floats) -> None:
        """Connections that broke: users saw them fail."""
        self.measures.counters["door.finished.connection"][rows] += counts
        self.failed += float(counts.sum())

    def left(self, rows: Rows) -> None:
        """Clients that gave up waiting."""
        self.measures.count("door.finished.client_closed", rows)
        self.failed += len(rows)

    def _send(self, now: float, members: Rows, requests: Requests, load: Floats, listening: Bools) -> Requests:
        waiting = np.ones(len(requests.rows), dtype=np.bool_)
        rows = np.full(len(waiting), -1, dtype=np.intp)
        for _ in range(TRIES):
            eligible = members[
                (self.weight[members] > 0) & ~self.drained[members] & ~self.ejected[members] & ~self.blind[members]
            ]
            left = np.flatnonzero(waiting)
            if len(eligible) == 0 or len(left) == 0:
                break
            chosen = self._choose(eligible, len(left), load)
            self.measures.count("door.started", chosen)
            there = listening[chosen]
            rows[left[there]] = chosen[there]
            waiting[left[there]] = False
            np.add.at(load, chosen[there], 1.0)
            refused = chosen[~there]
            self.measures.count("door.finished.connection", refused)
            np.add.at(self._failures, refused, 1.0)
            out = np.flatnonzero((self._failures >= EJECT_AFTER) & ~self.ejected)
            self.ejected[out] = True
            self._trial_at[out] = now + TRIAL_S
        self.failed += float(waiting.sum())
        found = ~waiting
        return Requests(rows[found], requests.arrived[found], requests.prompt[found], requests.output[found])

    def _choose(self, eligible: Rows, count: int, load: Floats) -> Rows:
        shares = np.cumsum(self.weight[eligible])
        at = self._rng.uniform(0.0, shares[-1], (2, count))
        if shares[-1] == len(shares) and (self.weight[eligible] == 1.0).all():
            drawn = at.astype(np.intp)  # what the search below finds, where nobody's weight was changed
        else:
            drawn = np.searchsorted(shares, at, side="right")
        first, second = eligible[np.minimum(drawn, len(eligible) - 1)]
        better = load[second] / self.weight[second] < load[first] / self.weight[first]
        return np.where(better, second, first)

    def _try_again(self, now: float, listening: Bools) -> None:
        due = self.ejected & (self._trial_at <= now)
        back = due & listening
        self.ejected[back] = False
        self._failures[back] = 0.0
        self._trial_at[due & ~listening] = now + TRIAL_S


def _joined(parts: list[Requests]) -> Requests:
    if not parts:
        nothing = np.zeros(0)
        return Requests(np.zeros(0, dtype=np.intp), nothing, nothing, nothing)
    names = ("rows", "arrived", "prompt", "output")
    return Requests(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))
