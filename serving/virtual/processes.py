"""The engines' processes as columns: running, starting or gone, of which revision, with how much memory."""

import numpy as np
from numpy.typing import NDArray

from serving.virtual.plan import FleetPlan

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]
Bools = NDArray[np.bool_]

LIMIT_BYTES = 64 * 2.0**30
WORKING_SET_BYTES = 14 * 2.0**30


class Processes:
    """All processes. The public columns are levers."""

    def __init__(self, plan: FleetPlan, now: float, rng: np.random.Generator) -> None:
        rows = len(plan.engine_names)
        usual = [plan.models[number].start_seconds for number in plan.engine_model.tolist()]
        self._rng = rng
        self._usual = np.array(usual)
        self.up = np.ones(rows, dtype=np.bool_)
        self.starting = np.zeros(rows, dtype=np.bool_)
        self.since = now - rng.uniform(3_600.0, 86_400.0, rows)  # when the process began
        self.silent = np.zeros(rows, dtype=np.bool_)  # the API process takes connections and answers nothing
        self.start_slow = np.ones(rows)
        self.ready_at = np.full(rows, np.inf)
        self.revision = np.ones(rows)
        self.leak_rate = np.zeros(rows)  # bytes a second
        self.working_set = WORKING_SET_BYTES * np.exp(rng.normal(0.0, 0.03, rows))

    def end(self, rows: Rows) -> None:
        """The processes of `rows` are gone."""
        self.up[rows] = False
        self.starting[rows] = False
        self.silent[rows] = False

    def start(self, rows: Rows, now: float) -> None:
        """New processes for `rows`, ready after about as long as their model takes."""
        self.end(rows)
        self.starting[rows] = True
        self.since[rows] = now
        self.leak_rate[rows] = 0.0
        self.working_set[rows] = WORKING_SET_BYTES
        self.ready_at[rows] = now + self._usual[rows] * self.start_slow[rows] * self._rng.uniform(0.9, 1.25, len(rows))

    def tick(self, now: float, dt: float, possible: Bools) -> tuple[Rows, Rows]:
        """Go on by `dt`: the rows that became ready, and those that the kernel ended for want of memory.

        `possible`: whose hardware is there and has the memory; the others go on trying to start.
        """
        ready = np.flatnonzero(self.starting & (self.ready_at <= now) & possible)
        self.starting[ready] = False
        self.up[ready] = True
        self.working_set += np.where(self.up, self.leak_rate * dt, 0.0)
        over = np.flatnonzero(self.up & (self.working_set > LIMIT_BYTES))
        self.end(over)
        return ready, over

    def starting_seconds(self, now: float) -> Floats:
        """How long each has been starting; 0 for those that are ready, missing for those that nobody started."""
        return np.where(self.starting, now - self.since, np.where(self.up, 0.0, np.nan))
