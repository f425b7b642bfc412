"""Faults of GPUs, nodes and switches."""

from types import MappingProxyType

import numpy as np

from serving.fleet.entity import EntityKind
from serving.virtual.faults.engine_kinds import GIB, GROWING
from serving.virtual.faults.kind import Cure, Kind, Parameters, one
from serving.virtual.fleet import VirtualFleet
from serving.virtual.hardware import HW_SLOWDOWN, HW_THERMAL, POWER_BRAKE

# Codes by what NVIDIA's catalogue says to do about them; each with what the engine above does.
APP_CODES = {31: "MMU fault", 94: "contained memory error"}
RESET_CODES = {119: "GSP RPC timeout", 95: "uncontained memory error", 62: "internal micro-controller halt"}
BOOT_CODES = {79: "GPU has fallen off the bus"}


def _code(codes: dict[int, str], given: Parameters) -> tuple[int, str]:
    code = sorted(codes)[int(given["which"]) % len(codes)]
    return code, codes[code]


def _xid_app(fleet: VirtualFleet, gpu: int, level: float, given: Parameters) -> None:
    """The process that used the GPU dies; the GPU itself is well."""
    if level > 0:
        fleet.hardware.say_xid(fleet.now, gpu, *_code(APP_CODES, given))
        fleet.kill(fleet.plan.gpu_engine[one(gpu)])


def _xid_reset(fleet: VirtualFleet, gpu: int, level: float, given: Parameters) -> None:
    """The engine above stands still, for its GPU answers no more until it is reset."""
    engine = int(fleet.plan.gpu_engine[gpu])
    if level > 0:
        fleet.hardware.say_xid(fleet.now, gpu, *_code(RESET_CODES, given))
    fleet.hardware.wedged[gpu] = level > 0
    fleet.engines.halted[engine] = level > 0


def _xid_lost(fleet: VirtualFleet, gpu: int, level: float, given: Parameters) -> None:
    if level > 0:
        fleet.hardware.say_xid(fleet.now, gpu, *_code(BOOT_CODES, given))
    fleet.hardware.lost[gpu] = level > 0


def _throttle(fleet: VirtualFleet, gpu: int, level: float, given: Parameters) -> None:
    reason = (HW_THERMAL | HW_SLOWDOWN, POWER_BRAKE | HW_SLOWDOWN)[int(given["brake"]) % 2]
    fleet.hardware.clock[gpu] = 1.0 - level * (1.0 - given["clock"])
    fleet.hardware.throttle[gpu] = reason if level > 0 else 0


def _intrude(fleet: VirtualFleet, gpu: int, level: float, given: Parameters) -> None:
    fleet.hardware.intruder[gpu] = level * given["gib"] * GIB


def _not_ready(fleet: VirtualFleet, node: int, level: float, given: Parameters) -> None:  # noqa: ARG001 - every lever has this form
    fleet.hardware.ready[node] = level == 0
    fleet.hardware.say_condition(
        fleet.now, node, "Ready=Unknown: kubelet stopped posting node status" if level else "Ready=True"
    )


def _black_hole(fleet: VirtualFleet, node: int, level: float, given: Parameters) -> None:
    """Ready, and no GPU pod that comes to it ever runs; one that fell over shows it."""
    hardware = fleet.hardware
    hardware.rejects[node] = level > 0
    hardware.allocatable[node] = hardware.capacity[node] - (given["missing"] if level > 0 else 0.0)
    if level > 0:
        engine = fleet.plan.gpu_engine[np.flatnonzero(fleet.plan.gpu_node == node)[:1]]
        fleet.restart(engine)


def _skew(fleet: VirtualFleet, node: int, level: float, given: Parameters) -> None:
    fleet.hardware.clock_offset[node] = level * given["seconds"]


def _read_only(fleet: VirtualFleet, node: int, level: float, given: Parameters) -> None:  # noqa: ARG001 - every lever has this form
    fleet.hardware.disk_readonly[node] = float(level > 0)


def _bad_link(fleet: VirtualFleet, node: int, level: float, given: Parameters) -> None:
    fleet.hardware.network_errors[node] = level * given["share"]


def _bad_switch(fleet: VirtualFleet, switch: int, level: float, given: Parameters) -> None:
    fleet.hardware.switch_errors[switch] = level * given["share"]


def _shared_switches(fleet: VirtualFleet) -> list[int]:
    """Switches with more than one node behind them: of one with a single node, nobody can tell switch and node apart."""
    nodes = np.bincount(fleet.plan.node_switch)
    return np.flatnonzero(nodes > 1).tolist() if len(nodes) > 1 else []


G, N, S = EntityKind.GPU, EntityKind.NODE, EntityKind.SWITCH
WHICH = MappingProxyType({"which": 0.0})
HARDWARE_KINDS = (
    Kind("gpu-app-fault", G, "an XID ends the process", "vllm-project/vllm#5222", Cure.NOTHING, _xid_app, WHICH),
    Kind(
        "gpu-fault",
        G,
        "an XID, and the GPU must be reset",
        "NVIDIA/open-gpu-kernel-modules#1045",
        Cure.GPU,
        _xid_reset,
        WHICH,
    ),
    Kind("gpu-lost", G, "the GPU fell off the bus", "vllm-project/vllm#30112", Cure.GPU, _xid_lost, WHICH),
    Kind(
        *(
            "gpu-throttled",
            G,
            "clocks are cut for heat or by a power brake",
            "flashinfer-ai/flashinfer#2899",
            Cure.GPU,
            _throttle,
        ),
        MappingProxyType({"clock": 0.5, "brake": 0.0}),
        GROWING,
    ),
    Kind(
        *("memory-vampire", G, "another process takes the GPU's memory", "vllm-project/vllm#13100", Cure.EVICTION, _intrude),
        MappingProxyType({"gib": 9.0}),
        GROWING,
    ),
    Kind("node-not-ready", N, "the node is gone", "kubernetes/node-problem-detector#457", Cure.NODE, _not_ready),
    Kind(
        *("node-black-hole", N, "it is ready and runs no GPU pod", "NVIDIA/gpu-operator#1065", Cure.NODE, _black_hole),
        MappingProxyType({"missing": 1.0}),
    ),
    Kind(
        *("clock-skew", N, "the node's clock is wrong", "node-exporter mixin, NodeClockSkewDetected", Cure.NODE, _skew),
        MappingProxyType({"seconds": 0.5}),
        GROWING,
    ),
    Kind("disk-read-only", N, "the node's disk is read-only", "node-exporter mixin", Cure.NODE, _read_only),
    Kind(
        *("bad-link", N, "the node's network loses packets", "llm-d/llm-d#191", Cure.NODE, _bad_link),
        MappingProxyType({"share": 0.06}),
        GROWING,
    ),
    Kind(
        *("bad-switch", S, "a rack's switch loses packets", "NVIDIA/nccl#394", Cure.NOTHING, _bad_switch),
        MappingProxyType({"share": 0.06}),
        GROWING,
        _shared_switches,
    ),
)
