"""Stages: fleets in virtual time that have lived a while, with the warden's memory of their telemetry, ready to be copied.

Warming a fleet up costs as much as a whole trial, so it is done once a fleet. Every trial gets a copy with randomness of its
own, so that no trial sees what another one did, and each can be run again alone.
"""

import copy
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from agent.scoreboard.trial import FleetSize
from serving.clock import FakeClock
from serving.fleet.topology import Topology
from serving.telemetry.history import History
from serving.telemetry.window import Window
from serving.virtual.fleet import VirtualFleet
from serving.virtual.plan import FleetPlan, ModelPlan
from serving.virtual.source import VirtualSource

BEGIN = 1_800_000_000.0  # Unix seconds; where in the week a fleet begins is drawn
WEEK_S = 604_800.0
REMEMBERED_S = 600.0  # as a warden's settings have it
WARM_FLEETS = 2
NAMES = ("chat", "code", "draft", "judge")


@dataclass(eq=False)
class Stage:
    """A fleet, the source that reads it, and what a warden remembers of it. `observe` makes it what the loop looks at."""

    fleet: VirtualFleet
    source: VirtualSource
    history: History

    def observe(self, topology: Topology, now: float) -> Window:
        """The window at `now`, after one reading."""
        return self.history.window(now, topology, (self.source.read(topology, now, 1.0),))

    def copied(self, seed: int) -> "Stage":
        """The same moment once more; from here on its randomness is that of `seed`."""
        shared = (self.fleet.plan, self.fleet.topology)  # never changed, and the greater part of it
        twin = copy.deepcopy(self, {id(one): one for one in shared})
        twin.fleet.rng.bit_generator.state = np.random.default_rng(seed).bit_generator.state
        return twin


def plan_of(size: FleetSize) -> FleetPlan:
    """The plan of a fleet of that size; its models share the engines evenly."""
    sizes = [size.engines // size.models + (number < size.engines % size.models) for number in range(size.models)]
    models = tuple(
        ModelPlan(name=NAMES[number], engines=engines, tp=size.tp, rps=size.rps, experts=size.experts if number == 0 else 0)
        for number, engines in enumerate(sizes)
    )
    return FleetPlan(models, seed=size.seed)


@lru_cache(maxsize=WARM_FLEETS)
def warmed(size: FleetSize, interval: float) -> Stage:
    """The fleet after its warm-up, looked at every `interval` seconds. It is kept: work on a copy."""
    plan = plan_of(size)
    begins = BEGIN + float(np.random.default_rng([size.seed, 2]).integers(0, int(WEEK_S)))
    fleet = VirtualFleet(plan, FakeClock(begins))
    stage = Stage(fleet, VirtualSource(fleet), History(plan.topology, REMEMBERED_S, int(REMEMBERED_S / interval) + 2))
    for _ in range(round(size.warm_up / interval)):
        fleet.advance(interval)
        stage.observe(plan.topology, fleet.now)
    return stage
