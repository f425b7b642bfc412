"""A recording's own schedule, lived through by a fleet in virtual time: the same requests, the same faults, the same looks.

Requests are those of the client's log, each at its moment to its engine; floods, surges and clients that leave are in them.
What was done to processes moves the same levers as the faults of serving.virtual.faults do. Nothing is drawn from a trace.
"""

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from serving.clock import FakeClock
from serving.fleet.entity import Entity, EntityKind
from serving.simulator.timing import StepTiming
from serving.telemetry.history import History
from serving.telemetry.recording import Happening, Recording
from serving.telemetry.window import Window
from serving.virtual.faults.catalogue import FAULTS
from serving.virtual.faults.kind import Injection
from serving.virtual.fleet import VirtualFleet
from serving.virtual.given import GivenRequests
from serving.virtual.plan import FleetPlan, ModelPlan
from serving.virtual.queues import Requests
from serving.virtual.source import VirtualSource

Floats = NDArray[np.float64]

HORIZON_S = 200.0  # longer than any phase that is asked about
FIRST_PORT = 8201  # of tiny-0; the others follow
TIME_LIMIT_S = 30.0  # of every client
IN_ITS_TIME_S = 29.0  # a client that left before that did so because it was told to
BLOCK_TOKENS = 128
KV_BLOCKS = {"vllm-0.32-a": 192, "vllm-0.32-b": 20}
SEQUENCES, BATCH_TOKENS = 16, 2_048.0
# The recorded engines shared two cores with each other and with strangers. In the first, healthy part of the recording
# about a quarter of the time went by in gaps between tokens of more than 0.2 s, half a second long in the mean.
NOISE_S, NOISE_EVERY_S = 0.6, 2.3
# A collection over the live heap made gaps mostly of 1 to 2.5 s; one every 4 s here, and "about every 3 s" in events.json.
LEVERS: dict[str, tuple[str, dict[str, float]]] = {
    "engine_hang": ("engine-hang", {}),
    "worker_hang": ("worker-hang", {}),
    "api_hang": ("api-hang", {}),
    "engine_killed": ("engine-kill", {}),
    "gc_stall": ("gc-stall", {"pause_s": 1.75, "every_s": 4.0}),
    "slow_worker": ("slow-engine", {"factor": 2.0}),
}


@dataclass(frozen=True)
class ClientLog:
    """The client's view of all requests, in the order they came. `first`: seconds to the first token, NaN without one."""

    row: NDArray[np.intp]
    came: Floats
    prompt: Floats
    output: Floats
    first: Floats
    whole: Floats
    result: NDArray[np.str_]

    @classmethod
    def read(cls, folder: Path) -> "ClientLog":
        """The log of a recording folder."""
        with gzip.open(folder / "requests.jsonl.gz") as file:
            lines = sorted((json.loads(line) for line in file), key=lambda line: line["t"])

        def column(name: str) -> Floats:
            return np.array([np.nan if line[name] is None else line[name] for line in lines], dtype=np.float64)

        return cls(
            row=column("port").astype(np.intp) - FIRST_PORT,
            came=column("t"),
            prompt=column("plen"),
            output=column("olen"),
            first=column("ttft"),
            whole=column("e2e"),
            result=np.array([line["res"] for line in lines]),
        )

    def given(self) -> GivenRequests:
        """The same requests for a virtual fleet. Who left early leaves as early; all others leave at their time limit."""
        told = (self.result == "TimeoutError") & (self.whole < IN_ITS_TIME_S)
        return GivenRequests(
            Requests(self.row, self.came, self.prompt, self.output),
            self.came + np.where(told, self.whole, TIME_LIMIT_S),
            self.result == "400",
        )


@dataclass(frozen=True)
class Part:
    """A part of a recording: what was done to whom, from `start` to `end` (Unix seconds)."""

    fault: str
    target: str
    start: float
    end: float

    def rows(self, engines: int) -> list[int]:
        """The rows of its targets."""
        return list(range(engines)) if self.target == "all" else [int(self.target.rpartition("-")[2])]


def parts(happenings: tuple[Happening, ...]) -> tuple[Part, ...]:
    """The parts that have a start and an end, in order."""
    begun: dict[tuple[str, str], float] = {}
    found: list[Part] = []
    for one in happenings:
        key = (one.fault, one.target)
        if one.phase == "start":
            begun[key] = one.at
        elif one.phase == "end" and key in begun:
            found.append(Part(*key, begun.pop(key), one.at))
    return tuple(found)


def plan_of(folder: Path, seed: int) -> FleetPlan:
    """Three engines with the figures of the recorded ones."""
    step = StepTiming()
    model = ModelPlan(
        name="tiny",
        engines=3,
        hardware="cpu",
        step_base=step.base,
        per_prefill_token=step.per_prefill_token,
        per_decode_sequence=step.per_decode_sequence,
        kv_tokens=float(KV_BLOCKS[folder.name] * BLOCK_TOKENS),
        batch_tokens=BATCH_TOKENS,
        block_tokens=float(BLOCK_TOKENS),
    )
    return FleetPlan((model,), slots=SEQUENCES, seed=seed)


def play(recording: Recording, log: ClientLog, seed: int = 0) -> Iterator[Window]:
    """The windows of a fleet in virtual time that lives through the recording's schedule, at the recording's own moments."""
    times = recording.times
    fleet = VirtualFleet(plan_of(recording.folder, seed), FakeClock(float(times[0]) - recording.interval))
    fleet.users.rate[:] = 0.0
    fleet.users.recorded = log.given()
    fleet.patience = np.inf  # each client's own is in the list
    _disturb(fleet, np.arange(len(recording.topology.engines)))
    _plan_faults(fleet, recording)
    source = VirtualSource(fleet)
    history = History(fleet.topology, HORIZON_S, int(HORIZON_S / recording.interval))
    for _ in times:
        fleet.advance(recording.interval)
        reading = source.read(fleet.topology, fleet.now, recording.interval)
        yield history.window(fleet.now, fleet.topology, (reading,))


def recorded(recording: Recording) -> Iterator[Window]:
    """The windows of the recording itself."""
    return recording.windows(HORIZON_S)


def _plan_faults(fleet: VirtualFleet, recording: Recording) -> None:
    for part in parts(recording.happenings):
        if part.fault not in LEVERS:
            continue
        name, given = LEVERS[part.fault]
        running: list[Injection] = []
        fleet.at(part.start, partial(_begin, fleet, name, part.target, given, running))
        if part.fault == "engine_killed":
            ready = next(one for one in recording.happenings if one.fault == "restart" and one.phase == "ready")
            fleet.at(ready.at, partial(_ready, fleet, part.target))
        fleet.at(part.end, partial(_undo, fleet, part, running))


def _begin(fleet: VirtualFleet, name: str, target: str, given: dict[str, float], running: list[Injection]) -> None:
    running.append(Injection(fleet, FAULTS[name], [Entity(EntityKind.ENGINE, target)], given))


def _undo(fleet: VirtualFleet, part: Part, running: list[Injection]) -> None:
    for one in running:
        one.undo()
    _disturb(fleet, np.array(part.rows(len(fleet.engines.slow))))  # a fault of pauses and a restart end the neighbours' too


def _disturb(fleet: VirtualFleet, rows: NDArray[np.intp]) -> None:
    """Neighbours take the processor away, at each engine at another moment."""
    pauses = fleet.engines.pauses
    pauses.length[rows], pauses.every[rows] = NOISE_S, NOISE_EVERY_S
    pauses.since[rows] = fleet.now - NOISE_EVERY_S * (1.0 + rows / len(pauses.length))


def _ready(fleet: VirtualFleet, target: str) -> None:
    """The restarted engine is ready at the moment at which the recorded one was."""
    row = np.array([fleet.row(target)])
    fleet.restart(row)
    fleet.processes.ready_at[row] = fleet.now
