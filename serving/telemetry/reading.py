"""The port of telemetry: what a source hands on at each reading."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from serving.fleet.entity import Entity, EntityKind
from serving.fleet.topology import Topology
from serving.telemetry.window import Event

Floats = NDArray[np.float64]


class FailureKind(StrEnum):
    """Why a target gave no measurements. Refused means that nothing listens; timeout that something may still live."""

    REFUSED = "refused"
    TIMEOUT = "timeout"
    STATUS = "status"
    GARBAGE = "garbage"
    TOO_LARGE = "too_large"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class TargetFailure:
    """One target's failed answer. `detail` is a sentence that a tired person can act on."""

    kind: FailureKind
    detail: str


@dataclass(frozen=True, slots=True, eq=False)
class HistogramReading:
    """One histogram at one moment: `bounds` (buckets,), cumulative `counts` (engines, buckets), `sums` (engines,)."""

    bounds: Floats
    counts: Floats
    sums: Floats


@dataclass(frozen=True, slots=True, eq=False)
class TableReading:
    """Scalar signals of things that are no engines, one row an entity of `entities`, all of one kind.

    `sampled_at` (entities,) and each array of `values` (entities,) as in a Reading.
    """

    entities: tuple[Entity, ...]
    sampled_at: Floats
    values: Mapping[str, Floats]


@dataclass(frozen=True, slots=True)
class RequestSpan:
    """One finished request, from a `llm_request` span. Times in seconds; None where the span does not say."""

    engine: str
    start: float
    end: float
    queue: float | None
    prefill: float | None
    decode: float | None
    transfer: float | None
    prompt_tokens: int
    completion_tokens: int


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """What one source said at one reading. Every array has one row per engine of the topology it was asked for.

    `sampled_at` is when the source took each engine's samples (Unix seconds, NaN where it has none). `values` and
    `histograms` are by canonical signal name; NaN is missing. `sampled_at_of` has the sampling times of those signals that
    were not taken together with the engine's (the front door's, say). `failures` are by engine name, or `door` for the
    front door. `tables` are the things that are no engines, by kind. `error` is set when the source as a whole failed:
    then everything else is empty.
    """

    source: Entity
    at: float
    sampled_at: Floats
    values: Mapping[str, Floats] = field(default_factory=lambda: MappingProxyType({}))
    histograms: Mapping[str, HistogramReading] = field(default_factory=lambda: MappingProxyType({}))
    sampled_at_of: Mapping[str, Floats] = field(default_factory=lambda: MappingProxyType({}))
    spans: tuple[RequestSpan, ...] = ()
    events: tuple[Event, ...] = ()
    failures: Mapping[str, TargetFailure] = field(default_factory=lambda: MappingProxyType({}))
    tables: Mapping[EntityKind, TableReading] = field(default_factory=lambda: MappingProxyType({}))
    error: str = ""


class Source(Protocol):
    """One source of telemetry.

    `read` returns within `deadline` seconds, always, and never raises: what failed is said in the Reading.
    """

    @property
    def entity(self) -> Entity:
        """The source itself on the map, of kind TELEMETRY."""
        ...

    def read(self, topology: Topology, now: float, deadline: float) -> Reading:
        """Read everything this source knows of the engines of `topology`."""
        ...

    def close(self) -> None:
        """Release connections and threads; the source is not read again."""
        ...
