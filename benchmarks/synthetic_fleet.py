"""A fleet of any size as readings: healthy noise from a seed, and a handful of faulty engines whatever its size.

Each tick is one Reading with 25 signals (20 scalars, 5 histograms with the buckets of vLLM 0.32), as a source hands it on.
It is synthetic: rates, not requests, are drawn. It shows what a step costs, and says nothing about how well it judges.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from serving.fleet.entity import Entity, EntityKind
from serving.fleet.topology import EngineFacts, Relation, Topology
from serving.telemetry.reading import HistogramReading, Reading

Floats = NDArray[np.float64]

BEGIN = 1_800_000_000.0
SCRAPE = Entity(EntityKind.TELEMETRY, "scrape")
DOOR = Entity(EntityKind.GATEWAY, "door")
CELL = Entity(EntityKind.CELL, "cell-0")
ENGINES_PER_NODE = 8
ZONES = 4
MODELS, HARDWARE = 5, ("h100", "h200")
FAULTY = ("hung", "dead", "slow", "gc", "prefill", "kv")

# The bucket bounds of vLLM 0.32.0.
TTFT = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0)
TTFT_BOUNDS = np.array([*TTFT, 160.0, 640.0, 2560.0, np.inf])
GAP = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0)
GAP_BOUNDS = np.array([*GAP, np.inf])
LONG = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0)
LONG_BOUNDS = np.array([*LONG, 1920.0, 7680.0, np.inf])
TOKEN_BOUNDS = np.array([1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, np.inf])


def topology_of(engines: int) -> Topology:
    """The map: eight engines a node, four zones, ten groups of true peers, one door, one source that scrapes all."""
    kinds = [(f"model-{m}", hardware) for m in range(MODELS) for hardware in HARDWARE]
    facts, relations = [], []
    for number in range(engines):
        model, hardware = kinds[number % len(kinds)]
        name, node = f"engine-{number}", Entity(EntityKind.NODE, f"node-{number // ENGINES_PER_NODE}")
        facts.append(EngineFacts(name, f"http://10.0.0.1:{number}", model, hardware))
        engine = Entity.engine(name)
        relations += [(engine, Relation.RUNS_ON, node), (engine, Relation.SCRAPED_BY, SCRAPE)]
        relations.append((DOOR, Relation.ROUTES_TO, engine))
    for number in range(-(-engines // ENGINES_PER_NODE)):
        node, zone = Entity(EntityKind.NODE, f"node-{number}"), Entity(EntityKind.ZONE, f"zone-{number % ZONES}")
        relations += [(node, Relation.MEMBER_OF, zone), (zone, Relation.MEMBER_OF, CELL)]
    return Topology(facts, dict.fromkeys(relations))


@dataclass
class SyntheticFleet:
    """`engines` engines from tick to tick, `interval` seconds apart; from `break_at` (Unix seconds) on, six are ill.

    `faults` gives the row of each ill engine by what is wrong with it.
    """

    engines: int
    interval: float = 2.0
    seed: int = 1
    break_at: float = np.inf
    faults: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        self.topology = topology_of(self.engines)
        self._rng = np.random.default_rng(self.seed)
        rows = self._rng.choice(self.engines, size=len(FAULTY), replace=False)
        self.faults = {name: int(row) for name, row in zip(FAULTY, rows, strict=True)}
        self._usual = np.exp(
            self._rng.normal(0.0, 0.05, self.engines)
        )  # how much slower than the others an engine always is
        self._counted: dict[str, Floats] = {}
        self._stuck = np.zeros(self.engines)
        self._start = np.full(self.engines, BEGIN - 86_400.0)

    def reading(self, now: float) -> Reading:
        """What the fleet's source says at `now`. Ticks must be asked for in order."""
        values = self._drawn(now >= self.break_at)
        dead = np.zeros(self.engines, dtype=bool)
        if now >= self.break_at:
            dead[self.faults["dead"]] = True
        scalars, histograms = values
        for name, series in scalars.items():
            if name.startswith("engine."):
                series[dead] = np.nan
        for told in histograms.values():
            told.counts[dead], told.sums[dead] = np.nan, np.nan
        scalars["scrape.up"] = np.where(dead, 0.0, 1.0)
        scalars["scrape.seconds"] = np.where(dead, 0.001, self._around(0.02))
        return Reading(SCRAPE, now, np.full(self.engines, now), scalars, histograms)

    def _drawn(self, broken: bool) -> tuple[dict[str, Floats], dict[str, HistogramReading]]:  # noqa: FBT001 - one caller
        rng, rows = self._rng, self.faults
        came = rng.poisson(2.0 * self.interval, self.engines).astype(np.float64)
        prompt, ttft, gap = self._around(80.0), self._around(0.06), self._around(0.012)
        prefill, queue, kv, waiting = self._around(0.03), self._around(0.0005), self._around(0.05), np.zeros(self.engines)
        pauses = rng.binomial(1, 0.01, self.engines).astype(np.float64)
        preempted, moving = np.zeros(self.engines), np.ones(self.engines)
        if broken:
            moving[[rows["hung"], rows["dead"]]] = 0.0
            gap[rows["slow"]] *= 4.0
            pauses[rows["gc"]] = 1.0
            at = rows["prefill"]
            prompt[at], ttft[at], prefill[at], queue[at], waiting[at] = 1500.0, 4.0, 1.5, 3.0, 12.0
            at = rows["kv"]
            kv[at], preempted[at], waiting[at], queue[at] = 0.97, 3.0, 6.0, 2.0
        done = came * moving
        self._stuck = (self._stuck + came) * (1.0 - moving)
        tokens = 30.0 * done
        inside = np.round(2.0 * (ttft + 30.0 * gap))
        scalars = {
            "engine.process_start": self._start.copy(),
            "engine.running": np.where(moving > 0, inside, 3.0),
            "engine.waiting": waiting,
            "engine.waiting.capacity": waiting.copy(),
            "engine.kv_usage": kv,
            "door.in_flight": inside * moving + self._stuck + waiting,
            "door.drained": np.zeros(self.engines),
        }
        grown = {
            "engine.steps": np.ceil(tokens * 0.8),
            "engine.step_tokens": tokens + done * prompt,
            "engine.prompt_tokens": done * prompt,
            "engine.generation_tokens": tokens,
            "engine.preemptions": preempted,
            "engine.finished.length": done,
            "door.started": came,
            "door.finished.ok": done,
            "door.finished.connection": self._only("dead", came) if broken else np.zeros(self.engines),
            "door.finished.client_closed": rng.binomial(1, 0.01, self.engines).astype(np.float64),
            "door.finished.timeout": np.zeros(self.engines),
        }
        scalars |= {name: self._count(name, step) for name, step in grown.items()}
        histograms = {
            "engine.ttft": self._histogram("engine.ttft", TTFT_BOUNDS, done, ttft),
            "engine.inter_token": self._histogram("engine.inter_token", GAP_BOUNDS, tokens, gap, np.minimum(pauses, tokens)),
            "engine.queue_time": self._histogram("engine.queue_time", LONG_BOUNDS, done, queue),
            "engine.prefill_time": self._histogram("engine.prefill_time", LONG_BOUNDS, done, prefill),
            "engine.prompt_length": self._histogram("engine.prompt_length", TOKEN_BOUNDS, done, prompt),
        }
        return scalars, histograms

    def _around(self, middle: float) -> Floats:
        """`middle` times each engine's own habit times this tick's noise."""
        return np.asarray(middle * self._usual * np.exp(self._rng.normal(0.0, 0.15, self.engines)))

    def _only(self, fault: str, values: Floats) -> Floats:
        alone = np.zeros(self.engines)
        alone[self.faults[fault]] = values[self.faults[fault]]
        return alone

    def _count(self, name: str, step: Floats) -> Floats:
        """The counter `name` after growing by `step`."""
        before = self._counted.get(name)
        self._counted[name] = total = (before if before is not None else np.full(self.engines, 1000.0)) + step
        return total.copy()

    def _histogram(
        self, name: str, bounds: Floats, count: Floats, value: Floats, paused: Floats | None = None
    ) -> HistogramReading:
        """`count` observations at `value`, of which `paused` waited 0.35 s instead."""
        parts = [(count, value)] if paused is None else [(count - paused, value), (paused, np.full(self.engines, 0.35))]
        counts, sums = self._counted.setdefault(name, np.zeros((self.engines, len(bounds) + 1))), np.zeros(self.engines)
        for number, at in parts:
            place = np.searchsorted(bounds, at)
            counts[:, :-1] += number[:, None] * (np.arange(len(bounds)) >= place[:, None])
            sums += number * at
        counts[:, -1] += sums
        return HistogramReading(bounds, counts[:, :-1].copy(), counts[:, -1].copy())
