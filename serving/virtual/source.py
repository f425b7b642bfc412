"""The source of telemetry over a fleet in virtual time: what a scrape of everything brings."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from serving.fleet.entity import Entity, EntityKind
from serving.fleet.topology import Topology
from serving.telemetry.reading import FailureKind, Reading, TargetFailure
from serving.virtual.fleet import VirtualFleet
from serving.virtual.plan import SCRAPE
from serving.virtual.processes import LIMIT_BYTES

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

REFUSED = TargetFailure(FailureKind.REFUSED, "nothing listens")
SCRAPE_TIMEOUT_S = 1.5
SILENT = TargetFailure(FailureKind.TIMEOUT, "the port is open and no answer came")


class VirtualSource:
    """The port of telemetry over a fleet in virtual time."""

    def __init__(self, fleet: VirtualFleet) -> None:
        self._fleet = fleet
        self._told_events = 0

    @property
    def entity(self) -> Entity:
        """The source on the map."""
        return SCRAPE

    def read(self, topology: Topology, now: float, deadline: float) -> Reading:
        """What the fleet shows at this moment; engines in the fleet's own order, which is the topology's."""
        fleet, pipeline = self._fleet, self._fleet.pipeline
        rows = len(topology.engines)
        if pipeline.down:
            return Reading(SCRAPE, now, np.full(rows, np.nan), error="connection refused")
        processes = fleet.processes
        unseen = np.zeros(rows, dtype=np.bool_)
        unseen[list(pipeline.unscraped)] = True
        answers = processes.up & ~processes.silent & ~unseen
        taken = now - pipeline.late
        sampled = np.full(rows, taken)
        values = {**self._engine_values(now, answers), **self._door_values()}
        values["scrape.up"] = answers.astype(np.float64)
        values["scrape.seconds"] = np.where(answers, 0.01, np.where(processes.up, min(deadline, SCRAPE_TIMEOUT_S), 0.001))
        histograms = {
            **fleet.engines.measures.histograms(~answers),
            **fleet.door.measures.histograms(np.zeros(rows, dtype=np.bool_)),
        }
        failures = {
            topology.engines[row].name: SILENT if processes.up[row] else REFUSED for row in np.flatnonzero(~answers).tolist()
        }
        events = tuple(fleet.hardware.events[self._told_events :])
        self._told_events = len(fleet.hardware.events)
        return Reading(
            SCRAPE,
            now,
            sampled,
            {name: value for name, value in values.items() if name not in pipeline.gone},
            {name: value for name, value in histograms.items() if name not in pipeline.gone},
            events=events,
            failures=failures,
            tables={EntityKind.GPU: fleet.hardware.gpu_table(taken), EntityKind.NODE: fleet.hardware.node_table(taken)},
        )

    def close(self) -> None:
        """Nothing is open."""

    def _engine_values(self, now: float, answers: Bools) -> Mapping[str, Floats]:
        fleet = self._fleet
        engines, processes = fleet.engines, fleet.processes
        values: dict[str, Floats] = {
            "engine.process_start": processes.since.copy(),
            "engine.open_fds": 40.0 + engines.in_flight(),
            "engine.rss": np.full(len(answers), 2.0**31),
            "engine.running": engines.running.copy(),
            "engine.waiting": engines.waiting.copy(),
            "engine.waiting.capacity": engines.waiting - engines.deferred,
            "engine.waiting.deferred": engines.deferred.copy(),
            "engine.kv_usage": engines.kv_usage.copy(),
            **{name: counter.copy() for name, counter in engines.measures.counters.items()},
            **fleet.experts.shown(),
        }
        doubled = list(fleet.pipeline.doubled)
        for name in engines.measures.counters:
            values[name][doubled] *= 2.0
        values = {name: np.where(answers, value, np.nan) for name, value in values.items()}
        # These come from the orchestrator and are there while an engine's own metrics are not.
        values["engine.revision"] = processes.revision.copy()
        values["engine.starting_seconds"] = processes.starting_seconds(now)
        values["engine.memory_working_set"] = np.where(processes.up, processes.working_set, np.nan)
        values["engine.memory_limit"] = np.full(len(answers), LIMIT_BYTES)
        return values

    def _door_values(self) -> Mapping[str, Floats]:
        fleet = self._fleet
        door = fleet.door
        return {
            "door.in_flight": fleet.engines.in_flight().astype(np.float64),
            "door.drained": door.drained.astype(np.float64),
            "door.ejected": door.ejected.astype(np.float64),
            "door.weight": door.weight.copy(),
            **{name: counter.copy() for name, counter in door.measures.counters.items()},
        }
