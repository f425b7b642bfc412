"""Users: arrivals with the lengths and the rhythm of recorded production traffic, and what makes them unusual.

The traces are one hour each of two services (Azure LLM inference traces of November 2023, CC-BY-4.0, see traces/LICENSE):
when requests came, tokens of context and tokens generated. Rates follow the trace's minutes, and a day and a week on top.
"""

from dataclasses import dataclass, field
from functools import cache
from importlib import resources

import numpy as np
from numpy.typing import NDArray

from serving.virtual.given import GivenRequests
from serving.virtual.plan import FleetPlan
from serving.virtual.queues import Requests

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

DAY_S, WEEK_S = 86_400.0, 7 * 86_400.0
DAY_SWING, WEEKEND = 0.35, 0.8  # busiest and quietest hour against the mean; Saturday and Sunday against other days
MINUTE_S = 60.0


@dataclass(frozen=True, slots=True)
class Trace:
    """One hour of requests: lengths of each, and how busy each minute was against the mean."""

    prompt: Floats
    output: Floats
    minutes: Floats


@cache
def load_trace(name: str) -> Trace:
    """The trace `conv` (chat) or `code` (completion of program text)."""
    with (resources.files("serving.virtual") / "traces" / "azure_2023.npz").open("rb") as file:
        kept = np.load(file)
        seconds, prompt, output = (
            np.asarray(kept[f"{name}_{part}"], dtype=np.float64) for part in ("seconds", "prompt", "output")
        )
    minutes = np.bincount((seconds // MINUTE_S).astype(np.intp))[:-1].astype(np.float64)
    return Trace(prompt, np.maximum(output, 1.0), minutes / minutes.mean())


@dataclass(slots=True)
class Flood:
    """Requests that go straight to one engine, past the door: `rps`, with the given lengths, until `until`."""

    row: int
    rps: float
    prompt: float
    output: float
    until: float = np.inf


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Requests that come to the door in a tick, in no order: model, when, prompt tokens, tokens to generate."""

    model: Ints
    arrived: Floats
    prompt: Floats
    output: Floats


@dataclass
class Users:
    """The users of all models. The public columns (one a model) are levers."""

    plan: FleetPlan
    rng: np.random.Generator
    trace: str = "conv"
    rate: Floats = field(init=False)  # times the usual rate
    long_share: Floats = field(init=False)  # of prompts that are long_tokens long instead
    long_tokens: Floats = field(init=False)
    endless_share: Floats = field(init=False)  # of answers that go on for endless_tokens
    endless_tokens: Floats = field(init=False)
    floods: dict[str, Flood] = field(default_factory=dict)
    recorded: GivenRequests | None = None  # requests as somebody wrote them down, beside those that are drawn

    def __post_init__(self) -> None:
        models = len(self.plan.models)
        self._usual = np.array([model.rps * model.engines for model in self.plan.models])
        self.rate = np.ones(models)
        self.long_share, self.long_tokens = np.zeros(models), np.full(models, 8_000.0)
        self.endless_share, self.endless_tokens = np.zeros(models), np.full(models, 8_000.0)
        self._trace = load_trace(self.trace)

    def rhythm(self, now: float) -> float:
        """The rate at `now` against its mean over the week: minutes of the trace, hour of the day, day of the week."""
        hour = 1.0 - DAY_SWING * np.cos(2.0 * np.pi * (now % DAY_S) / DAY_S)
        day = WEEKEND if (now % WEEK_S) // DAY_S in (2.0, 3.0) else 1.0  # Unix time began on a Thursday
        minute = self._trace.minutes[int(now // MINUTE_S) % len(self._trace.minutes)]
        return float(hour * day * (0.5 + 0.5 * minute))

    def arrivals(self, now: float, dt: float) -> Arrivals:
        """Who comes to the door in the tick that begins at `now`."""
        counts = self.rng.poisson(self._usual * self.rate * self.rhythm(now) * dt)
        model = np.repeat(np.arange(len(counts)), counts)
        drawn = self.rng.integers(0, len(self._trace.prompt), len(model))
        prompt, output = self._trace.prompt[drawn], self._trace.output[drawn]
        long = self.rng.uniform(size=len(model)) < self.long_share[model]
        endless = self.rng.uniform(size=len(model)) < self.endless_share[model]
        return Arrivals(
            model,
            now + dt * self.rng.uniform(size=len(model)),
            np.where(long, self.long_tokens[model], prompt),
            np.where(endless, self.endless_tokens[model], output),
        )

    def flooding(self, now: float, dt: float) -> Requests:
        """What floods send to their engines in the tick that begins at `now`."""
        for name in [name for name, flood in self.floods.items() if flood.until <= now]:
            del self.floods[name]
        floods = list(self.floods.values())
        counts = self.rng.poisson([flood.rps * dt for flood in floods]) if floods else np.zeros(0, dtype=np.intp)
        of = np.repeat(np.arange(len(floods)), counts)

        def each(name: str) -> Floats:
            return np.array([getattr(flood, name) for flood in floods], dtype=np.float64)[of] if floods else np.zeros(0)

        scatter = self.rng.uniform(0.8, 1.2, len(of))
        arrived = now + dt * self.rng.uniform(size=len(of))
        return Requests(each("row").astype(np.intp), arrived, each("prompt") * scatter, each("output") * scatter)
