"""All detectors, each with what it needs to see, and the one call that runs them over a Window.

A detector that raises costs its own findings only: the others' stand, and what failed is said.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from detectors import (
    blindness,
    clients,
    experts,
    fabric,
    gateways,
    gpu_faults,
    gpu_speed,
    kv,
    latency,
    leaks,
    load,
    nodes,
    outputs,
    pauses,
    peers,
    prefill,
    progress,
    queues,
    reachability,
    rollouts,
    series,
    starts,
)
from detectors.finding import Finding, Symptom
from detectors.parameters import Parameters
from serving.telemetry.window import Window

SAMPLES_AT_ONCE = 100_000  # of one signal: a few arrays of as many fit into the second-level cache of a core
LEAST_ROWS = 512


@dataclass(frozen=True, slots=True)
class Detector:
    """One family. `needs` are the signals without which it is blind, `helped_by` those that make it surer.

    `needs_for` are those that single symptoms need besides: without them only these symptoms are not seen. `alone` when
    each engine is judged by its own rows only, so that a large window may be seen part by part. `special` when only some
    engines can have what it needs (a mixture of experts): those that have it not are not called blind.
    """

    name: str
    finds: frozenset[Symptom]
    needs: frozenset[str]
    helped_by: frozenset[str]
    run: Callable[[Window, Parameters], tuple[Finding, ...]]
    needs_for: Mapping[Symptom, frozenset[str]] = field(default_factory=lambda: MappingProxyType({}))
    alone: bool = False
    special: bool = False

    def needed_by(self, symptom: Symptom) -> frozenset[str]:
        """All signals without which this detector does not see `symptom`."""
        return self.needs | self.needs_for.get(symptom, frozenset())


@dataclass(frozen=True, slots=True)
class DetectorFailure:
    """A detector that raised, and what it said."""

    detector: str
    error: str


class Detection(NamedTuple):
    """What one run over a window found, and which detectors failed."""

    findings: tuple[Finding, ...]
    failed: tuple[DetectorFailure, ...]


S = Symptom
DETECTORS: tuple[Detector, ...] = (
    Detector(
        "progress",
        frozenset({S.STEPS_FROZEN, S.GAUGES_FROZEN, S.RETURNED}),
        progress.NEEDS,
        progress.HELPED_BY,
        lambda window, parameters: progress.detect(window, parameters.progress),
        alone=True,
    ),
    Detector(
        "reachability",
        frozenset({S.TARGET_REFUSED, S.TARGET_SILENT, S.RESTARTED, S.RETURNED, S.REQUESTS_FAILING}),
        reachability.NEEDS,
        reachability.HELPED_BY,
        lambda window, parameters: reachability.detect(window, parameters.reachability),
        {S.REQUESTS_FAILING: frozenset({"door.finished.ok"}), S.RESTARTED: frozenset({"engine.process_start"})},
        alone=True,
    ),
    Detector(
        "latency",
        frozenset({S.TTFT_RAISED, S.DECODE_STEADY, S.QUEUE_WAITED}),
        latency.NEEDS,
        latency.HELPED_BY,
        lambda window, parameters: latency.detect(window, parameters.latency, parameters.pauses),
        {S.DECODE_STEADY: frozenset({"engine.inter_token"}), S.QUEUE_WAITED: frozenset({"engine.queue_time"})},
    ),
    Detector(
        "pauses",
        frozenset({S.STEP_GAPS}),
        pauses.NEEDS,
        pauses.HELPED_BY,
        lambda window, parameters: pauses.detect(window, parameters.pauses),
    ),
    Detector(
        "peers",
        frozenset({S.SLOWER_THAN_PEERS}),
        peers.NEEDS,
        peers.HELPED_BY,
        lambda window, parameters: peers.detect(window, parameters.peers, parameters.pauses),
    ),
    Detector(
        "prefill",
        frozenset({S.LONG_PROMPTS, S.PREFILL_BUSY}),
        prefill.NEEDS,
        prefill.HELPED_BY,
        lambda window, parameters: prefill.detect(window, parameters.prefill),
    ),
    Detector(
        "kv",
        frozenset({S.KV_FULL, S.PREEMPTING}),
        kv.NEEDS,
        kv.HELPED_BY,
        lambda window, parameters: kv.detect(window, parameters.kv),
        {S.PREEMPTING: frozenset({"engine.preemptions"})},
        alone=True,
    ),
    Detector(
        "load",
        frozenset({S.QUEUE_GROWING, S.BATCH_FULL, S.LONG_GENERATIONS, S.ARRIVALS_RAISED, S.SERVED_BELOW_ARRIVALS}),
        load.NEEDS,
        load.HELPED_BY,
        lambda window, parameters: load.detect(window, parameters.load),
        {
            S.ARRIVALS_RAISED: frozenset({"door.started"}),
            S.SERVED_BELOW_ARRIVALS: frozenset({"door.in_flight"}),
            S.LONG_GENERATIONS: frozenset({"engine.generation_length"}),
        },
    ),
    Detector(
        "experts",
        frozenset({S.EXPERTS_HOT}),
        experts.NEEDS,
        experts.HELPED_BY,
        lambda window, parameters: experts.detect(window, parameters.experts),
        special=True,
    ),
    Detector(
        "clients",
        frozenset({S.CLIENTS_LEAVING}),
        clients.NEEDS,
        clients.HELPED_BY,
        lambda window, parameters: clients.detect(window, parameters.clients),
        alone=True,
    ),
    Detector(
        "queues",
        frozenset({S.QUEUE_STUCK}),
        queues.NEEDS,
        queues.HELPED_BY,
        lambda window, parameters: queues.detect(window, parameters.queues),
    ),
    Detector(
        "outputs",
        frozenset({S.OUTPUT_CORRUPT, S.OUTPUT_ENDLESS}),
        outputs.NEEDS,
        outputs.HELPED_BY,
        lambda window, parameters: outputs.detect(window, parameters.outputs),
        {S.OUTPUT_CORRUPT: frozenset({"engine.corrupted"}), S.OUTPUT_ENDLESS: frozenset({"engine.finished.length"})},
    ),
    Detector(
        "leaks",
        frozenset({S.KV_HELD, S.MEMORY_RISING}),
        leaks.NEEDS,
        leaks.HELPED_BY,
        lambda window, parameters: leaks.detect(window, parameters.leaks),
        {S.KV_HELD: frozenset({"engine.kv_usage", "engine.running"})},
    ),
    Detector(
        "starts",
        frozenset({S.START_SLOW, S.START_MEMORY_HELD}),
        starts.NEEDS,
        starts.HELPED_BY,
        lambda window, parameters: starts.detect(window, parameters.starts),
        {symptom: frozenset({starts.STARTING}) for symptom in (S.START_SLOW, S.START_MEMORY_HELD)},
    ),
    Detector(
        "rollouts",
        frozenset({S.REVISION_WORSE, S.REVISION_SUSPECT}),
        rollouts.NEEDS,
        rollouts.HELPED_BY,
        lambda window, parameters: rollouts.detect(window, parameters.rollouts, parameters.outputs, parameters.starts),
        {symptom: frozenset({rollouts.REVISION}) for symptom in (S.REVISION_WORSE, S.REVISION_SUSPECT)},
    ),
    Detector(
        "gateways",
        frozenset({S.DOOR_FAILING, S.DOOR_STARVES}),
        gateways.NEEDS,
        gateways.HELPED_BY,
        lambda window, parameters: gateways.detect(window, parameters.gateways, parameters.queues),
        {S.DOOR_FAILING: frozenset({"door.in_flight"}), S.DOOR_STARVES: frozenset({"door.started"})},
    ),
    Detector(
        "series",
        frozenset({S.SERIES_VANISHED, S.SERIES_DOUBLED}),
        series.NEEDS,
        series.HELPED_BY,
        lambda window, parameters: series.detect(window, parameters.series),
    ),
    Detector(
        "blindness",
        frozenset({S.SOURCE_BLIND, S.MOST_TARGETS_LOST}),
        blindness.NEEDS,
        blindness.HELPED_BY,
        lambda window, parameters: blindness.detect(window, parameters.blindness),
    ),
    Detector(
        "gpu_faults",
        frozenset(
            {
                S.XID_RESTART_APP,
                S.XID_RESET_GPU,
                S.XID_REBOOT_NODE,
                S.XID_CHECK,
                S.ECC_UNCORRECTED,
                S.REMAP_FAILED,
                S.REMAP_PENDING,
            }
        ),
        gpu_faults.NEEDS,
        gpu_faults.HELPED_BY,
        lambda window, parameters: gpu_faults.detect(window, parameters.gpu_faults),
        {
            S.ECC_UNCORRECTED: frozenset({"gpu.ecc_uncorrected"}),
            S.REMAP_FAILED: frozenset({"gpu.remap_failure"}),
            S.REMAP_PENDING: frozenset({"gpu.remap_pending"}),
        },
    ),
    Detector(
        "gpu_speed",
        frozenset({S.GPU_THROTTLED, S.GPU_CLOCK_LOW, S.GPU_POWER_LOW, S.GPU_MEMORY_FOREIGN}),
        gpu_speed.NEEDS,
        gpu_speed.HELPED_BY,
        lambda window, parameters: gpu_speed.detect(window, parameters.gpu_speed),
        {
            S.GPU_THROTTLED: frozenset({"gpu.sm_clock", "gpu.util", "gpu.throttle_reasons"}),
            S.GPU_CLOCK_LOW: frozenset({"gpu.sm_clock", "gpu.util", "gpu.throttle_reasons"}),
            S.GPU_POWER_LOW: frozenset({"gpu.power", "gpu.util", "gpu.throttle_reasons"}),
            S.GPU_MEMORY_FOREIGN: frozenset({"gpu.memory_used", "gpu.memory_own"}),
        },
    ),
    Detector(
        "nodes",
        frozenset(
            {
                S.NODE_NOT_READY,
                S.NODE_RETURNING,
                S.NODE_REJECTS_PODS,
                S.NODE_GPUS_SHORT,
                S.NODE_CLOCK_OFF,
                S.NODE_DISK_READONLY,
                S.NODE_DISK_FULL,
                S.NODE_NETWORK_ERRORS,
                S.NODE_ENGINES_LOST,
            }
        ),
        nodes.NEEDS,
        nodes.HELPED_BY,
        lambda window, parameters: nodes.detect(window, parameters.nodes),
        {
            S.NODE_NOT_READY: frozenset({"node.ready"}),
            S.NODE_REJECTS_PODS: frozenset({"node.ready", "node.pods_rejected"}),
            S.NODE_GPUS_SHORT: frozenset({"node.ready", "node.gpus_allocatable", "node.gpus_capacity"}),
            S.NODE_CLOCK_OFF: frozenset({"node.clock_offset"}),
            S.NODE_DISK_READONLY: frozenset({"node.disk_readonly"}),
            S.NODE_DISK_FULL: frozenset({"node.disk_free"}),
            S.NODE_NETWORK_ERRORS: frozenset({"node.network_errors", "node.network_packets"}),
        },
    ),
    Detector(
        "fabric",
        frozenset({S.SWITCH_ERRORS, S.SWITCH_SLOW}),
        fabric.NEEDS,
        fabric.HELPED_BY,
        lambda window, parameters: fabric.detect(window, parameters.fabric),
    ),
)


def detect_all(window: Window, parameters: Parameters, detectors: tuple[Detector, ...] = DETECTORS) -> Detection:
    """Run every detector over `window`. Findings come in the order of the detectors, then of the engines."""
    parts = tuple(window.parts(max(LEAST_ROWS, SAMPLES_AT_ONCE // max(1, len(window.times)))))
    findings: list[Finding] = []
    failed: list[DetectorFailure] = []
    for detector in detectors:
        try:
            seen = parts if detector.alone else (window,)
            findings.extend([finding for part in seen for finding in detector.run(part, parameters)])
        except Exception as error:  # noqa: BLE001 - whatever a detector raises must cost its own findings only
            failed.append(DetectorFailure(detector.name, f"{type(error).__name__}: {error}"))
    return Detection(tuple(findings), tuple(failed))
