"""A fleet written down as rates: healthy noise from a seed, faults and decoys painted over it, and the Window that results.

Everything is an array (engines, ticks) that a test may change before `window()` draws the counters, so a fault is a few
assignments. A `standing` engine makes no step and finishes nothing, its gauges keep their last value and what arrives
piles up at the door; a target that is not `up` gives no samples of its own.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from serving.fleet.entity import Entity, EntityKind
from serving.fleet.topology import EngineFacts, Relation, Topology
from serving.telemetry.columns import HistogramMatrix, SignalMatrix
from serving.telemetry.counters import last_present
from serving.telemetry.window import SourceStatus, Window

Floats = NDArray[np.float64]

NOW = 1_800_000_000.0
SCRAPE = Entity(EntityKind.TELEMETRY, "scrape")
DOOR = Entity(EntityKind.GATEWAY, "door")
SECONDS = np.array([0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.5, 5.0, 10.0, 40.0, np.inf])
OUTSIDE = {"engine.revision", "engine.starting_seconds", "engine.memory_working_set", "engine.memory_limit"}
TOKENS = np.array([50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0, np.inf])


@dataclass
class Fleet:
    """`engines` engines of one model over `seconds`, read every `interval` seconds."""

    engines: int = 4
    seconds: float = 300.0
    interval: float = 2.0
    seed: int = 1
    groups: int = 1
    spread: float = 0.15  # standard deviation of the logarithm of times, from reading to reading
    changed: dict[str, Floats] = field(default_factory=dict)

    def __post_init__(self) -> None:
        ticks = round(self.seconds / self.interval)
        self.shape = (self.engines, ticks)
        self.times = NOW - self.interval * np.arange(ticks - 1, -1, -1)
        self.rng = np.random.default_rng(self.seed)
        full = self._full
        self.arrivals, self.ttft, self.itl = full(2.0), full(0.06), full(0.012)
        self.prompt, self.output = full(80.0), full(30.0)
        self.queue, self.prefill = full(0.0005), full(0.03)
        self.waiting, self.kv, self.preempted = full(0.0), full(0.05), full(0.0)
        self.running: Floats | None = None
        self.leaving, self.broken = full(0.0), full(0.0)  # share of the finished
        self.gap_share, self.gap = full(0.0), full(0.4)  # pauses: how many tokens' waits are that long
        self.standing = full(0.0).astype(bool)
        self.up, self.took = full(1.0), full(0.02)
        self.start = full(NOW - 86_400.0)
        self.awake = full(1.0)
        self.sources: tuple[SourceStatus, ...] = (SourceStatus(SCRAPE, NOW),)

    def _full(self, value: float) -> Floats:
        return np.full(self.shape, value)

    def last(self, seconds: float) -> slice:
        """The columns of the last `seconds`."""
        return slice(max(0, self.shape[1] - round(seconds / self.interval)), None)

    @property
    def topology(self) -> Topology:
        names = [f"e-{number}" for number in range(self.engines)]
        facts = [EngineFacts(name, f"http://{name}", f"m-{row % self.groups}") for row, name in enumerate(names)]
        relations = []
        for row, name in enumerate(names):
            engine = Entity.engine(name)
            relations.append((engine, Relation.RUNS_ON, Entity(EntityKind.NODE, f"n-{row // 2}")))
            relations.append((engine, Relation.SCRAPED_BY, SCRAPE))
            relations.append((DOOR, Relation.ROUTES_TO, engine))
        return Topology(facts, relations)

    def window(self, *, without: tuple[str, ...] = ()) -> Window:
        """Draw the counters and make the window; signals that begin with one of `without` are left out."""
        signals, histograms = self._draw()
        at = np.broadcast_to(self.times, self.shape)
        absent = self.up == 0
        made = {}
        for name, values in (signals | self.changed).items():
            own = name.startswith("engine.") and name not in OUTSIDE
            made[name] = SignalMatrix(
                np.where(absent, np.nan, values) if own else values, np.where(absent & own, np.nan, at)
            )
        drawn = {}
        for name, (bounds, counts, sums) in histograms.items():
            own_counts = np.where(absent[:, :, None], np.nan, counts)
            drawn[name] = HistogramMatrix(bounds, own_counts, np.where(absent, np.nan, sums), np.where(absent, np.nan, at))
        return Window(
            now=NOW,
            topology=self.topology,
            times=self.times,
            signals={name: matrix for name, matrix in made.items() if not name.startswith(without or ("no such",))},
            histograms={name: matrix for name, matrix in drawn.items() if not name.startswith(without or ("no such",))},
            sources=self.sources,
        )

    def _draw(self) -> tuple[dict[str, Floats], dict[str, tuple[Floats, Floats, Floats]]]:
        rng, working = self.rng, ~self.standing
        jitter = np.exp(rng.normal(0.0, self.spread, self.shape))
        came = rng.poisson(self.arrivals * self.interval).astype(np.float64)
        done = np.where(working, came, 0.0)
        left, broken = rng.binomial(done.astype(int), self.leaving), rng.binomial(done.astype(int), self.broken)
        served = done - np.minimum(done, left + broken)
        tokens = done * self.output
        inside = rng.poisson(self.arrivals * (self.ttft + self.output * self.itl)).astype(np.float64)
        piled = self._since_standing(came)
        running = inside if self.running is None else self.running
        gauges = {
            "engine.running": self._held(np.where(working, np.minimum(running, 64.0), np.nan)),
            "engine.waiting": self._held(np.where(working, self.waiting, np.nan)),
            "engine.kv_usage": self._held(np.where(working, self.kv, np.nan)),
            "engine.open_fds": 35.0 + inside + piled,
            "engine.process_start": self.start,
            "engine.awake": self.awake,
            "door.in_flight": inside * working + piled + self.waiting,
            "scrape.up": self.up,
            "scrape.seconds": self.took,
        }
        gauges["engine.waiting.capacity"] = gauges["engine.waiting"]
        moving = {
            "engine.steps": np.where(working, np.maximum(np.ceil(tokens * 0.8), inside > 0), 0.0),
            "engine.step_tokens": tokens + done * self.prompt,
            "engine.prompt_tokens": done * self.prompt,
            "engine.prompt_tokens.computed": done * self.prompt,
            "engine.generation_tokens": tokens,
            "engine.preemptions": rng.poisson(self.preempted * self.interval).astype(np.float64),
            "engine.finished.length": served,
            "engine.finished.stop": np.zeros(self.shape),
            "door.started": came,
            "door.finished.ok": served,
            "door.finished.client_closed": left.astype(np.float64),
            "door.finished.timeout": np.zeros(self.shape),
            "door.finished.connection": broken.astype(np.float64),
            "door.finished.http_5xx": np.zeros(self.shape),
        }
        counters = {name: self._counted(steps, own=name.startswith("engine.")) for name, steps in moving.items()}
        gaps = rng.binomial(tokens.astype(int), self.gap_share).astype(np.float64)
        histograms = {
            "engine.ttft": self._histogram(SECONDS, done, self.ttft * jitter),
            "engine.inter_token": self._histogram(SECONDS, tokens, self.itl * jitter, (gaps, self.gap)),
            "engine.queue_time": self._histogram(SECONDS, done, self.queue),
            "engine.prefill_time": self._histogram(SECONDS, done, self.prefill * jitter),
            "engine.prompt_length": self._histogram(TOKENS, done, self.prompt * jitter),
            "engine.generation_length": self._histogram(TOKENS, done, self.output * jitter),
        }
        return gauges | counters, histograms

    def _since_standing(self, came: Floats) -> Floats:
        """What has arrived at each engine since it stands still."""
        piled, count = np.zeros(self.shape), np.zeros(self.engines)
        for tick in range(self.shape[1]):
            count = np.where(self.standing[:, tick], count + came[:, tick], 0.0)
            piled[:, tick] = count
        return piled

    def _counted(self, steps: Floats, *, own: bool) -> Floats:
        """A counter that has long been counting; the engine's own begin at zero again with a new process."""
        total = 1000.0 + np.cumsum(steps, axis=1)
        if own:
            anew = np.diff(self.start, axis=1, prepend=self.start[:, :1]) > 0
            before = np.maximum.accumulate(np.where(anew, total - steps, 0.0), axis=1)
            total = total - before
        return total

    @staticmethod
    def _held(values: Floats) -> Floats:
        return np.nan_to_num(last_present(values))

    def _histogram(
        self, bounds: Floats, count: Floats, value: Floats, far: tuple[Floats, Floats] | None = None
    ) -> tuple[Floats, Floats, Floats]:
        """All observations of a reading at `value`, but for `far[0]` of them at `far[1]`."""
        parts = [(count, value)] if far is None else [(np.maximum(count - far[0], 0.0), value), far]
        buckets, sums = np.zeros((*self.shape, len(bounds))), np.zeros(self.shape)
        rows, ticks = np.indices(self.shape)
        for number, at in parts:
            np.add.at(buckets, (rows, ticks, np.searchsorted(bounds, at)), number)
            sums += number * at
        counts = np.cumsum(buckets, axis=2)
        counted = np.stack([self._counted(counts[:, :, place], own=True) for place in range(len(bounds))], axis=2)
        return bounds, counted, self._counted(sums, own=True)
