"""Faults of what engines share: users, the front door, a rollout, and telemetry itself."""

from functools import partial
from types import MappingProxyType

import numpy as np

from serving.fleet.entity import EntityKind
from serving.virtual.faults.engine_kinds import GROWING
from serving.virtual.faults.kind import Cure, Kind, Parameters, one
from serving.virtual.fleet import VirtualFleet

STEPS_AND_TOKENS = ("engine.steps", "engine.step_tokens", "engine.generation_tokens", "engine.ttft")
A_ROLLOUT_STEP_S = 15.0


def _surge(fleet: VirtualFleet, model: int, level: float, given: Parameters) -> None:
    fleet.users.rate[model] = 1.0 + level * (given["times"] - 1.0)


def _forget(fleet: VirtualFleet, door: int, level: float, given: Parameters) -> None:  # noqa: ARG001 - there is one door
    """The door forgets some of every model's engines."""
    for number in range(len(fleet.plan.models)):
        members = np.flatnonzero(fleet.plan.engine_model == number)
        lost = members[: max(1, int(len(members) * given["share"]))]
        fleet.door.blind[lost] = level > 0


def _admit_one_by_one(fleet: VirtualFleet, door: int, level: float, given: Parameters) -> None:  # noqa: ARG001 - there is one door
    fleet.door.most_inside = given["inside"] if level > 0 else np.inf


def _roll_out(fleet: VirtualFleet, model: int, level: float, given: Parameters) -> None:
    """A new revision comes to a part of the model's engines, one after another, and is slower or answers nonsense."""
    members = np.flatnonzero(fleet.plan.engine_model == model)
    some = members[: max(2, int(len(members) * given["share"]))]
    if level == 0:
        for row in some[fleet.processes.revision[some] > 1].tolist():
            _run(fleet, row, revision=1.0, slow=1.0, corrupt=0.0)
        return
    for number, row in enumerate(some.tolist()):
        change = partial(_take_on, fleet, model, fleet.rollbacks[model], row, given)
        fleet.at(fleet.now + number * A_ROLLOUT_STEP_S, change)


def _take_on(fleet: VirtualFleet, model: int, before: float, row: int, given: Parameters) -> None:
    if fleet.rollbacks[model] == before:
        _run(fleet, row, revision=2.0, slow=given["factor"], corrupt=given["garbage"])


def _run(fleet: VirtualFleet, row: int, *, revision: float, slow: float, corrupt: float) -> None:
    fleet.restart(one(row))
    fleet.processes.revision[row] = revision
    fleet.engines.slow[row] = slow
    fleet.engines.corrupt[row] = corrupt


def _blind(fleet: VirtualFleet, source: int, level: float, given: Parameters) -> None:  # noqa: ARG001 - there is one source
    fleet.pipeline.down = level > 0


def _rename(fleet: VirtualFleet, source: int, level: float, given: Parameters) -> None:  # noqa: ARG001 - there is one source
    change = fleet.pipeline.gone.update if level > 0 else fleet.pipeline.gone.difference_update
    change(STEPS_AND_TOKENS)


def _double(fleet: VirtualFleet, row: int, level: float, given: Parameters) -> None:  # noqa: ARG001 - every lever has this form
    change = fleet.pipeline.doubled.add if level > 0 else fleet.pipeline.doubled.discard
    change(row)


M, T = EntityKind.MODEL, EntityKind.TELEMETRY
SERVICE_KINDS = (
    Kind(
        *("surge", M, "many times the usual requests come at once", "vllm-project/vllm#18826", Cure.NOTHING, _surge),
        MappingProxyType({"times": 8.0}),
        GROWING,
    ),
    Kind(
        *("door-forgets", EntityKind.GATEWAY, "the door lost some engines", "ai-dynamo/dynamo#7836", Cure.REFRESH, _forget),
        MappingProxyType({"share": 0.4}),
    ),
    Kind(
        *(
            "serial-admission",
            EntityKind.GATEWAY,
            "the door lets few in at once",
            "NVIDIA/aicr#2385",
            Cure.REFRESH,
            _admit_one_by_one,
        ),
        MappingProxyType({"inside": 1.0}),
    ),
    Kind(
        *(
            "bad-rollout",
            M,
            "a new revision is slow or answers nonsense",
            "vllm-project/vllm-ascend#11107",
            Cure.ROLLBACK,
            _roll_out,
        ),
        MappingProxyType({"share": 0.4, "factor": 3.0, "garbage": 0.0}),
    ),
    Kind("telemetry-blind", T, "the source answers nothing", "kedacore/keda#965", Cure.NOTHING, _blind),
    Kind("telemetry-renamed", T, "signals are no longer found by name", "vllm-project/vllm#18354", Cure.NOTHING, _rename),
    Kind("telemetry-doubled", EntityKind.ENGINE, "one engine is counted twice", "inference-perf#249", Cure.NOTHING, _double),
)
