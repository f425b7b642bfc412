"""Crowds: clients of their own at one engine, past the front door, who leave when and as they like.

What the local faults `endless-generation`, `impatient-clients` and `mass-cancel` do by the load generator. Nothing is wrong
with the engine in any of them.
"""

from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType

import numpy as np

from serving.fleet.entity import EntityKind
from serving.virtual.faults.kind import Cure, Kind, Parameters
from serving.virtual.fleet import VirtualFleet
from serving.virtual.queues import Requests
from serving.virtual.users import Flood


@dataclass(slots=True)
class Crowd(Flood):
    """Who came, by arrival, and has not left. As a flood it sends nothing: its requests come by `_come`."""

    inside: list[float] = field(default_factory=list)
    came: int = 0
    looked: float = 0.0


def _crowd(name: str, fleet: VirtualFleet, row: int, level: float, given: Parameters) -> None:
    floods, key = fleet.users.floods, f"{name}:{row}"
    before = floods.pop(key, None)
    if isinstance(before, Crowd):
        _leave(fleet, before, fleet.now)
    if level > 0:
        floods[key] = crowd = Crowd(row, 0.0, given["prompt"], given["output"], looked=fleet.now)
        _come(fleet, key, crowd, given)


def _come(fleet: VirtualFleet, key: str, crowd: Crowd, given: Parameters) -> None:
    """Who comes in this tick, and who loses patience: in whole ticks, so nobody leaves sooner than at the next one."""
    if fleet.users.floods.get(key) is not crowd:
        return
    _leave(fleet, crowd, fleet.now - given["patience"])
    tick = fleet.plan.tick
    until = fleet.now + tick
    count = min(int(fleet.rng.poisson(given["rps"] * (until - crowd.looked))), int(given["most"]) - crowd.came)
    crowd.looked = until
    if crowd.came == 0:
        count = max(count, 1)
    if count > 0 and fleet.processes.up[crowd.row]:
        arrived = np.sort(fleet.now + tick * fleet.rng.uniform(size=count))
        each = partial(np.full, count)
        fleet.engines.take(Requests(each(crowd.row), arrived, each(crowd.prompt), each(crowd.output)))
        crowd.inside.extend(arrived.tolist())
        crowd.came += count
    fleet.at(until, partial(_come, fleet, key, crowd, given))


def _leave(fleet: VirtualFleet, crowd: Crowd, before: float) -> None:
    """Those that came before `before` leave, as far as they are not answered."""
    gone = np.array([arrived for arrived in crowd.inside if arrived <= before])
    crowd.inside = [arrived for arrived in crowd.inside if arrived > before]
    if len(gone):
        alive = fleet.processes.up & ~fleet.processes.silent
        fleet.engines.abandon(np.full(len(gone), crowd.row), gone, alive)


E = EntityKind.ENGINE
PATIENT, ANY_NUMBER = 1e9, 1e9
CROWD_KINDS = (
    Kind(
        *("endless-generation", E, "an answer that nothing ends", "vllm-project/vllm-ascend#15166", Cure.NOTHING),
        partial(_crowd, "endless"),
        MappingProxyType({"rps": 1.0, "prompt": 500.0, "output": 12_000.0, "most": 1.0, "patience": PATIENT}),
    ),
    Kind(
        *("impatient-clients", E, "clients leave at once, answered or not", "vllm-project/vllm#10806", Cure.NOTHING),
        partial(_crowd, "impatient"),
        MappingProxyType({"rps": 6.0, "prompt": 500.0, "output": 200.0, "most": ANY_NUMBER, "patience": 0.2}),
    ),
    Kind(
        *("mass-cancel", E, "clients fill an engine, and all leave at its undo", "vllm-project/vllm#10806", Cure.NOTHING),
        partial(_crowd, "cancelled"),
        MappingProxyType({"rps": 4.0, "prompt": 500.0, "output": 3_000.0, "most": ANY_NUMBER, "patience": PATIENT}),
    ),
)
