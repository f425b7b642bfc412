"""All detectors, each with what it needs to see, and the one call that runs them over a Window.

A detector that raises costs its own findings only: the others' stand, and what failed is said.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from detectors import blindness, clients, kv, latency, load, pauses, peers, prefill, progress, reachability
from detectors.finding import Finding, Symptom
from detectors.parameters import Parameters
from serving.telemetry.window import Window

SAMPLES_AT_ONCE = 100_000  # of one signal: a few arrays of as many fit into the second-level cache of a core
LEAST_ROWS = 512


@dataclass(frozen=True, slots=True)
class Detector:
    """One family. `needs` are the signals without which it is blind, `helped_by` those that make it surer.

    `needs_for` are those that single symptoms need besides: without them only these symptoms are not seen. `alone` when
    each engine is judged by its own rows only, so that a large window may be seen part by part.
    """

    name: str
    finds: frozenset[Symptom]
    needs: frozenset[str]
    helped_by: frozenset[str]
    run: Callable[[Window, Parameters], tuple[Finding, ...]]
    needs_for: Mapping[Symptom, frozenset[str]] = field(default_factory=lambda: MappingProxyType({}))
    alone: bool = False

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
        lambda window, parameters: latency.detect(window, parameters.latency),
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
        lambda window, parameters: peers.detect(window, parameters.peers),
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
        "clients",
        frozenset({S.CLIENTS_LEAVING}),
        clients.NEEDS,
        clients.HELPED_BY,
        lambda window, parameters: clients.detect(window, parameters.clients),
        alone=True,
    ),
    Detector(
        "blindness",
        frozenset({S.SOURCE_BLIND, S.MOST_TARGETS_LOST}),
        blindness.NEEDS,
        blindness.HELPED_BY,
        lambda window, parameters: blindness.detect(window, parameters.blindness),
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
