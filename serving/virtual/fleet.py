"""The fleet in virtual time: all of its columns, moved on together, tick by tick."""

import heapq
import math
from collections.abc import Callable
from itertools import count

import numpy as np
from numpy.typing import NDArray

from serving.clock import FakeClock
from serving.fleet.topology import Topology
from serving.virtual.door import Door
from serving.virtual.engines import Engines
from serving.virtual.experts import Experts
from serving.virtual.hardware import MEMORY_BYTES, OWN_BYTES, Hardware
from serving.virtual.pipeline import Pipeline
from serving.virtual.plan import FleetPlan
from serving.virtual.processes import Processes
from serving.virtual.users import Users

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]
Bools = NDArray[np.bool_]

PATIENCE_S = 60.0  # how long a client waits for its first token


class VirtualFleet:
    """A whole fleet. `clock` is its time and the warden's: `advance` moves both. The same seed gives the same fleet.

    `doings` that are put down with `at` happen at the first tick that begins at or after their time.
    """

    def __init__(self, plan: FleetPlan, clock: FakeClock | None = None) -> None:
        self.plan = plan
        self.clock = clock or FakeClock()
        rng = np.random.default_rng(plan.seed)
        self.rng = rng
        self.engines = Engines(plan, rng)
        self.hardware = Hardware(plan, rng)
        self.processes = Processes(plan, self.clock.now(), rng)
        self.users = Users(plan, rng)
        self.door = Door(plan, rng)
        self.experts = Experts(plan, rng)
        self.pipeline = Pipeline()
        self.patience = PATIENCE_S
        self.rollbacks = np.zeros(len(plan.models))
        self._doings: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()

    @property
    def topology(self) -> Topology:
        """The map."""
        return self.plan.topology

    @property
    def now(self) -> float:
        """Unix seconds, as the fleet's clock says."""
        return self.clock.now()

    def at(self, moment: float, do: Callable[[], None]) -> None:
        """Do something at `moment`."""
        heapq.heappush(self._doings, (moment, next(self._numbers), do))

    def advance(self, seconds: float) -> None:
        """Live on for so long, in equal ticks of at most the plan's."""
        ticks = math.ceil(seconds / self.plan.tick - 1e-9)
        for _ in range(ticks):
            self._tick(seconds / ticks)
            self.clock.advance(seconds / ticks)

    def row(self, engine: str) -> int:
        """The row of an engine. Raises KeyError."""
        return self.topology.row_of[engine]

    def kill(self, rows: Rows) -> None:
        """End processes: what was inside is lost."""
        self.door.lost(rows, self.engines.drop(rows))
        self.processes.end(rows)

    def restart(self, rows: Rows) -> None:
        """End processes and start them anew."""
        self.door.lost(rows, self.engines.drop(rows))
        self.engines.restart(rows)
        self.experts.forget(rows)
        self.processes.start(rows, self.now)

    def listening(self) -> Bools:
        """Engines on whose port somebody listens."""
        return self.processes.up.copy()

    def _tick(self, dt: float) -> None:
        now = self.now
        while self._doings and self._doings[0][0] <= now:
            heapq.heappop(self._doings)[2]()
        self._processes(now, dt)
        self.engines.hardware = self.hardware.slowdown() * self.experts.slowdown()
        self.engines.most_running[:] = min(float(self.plan.slots), self.door.most_inside)
        if self.hardware.wedged.any():
            self.engines.halted[self.plan.gpu_engine[self.hardware.wedged]] = True
        routed = self.door.route(now, self.users.arrivals(now, dt), self.engines.in_flight(), self.listening())
        self.engines.take(routed)
        if self.users.recorded is not None:
            given, refused = self.users.recorded.arriving(now + dt)
            self.engines.take(self.door.straight(given, refused, self.listening()))
            self._leave(now + dt / 2)  # who leaves in the first half of a tick gets nothing of it, others all of it
        flooding = self.users.flooding(now, dt)
        if len(flooding.rows):
            self.engines.take(flooding.part(self.processes.up[flooding.rows]))
        before = self.engines.measures.counters["engine.step_tokens"].copy()
        self.door.take(self.engines.tick(now, dt, self.processes.up & ~self.processes.silent))
        self.experts.tick(np.maximum(self.engines.measures.counters["engine.step_tokens"] - before, 0.0), dt)
        self.hardware.tick(dt, self.engines.busy_share, self.processes.up | self.processes.starting)
        self.door.left(self.engines.leave(now - self.patience))
        self._leave(now + dt)

    def _processes(self, now: float, dt: float) -> None:
        there = self.hardware.runs()
        fallen = np.flatnonzero(self.processes.up & ~there)
        if len(fallen):
            self.kill(fallen)
        free = MEMORY_BYTES - self.hardware.orphaned - self.hardware.intruder >= OWN_BYTES
        engines = len(self.plan.engine_names)
        full = np.bincount(self.plan.gpu_engine, weights=~free, minlength=engines) > 0
        _, ended = self.processes.tick(now, dt, there & ~full)
        if len(ended):
            self.door.lost(ended, self.engines.drop(ended))

    def _leave(self, until: float) -> None:
        """Clients of given requests who give up before `until`."""
        if self.users.recorded is not None:
            leaving = self.users.recorded.leaving(until)
            able = self.processes.up & ~self.processes.silent
            self.door.gave_up(self.engines.abandon(leaving.rows, leaving.arrived, able))
