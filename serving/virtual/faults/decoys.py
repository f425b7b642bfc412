"""What looks like a fault and is none: a warden that repairs any of these does harm."""

from functools import partial
from types import MappingProxyType

import numpy as np

from serving.fleet.entity import EntityKind
from serving.gateway.orders import Standing
from serving.virtual.faults.kind import Cure, Kind, Parameters, one
from serving.virtual.fleet import VirtualFleet
from serving.virtual.hardware import POWER_CAP
from serving.virtual.users import Flood

A_PERSON = "anna"
UPGRADE_STEP_S = 100.0


def _flood(name: str, fleet: VirtualFleet, row: int, level: float, given: Parameters) -> None:
    fleet.users.floods.pop(f"{name}:{row}", None)
    if level > 0:
        fleet.users.floods[f"{name}:{row}"] = Flood(row, given["rps"], given["prompt"], given["output"])


def _shift(fleet: VirtualFleet, model: int, level: float, given: Parameters) -> None:
    fleet.users.rate[model] = given["times"] if level > 0 else 1.0


def _upgrade(fleet: VirtualFleet, model: int, level: float, given: Parameters) -> None:
    """A person takes one engine after another out, starts it with a new revision that is well, and puts it back."""
    members = np.flatnonzero(fleet.plan.engine_model == model)
    if level == 0:
        for row in members.tolist():
            if fleet.door.standing[row].drained_by == A_PERSON:
                fleet.door.order(row, Standing(None, 1.0))
        return
    for number, row in enumerate(members[: int(given["engines"])].tolist()):
        begins = fleet.now + number * UPGRADE_STEP_S
        fleet.at(begins, partial(fleet.door.order, row, Standing(A_PERSON, 1.0)))
        fleet.at(begins + 15.0, partial(_new_revision, fleet, row))
        fleet.at(begins + UPGRADE_STEP_S, partial(_put_back, fleet, row))


def _new_revision(fleet: VirtualFleet, row: int) -> None:
    fleet.restart(one(row))
    fleet.processes.revision[row] += 1.0


def _put_back(fleet: VirtualFleet, row: int) -> None:
    if fleet.door.standing[row].drained_by == A_PERSON:
        fleet.door.order(row, Standing(None, 1.0))


def _compile(fleet: VirtualFleet, row: int, level: float, given: Parameters) -> None:
    """A shape seen for the first time: one standstill of some seconds, which does not come again."""
    if level == 0:
        return
    pauses = fleet.engines.pauses
    pauses.length[row], pauses.every[row], pauses.since[row] = given["seconds"], 1e9, fleet.now
    fleet.at(fleet.now + given["seconds"] + 1.0, partial(pauses.length.__setitem__, row, 0.0))


def _cap(fleet: VirtualFleet, node: int, level: float, given: Parameters) -> None:  # noqa: ARG001 - a cap is the whole fleet's
    """Every GPU runs at its power limit, a little slower, as software was told to."""
    fleet.hardware.clock[:] = given["clock"] if level > 0 else 1.0
    fleet.hardware.throttle[:] = POWER_CAP if level > 0 else 0


def _herd(fleet: VirtualFleet, node: int, level: float, given: Parameters) -> None:
    """Jobs of others end, and every GPU of the rack logs the clean-up."""
    if level == 0:
        return
    switch = fleet.plan.node_switch[node]
    for gpu in np.flatnonzero(fleet.plan.node_switch[fleet.plan.gpu_node] == switch).tolist():
        for _ in range(int(given["lines"])):
            fleet.hardware.say_xid(fleet.now, gpu, 45, "preemptive cleanup, due to previous errors")


def _leave(fleet: VirtualFleet, model: int, level: float, given: Parameters) -> None:  # noqa: ARG001 - every lever has this form
    """Clients of a whole model leave at once; others come as before."""
    if level > 0:
        rows = np.flatnonzero(fleet.plan.engine_model == model)
        had = fleet.engines.drop(rows)
        fleet.door.left(np.repeat(rows, had.astype(np.intp)))


def _rename(fleet: VirtualFleet, source: int, level: float, given: Parameters) -> None:  # noqa: ARG001 - there is one source
    change = fleet.pipeline.gone.update if level > 0 else fleet.pipeline.gone.difference_update
    change(("engine.rss", "engine.open_fds", "engine.prompt_tokens.computed"))


def _outage(fleet: VirtualFleet, source: int, level: float, given: Parameters) -> None:  # noqa: ARG001 - there is one source
    if level > 0:
        fleet.pipeline.down = True
        fleet.at(fleet.now + given["seconds"], partial(setattr, fleet.pipeline, "down", False))
    else:
        fleet.pipeline.down = False


def _cordon(fleet: VirtualFleet, node: int, level: float, given: Parameters) -> None:  # noqa: ARG001 - every lever has this form
    fleet.hardware.unschedulable[node] = level > 0


E, M, N, T = EntityKind.ENGINE, EntityKind.MODEL, EntityKind.NODE, EntityKind.TELEMETRY
DECOY_KINDS = (
    Kind(
        *(
            "long-request",
            E,
            "one answer goes on for very long",
            "intel/llm-scaler#391",
            Cure.NOTHING,
            partial(_flood, "long"),
        ),
        MappingProxyType({"rps": 0.02, "prompt": 500.0, "output": 12_000.0}),
    ),
    Kind(
        *("healthy-preemption", E, "a busy cache, with a preemption now and then", "inference-sim#963", Cure.NOTHING),
        partial(_flood, "busy"),
        MappingProxyType({"rps": 0.12, "prompt": 4_000.0, "output": 900.0}),
    ),
    Kind(
        *("load-shift", M, "users come and go with the hours", "AzureLLMInferenceDataset2023", Cure.NOTHING, _shift),
        MappingProxyType({"times": 1.5}),
    ),
    Kind(
        *("rolling-upgrade", M, "a person upgrades engine after engine", "vllm-project/vllm#43208", Cure.NOTHING, _upgrade),
        MappingProxyType({"engines": 2.0}),
    ),
    Kind(
        *("compilation", E, "a first-seen shape compiles", "vllm-project/vllm#45631", Cure.NOTHING, _compile),
        MappingProxyType({"seconds": 4.0}),
    ),
    Kind(
        *("power-cap", N, "software caps all GPUs alike", "flashinfer-ai/flashinfer#2899", Cure.NOTHING, _cap),
        MappingProxyType({"clock": 0.85}),
    ),
    Kind(
        *("xid-45-herd", N, "a rack logs the clean-up of others", "NVIDIA/NVSentinel#1748", Cure.NOTHING, _herd),
        MappingProxyType({"lines": 5.0}),
    ),
    Kind("mass-cancel", M, "all clients of a model leave at once", "vllm-project/vllm#10806", Cure.NOTHING, _leave),
    Kind("benign-rename", T, "signals that no verdict needs vanish", "vllm-project/vllm#18354", Cure.NOTHING, _rename),
    Kind(
        *("idle-night", M, "hardly anybody asks", "vllm-project/vllm#43420", Cure.NOTHING, _shift),
        MappingProxyType({"times": 0.03}),
    ),
    Kind(
        *("scrape-outage", T, "telemetry is away for a while", "kedacore/keda#965", Cure.NOTHING, _outage),
        MappingProxyType({"seconds": 40.0}),
    ),
    Kind(
        "cordon-by-person",
        N,
        "a person took the node out for work",
        "kubernetes-sigs/dra-driver-nvidia-gpu#1455",
        Cure.NOTHING,
        _cordon,
    ),
)
