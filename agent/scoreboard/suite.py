"""The suite: the trials of a run, every number of them drawn from ranges by a seed. Pure.

The tables are `suites.yaml`. Nothing a detector goes by is in them: they say how strong a fault may be, not how it shows.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from typing import Annotated, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from agent.scoreboard.trial import FaultSpec, FleetSize, TrialKind, TrialSpec
from serving.yaml_file import parse_strict

SUITES = "suites.yaml"


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Range(_Strict):
    """Numbers between `least` and `most`, both included; `whole` ones; on a scale of ratios where `ratio` is set."""

    least: float
    most: float
    whole: bool = False
    ratio: bool = False

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.most < self.least or (self.ratio and self.least <= 0):
            raise ValueError("`least` must not be above `most`, and above 0 on a scale of ratios")
        return self

    def draw(self, rng: np.random.Generator) -> float:
        """One number."""
        if self.whole:
            return float(rng.integers(round(self.least), round(self.most) + 1))
        if self.ratio:
            return float(np.exp(rng.uniform(np.log(self.least), np.log(self.most))))
        return float(rng.uniform(self.least, self.most))


Choice = dict[str, Annotated[float, Field(gt=0)]]
"""Words with their weights."""


class Drawn(_Strict):
    """How one fault or decoy varies. A trial lasts `lasts` seconds at most, unless it is repaired before."""

    lasts: Range
    onsets: Choice = Field(default_factory=lambda: {"sudden": 1.0})
    hits: Range = Range(least=1, most=1, whole=True)
    numbers: dict[str, Range] = Field(default_factory=dict)


class Fleets(_Strict):
    """The fleets that trials run on."""

    engines: Range
    models: Range
    tp: Choice
    rps: Range
    experts: Range
    warm_up: Annotated[float, Field(ge=0)]


class Healthy(_Strict):
    """Time in which nothing is wrong, on a fleet of its own."""

    trials: Annotated[int, Field(ge=0)]
    engines: Annotated[int, Field(ge=1)]
    lasts: Annotated[float, Field(gt=0)]


class Suite(_Strict):
    """How many trials one seed makes: of each fault and decoy alone, and of two different ones at once."""

    fleets: Annotated[int, Field(ge=1)]
    singles: Annotated[int, Field(ge=0)]
    pairs: Annotated[int, Field(ge=0)]
    decoys: Annotated[int, Field(ge=0)]
    decoy_pairs: Annotated[int, Field(ge=0)]
    healthy: Healthy


class Tables(_Strict):
    """suites.yaml."""

    fleets: Fleets
    begins: Range
    after: Annotated[float, Field(ge=0)]
    faults: dict[str, Drawn]
    decoys: dict[str, Drawn]
    suites: dict[str, Suite]


@cache
def load_tables() -> Tables:
    """The shipped tables. Raises FileError with every mistake."""
    text = resources.files("agent.scoreboard").joinpath(SUITES).read_text("utf-8")
    return parse_strict(text, Tables, f"agent/scoreboard/{SUITES}")


def draw_suite(name: str, seeds: int, seed: int, tables: Tables) -> tuple[TrialSpec, ...]:
    """All trials of suite `name`, for `seeds` seeds from `seed` on, those on the same fleet next to each other.

    A seed's trials do not depend on how many seeds there are, so a longer run contains a shorter one. Raises KeyError for an
    unknown suite and ValueError for no seeds.
    """
    if seeds < 1:
        raise ValueError(f"a suite needs at least one seed, not {seeds}")
    suite = tables.suites[name]
    drawn = [spec for one in range(seed, seed + seeds) for spec in _of_seed(suite, one, tables)]
    return tuple(_numbered(spec, number) for number, spec in enumerate(drawn))


def _numbered(spec: TrialSpec, number: int) -> TrialSpec:
    return TrialSpec(number, spec.kind, spec.seed, spec.fleet, spec.faults, spec.lasts, spec.after)


def _of_seed(suite: Suite, seed: int, tables: Tables) -> Iterator[TrialSpec]:
    rng = np.random.default_rng([seed, 1])
    fleets = [_fleet(tables.fleets, rng, seed * 1_000 + number) for number in range(suite.fleets)]
    kinds = [
        *((TrialKind.FAULT, (name,)) for name in tables.faults for _ in range(suite.singles)),
        *((TrialKind.PAIR, _two(tables.faults, rng)) for _ in range(suite.pairs)),
        *((TrialKind.DECOY, (name,)) for name in tables.decoys for _ in range(suite.decoys)),
        *((TrialKind.DECOY_PAIR, _two(tables.decoys, rng)) for _ in range(suite.decoy_pairs)),
    ]
    order = rng.permutation(len(kinds))
    share = max(1, -(-len(kinds) // len(fleets)))
    for place, at in enumerate(order.tolist()):
        kind, names = kinds[at]
        yield _trial(kind, names, fleets[place // share], seed * 1_000_000 + place, rng, tables)
    for number in range(suite.healthy.trials):
        yield _healthy(suite.healthy, seed, number, rng, tables)


def _two(table: Mapping[str, Drawn], rng: np.random.Generator) -> tuple[str, ...]:
    names = list(table)
    return tuple(names[at] for at in rng.choice(len(names), size=min(2, len(names)), replace=False).tolist())


def _trial(
    kind: TrialKind, names: tuple[str, ...], fleet: FleetSize, seed: int, rng: np.random.Generator, tables: Tables
) -> TrialSpec:
    table = tables.faults if kind.faulty else tables.decoys
    faults = tuple(_fault(name, table[name], rng, tables) for name in names)
    ends = max(fault.at + fault.lasts for fault in faults)
    return TrialSpec(0, kind, seed, fleet, faults, ends, tables.after)


def _fault(name: str, drawn: Drawn, rng: np.random.Generator, tables: Tables) -> FaultSpec:
    return FaultSpec(
        name=name,
        at=float(round(tables.begins.draw(rng))),
        lasts=float(round(drawn.lasts.draw(rng))),
        aim=float(rng.uniform()),
        onset=_word(drawn.onsets, rng),
        hits=int(drawn.hits.draw(rng)),
        parameters=tuple((key, round(span.draw(rng), 4)) for key, span in drawn.numbers.items()),
    )


def _healthy(healthy: Healthy, seed: int, number: int, rng: np.random.Generator, tables: Tables) -> TrialSpec:
    fleet = _fleet(tables.fleets, rng, seed * 1_000 + 900 + number)
    large = FleetSize(healthy.engines, fleet.models, fleet.tp, fleet.rps, fleet.experts, fleet.seed, fleet.warm_up)
    return TrialSpec(0, TrialKind.HEALTHY, seed * 1_000_000 + 900_000 + number, large, (), healthy.lasts, 0.0)


def _fleet(fleets: Fleets, rng: np.random.Generator, seed: int) -> FleetSize:
    return FleetSize(
        engines=int(fleets.engines.draw(rng)),
        models=int(fleets.models.draw(rng)),
        tp=int(_word(fleets.tp, rng)),
        rps=round(fleets.rps.draw(rng), 3),
        experts=int(fleets.experts.draw(rng)),
        seed=seed,
        warm_up=fleets.warm_up,
    )


def _word(choice: Choice, rng: np.random.Generator) -> str:
    words, weights = list(choice), np.array(list(choice.values()))
    return words[int(rng.choice(len(words), p=weights / weights.sum()))]
