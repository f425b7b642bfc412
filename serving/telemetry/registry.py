"""The signal registry: signals.yaml as checked, frozen specifications.

Does not belong here: how a series is fetched (the sources) or found among others (serving.telemetry.selection).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from importlib import resources
from types import MappingProxyType
from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, RootModel, model_validator

from serving.yaml_file import parse_strict


class SignalKind(StrEnum):
    """What a series' numbers mean."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


class Job(StrEnum):
    """Who exposes a series: the engine, its counter of tokens per expert, the front door, or the scraper itself.

    ORCHESTRATOR is whoever runs the engines. No scrape and no Prometheus is asked for its series: sources that know the
    orchestrator fill them in.
    """

    ENGINE = "engine"
    EXPERTS = "experts"
    DOOR = "door"
    SCRAPE = "scrape"
    GPU = "gpu"
    NODE = "node"
    ORCHESTRATOR = "orchestrator"


class Combine(StrEnum):
    """How several series of one engine (data-parallel ranks, processes) become one value."""

    SUM = "sum"
    MAX = "max"
    MIN = "min"


def _metric_name(name: str) -> str:
    if not re.fullmatch(r"[a-zA-Z_:][a-zA-Z0-9_:]*", name):
        raise ValueError("is not a name that Prometheus allows for a metric")
    return name


def _version(text: str) -> str:
    if not re.fullmatch(r"\d+(\.\d+)*", text):
        raise ValueError('is not a version: write it as "0.11" or "0.10.2", in quotes')
    return text


def _selector(text: str) -> str:
    try:
        re.compile(text.removeprefix("~"))
    except re.error as wrong:
        raise ValueError(f"is not a regular expression: {wrong}") from None
    return text


MetricName = Annotated[str, AfterValidator(_metric_name)]
Version = Annotated[str, AfterValidator(_version)]
Selector = Annotated[str, AfterValidator(_selector)]


class SignalSpec(BaseModel):
    """One signal as signals.yaml says it.

    `names` are newest first: a source takes the first that an engine exposes. `where` selects series by label: equal to
    the text, or matching it whole as a regular expression where it begins with `~`. `since` and `until` give, by name,
    the first and the last version of vLLM that exposes it by default; they inform people, nothing is decided by them.
    A histogram is combined by summing its buckets. A `reduced` signal is worked out from all series of its names together
    (serving.telemetry.experts) and not combined here. An `optional` signal is exposed only by some deployments, so its
    absence is not worth a word.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: SignalKind
    unit: str = Field(min_length=1)
    help: str = Field(min_length=1)
    names: tuple[MetricName, ...] = Field(min_length=1)
    job: Job = Job.ENGINE
    combine: Combine = Combine.SUM
    reduced: bool = False
    optional: bool = False
    where: Mapping[str, Selector] = Field(default_factory=dict)
    since: Mapping[MetricName, Version] = Field(default_factory=dict)
    until: Mapping[MetricName, Version] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        if self.kind is SignalKind.HISTOGRAM and self.combine is not Combine.SUM:
            raise ValueError("a histogram can only be combined by sum")
        strangers = sorted({*self.since, *self.until} - set(self.names))
        if strangers:
            raise ValueError(f"since and until speak of names that are not among `names`: {', '.join(strangers)}")
        if len(set(self.names)) != len(self.names):
            raise ValueError("`names` holds one name twice")
        return self

    @property
    def exposed(self) -> tuple[str, ...]:
        """Every exposition name that this signal is made from, newest first."""
        if self.kind is SignalKind.HISTOGRAM:
            return tuple(name + suffix for name in self.names for suffix in ("_bucket", "_sum"))
        return self.names

    @cached_property
    def matchers(self) -> tuple[tuple[str, re.Pattern[str]], ...]:
        """`where` as (label, pattern that the label's whole value must match)."""
        return tuple(
            (label, re.compile(text[1:] if text.startswith("~") else re.escape(text))) for label, text in self.where.items()
        )


class _SignalsFile(RootModel[dict[str, SignalSpec]]):
    """signals.yaml: specifications by canonical name."""


@dataclass(frozen=True, slots=True, eq=False)
class Registry:
    """All signals by canonical name, in the order of the file."""

    signals: Mapping[str, SignalSpec]

    def of_job(self, job: Job) -> Mapping[str, SignalSpec]:
        """The signals that one job exposes."""
        return {name: spec for name, spec in self.signals.items() if spec.job is job}

    def wanted(self, *jobs: Job) -> frozenset[str]:
        """All exposition names wanted from these jobs; from all jobs when none is named."""
        specs = (spec for spec in self.signals.values() if not jobs or spec.job in jobs)
        return frozenset(name for spec in specs for name in spec.exposed)


def parse_registry(text: str, name: str) -> Registry:
    """Read a registry from YAML text. Raises serving.yaml_file.FileError with every mistake."""
    return Registry(MappingProxyType(dict(parse_strict(text, _SignalsFile, name).root)))


def load_registry() -> Registry:
    """The registry that ships with this package."""
    text = resources.files("serving.telemetry").joinpath("signals.yaml").read_text("utf-8")
    return parse_registry(text, "serving/telemetry/signals.yaml")
