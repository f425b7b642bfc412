"""Telemetry out of a Prometheus (or any PromQL-compatible store) that already scrapes the fleet.

Each reading asks for instants only; the past is kept by serving.telemetry.history. Three queries carry everything: the
scalar series by a regular expression over all names, new and old (the newest name that an engine exposes is used, engine
by engine); the histograms likewise; and when each target was sampled, as `timestamp(up)`. A series without an `up` takes
the time of its heartbeat. Series that Prometheus has marked stale are not in the answers, so they are missing here too.
"""

import math
import queue
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from pydantic import SecretStr

from serving.clock import Clock
from serving.fleet.entity import Entity, EntityKind
from serving.fleet.topology import Topology
from serving.telemetry.experts import ExpertLoads, only_counts_experts
from serving.telemetry.exposition import Samples
from serving.telemetry.prometheus_targets import EngineFinder, TargetKey, TargetSeries, host_and_port, merge
from serving.telemetry.promql import PromqlClient, PromqlError, Series
from serving.telemetry.reading import FailureKind, Reading, TargetFailure
from serving.telemetry.registry import Job, Registry, SignalKind
from serving.telemetry.selection import columns, select
from serving.telemetry.window import Event

Floats = NDArray[np.float64]

DOUBLED = "telemetry.doubled"

_DOOR = Entity(EntityKind.GATEWAY, "door")
_MARGIN = 0.9  # of the deadline is given to the queries; the rest is for sorting the answers
_NO_LABELS: Mapping[str, str] = {}
_OF_TARGET = frozenset({"up", "scrape_duration_seconds"})
_OWN = (Job.ENGINE, Job.EXPERTS, Job.SCRAPE)
_HEARTBEATS = {Job.ENGINE: "vllm:iteration_tokens_total_count", Job.DOOR: "door:inflight_requests"}
"""Series that every engine, and every door, always has: they tell the sampling time where a store holds no `up`."""
_HEARTBEAT = "fleetwarden_heartbeat"  # the label that says whose heartbeat it was, since timestamp() drops the name


class PrometheusSource:
    """Reads engines and front door out of the store at `url` (base URL). `match` narrows every query by labels."""

    def __init__(
        self,
        clock: Clock,
        registry: Registry,
        url: str,
        *,
        match: Mapping[str, str] = _NO_LABELS,
        bearer_token: SecretStr | None = None,
        timeout: float = 5.0,
        name: str = "prometheus",
    ) -> None:
        self._clock = clock
        self._registry = registry
        self._client = PromqlClient(clock, url, bearer_token)
        self._entity = Entity(EntityKind.TELEMETRY, name)
        self._timeout = timeout
        self._queries = Queries.of(registry, match)
        self._doubled: dict[Entity, list[TargetKey]] = {}
        self._experts = ExpertLoads()
        self._asking: threading.Thread | None = None
        self._closed = False

    @property
    def entity(self) -> Entity:
        return self._entity

    def read(self, topology: Topology, now: float, deadline: float) -> Reading:
        if self._closed:
            return self._blind(topology, now, "this source was closed")
        if self._asking is not None and self._asking.is_alive():
            return self._blind(topology, now, f"{self._client.shown_url} still owes the answer of an earlier reading")
        answers: queue.SimpleQueue[Answers | str] = queue.SimpleQueue()
        self._asking = threading.Thread(
            target=self._ask, args=(deadline * _MARGIN, answers), name=f"{self._entity.name}-queries", daemon=True
        )
        self._asking.start()
        try:
            said = answers.get(timeout=deadline)
        except queue.Empty:
            said = f"{self._client.shown_url} gave no answer in {deadline:.1f} s; it is overloaded or cannot be reached"
        if isinstance(said, str):
            return self._blind(topology, now, said)
        return self.reading(topology, said)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._client.close()

    def _ask(self, seconds: float, answers: "queue.SimpleQueue[Answers | str]") -> None:
        """Ask everything and put the answers, or a sentence about why there are none."""
        ends = self._clock.monotonic() + seconds
        try:
            said = [
                self._client.ask(query, min(self._timeout, ends - self._clock.monotonic()))
                for query in self._queries.in_order
            ]
            answers.put(Answers(*said))
        except PromqlError as failed:
            answers.put(str(failed))
        except Exception as failed:  # noqa: BLE001 - whatever broke must be said by the reading, not lost on this thread
            answers.put(f"{self._client.shown_url} could not be read: {type(failed).__name__}: {failed}")

    def reading(self, topology: Topology, said: "Answers") -> Reading:
        """What the answers to the three queries say of the engines, wherever and whenever they were given."""
        rows = len(topology.engines)
        finder = EngineFinder(topology)
        engines, doors = _by_engine(said, finder, self._registry)
        engines_merged = {row: merge(targets.values(), only_same_instance=False) for row, targets in engines.items()}
        doors_merged = {row: merge(targets.values(), only_same_instance=True) for row, targets in doors.items()}
        kept_engines = {row: kept for row, (kept, _) in engines_merged.items()}
        kept_doors = {row: kept for row, (kept, _) in doors_merged.items()}
        events = [
            *(event for row, merged in engines_merged.items() for event in self._doubles(topology.engines[row], [merged])),
            *self._doubles(_DOOR, list(doors_merged.values())),
        ]
        own = {name: spec for job in _OWN for name, spec in self._registry.of_job(job).items()}
        samples = {row: _together(t) for row, t in kept_engines.items()}
        values, histograms = columns({row: select(said, own) for row, said in samples.items()}, rows, own)
        sampled_at = _sampled_at(kept_engines, rows)
        values.update(self._experts.columns(samples, [engine.name for engine in topology.engines], sampled_at))
        door_specs = self._registry.of_job(Job.DOOR)
        chosen = {row: select(_together(t), door_specs) for row, t in kept_doors.items()}
        door_values, door_histograms = columns(chosen, rows, door_specs)
        return Reading(
            source=self._entity,
            at=self._clock.now(),
            sampled_at=sampled_at,
            values={**values, **door_values},
            histograms={**histograms, **door_histograms},
            sampled_at_of=dict.fromkeys([*door_values, *door_histograms], _sampled_at(kept_doors, rows)),
            events=tuple(events),
            failures=self._failures(topology, kept_engines),
        )

    def _doubles(self, entity: Entity, merged: list[tuple[list[TargetSeries], list[TargetSeries]]]) -> list[Event]:
        """The event that says that something is scraped twice, when that begins or changes."""
        again = sorted({target.key for _, doubled in merged for target in doubled})
        if again == self._doubled.get(entity, []):
            return []
        self._doubled[entity] = again
        if not again:
            return []
        used = ", ".join(sorted({_named(target.key) for kept, _ in merged for target in kept}))
        left_out = ", ".join(map(_named, again))
        text = f"{entity.name} is scraped twice: by {used}, and again by {left_out}, which is left out; drop one scrape job"
        return [Event(self._clock.now(), DOUBLED, entity, text)]

    def _failures(self, topology: Topology, kept: Mapping[int, list[TargetSeries]]) -> dict[str, TargetFailure]:
        failures = {}
        for row, engine in enumerate(topology.engines):
            targets = kept.get(row)
            facts = topology.facts(engine)
            if not targets:
                sought = ", ".join(f'{name}="{value}"' for name, value in facts.labels.items())
                sought = sought or f'instance="{host_and_port(facts)}"'
                what = f"{self._client.shown_url} has no series with {sought}; is it scraped there, under these labels?"
                failures[engine.name] = TargetFailure(FailureKind.OTHER, what)
            elif all(target.up == 0.0 for target in targets):
                what = (
                    f"{self._client.shown_url} could not scrape it at its last try (up is 0); its page of targets says why"
                )
                failures[engine.name] = TargetFailure(FailureKind.OTHER, what)
        return failures

    def _blind(self, topology: Topology, now: float, error: str) -> Reading:
        return Reading(self._entity, now, np.full(len(topology.engines), np.nan), error=error)


@dataclass(frozen=True, slots=True)
class Queries:
    """The queries of one reading."""

    scalars: str
    histograms: str
    stamps: str

    @property
    def in_order(self) -> tuple[str, str, str]:
        """The queries in the order of Answers."""
        return (self.scalars, self.histograms, self.stamps)

    @classmethod
    def of(cls, registry: Registry, match: Mapping[str, str]) -> "Queries":
        """The queries for all signals of `registry`."""
        specs = [spec for spec in registry.signals.values() if spec.job is not Job.ORCHESTRATOR]
        scalars = {name for spec in specs if spec.kind is not SignalKind.HISTOGRAM for name in spec.exposed}
        histograms = {name for spec in specs if spec.kind is SignalKind.HISTOGRAM for name in spec.exposed}
        narrowed = "".join(f",{label}={_quoted(value)}" for label, value in match.items())
        stamped = [f"timestamp({_by_name({'up'}, narrowed)})"]
        for job, name in _HEARTBEATS.items():
            stamped.append(f'label_replace(timestamp({_by_name({name}, narrowed)}), "{_HEARTBEAT}", "{job}", "", "")')
        return cls(
            scalars=_by_name(scalars, narrowed),
            histograms=_by_name(histograms, narrowed),
            stamps=" or ".join(stamped),
        )


@dataclass(frozen=True, slots=True)
class Answers:
    """What the three queries brought."""

    scalars: list[Series]
    histograms: list[Series]
    stamps: list[Series]


@dataclass(slots=True)
class _Stamps:
    """When samples were taken, by target and, for stores that hold no `up`, by the row of the engine."""

    of_target: dict[TargetKey, float] = field(default_factory=dict)
    of_engine: dict[int, float] = field(default_factory=dict)
    of_door: dict[int, float] = field(default_factory=dict)


Grouped = dict[int, dict[TargetKey, TargetSeries]]


def _by_engine(said: Answers, finder: EngineFinder, registry: Registry) -> tuple[Grouped, Grouped]:
    """The engines' own series and the front door's, by the row of the engine and by target."""
    door_names = registry.wanted(Job.DOOR)
    ups = {TargetKey.of(labels): (labels, value) for labels, value in said.scalars if labels.get("__name__") == "up"}
    stamps = _stamps(said.stamps, set(ups), finder)
    engines: Grouped = {}
    doors: Grouped = {}
    for labels, value in (*said.scalars, *said.histograms):
        name = labels.get("__name__", "")
        door = name in door_names
        row = finder.row_of_replica(labels) if door else finder.row(labels)
        if row is None:
            continue
        key = TargetKey.of(labels)
        targets = (doors if door else engines).setdefault(row, {})
        if key not in targets:
            own, up = ups.get(key, (_NO_LABELS, math.nan))
            by_row = stamps.of_door if door else stamps.of_engine
            targets[key] = TargetSeries(key, own, stamps.of_target.get(key, by_row.get(row, math.nan)), up)
        targets[key].samples.setdefault(name, []).append((labels, value))
    return engines, doors


def _stamps(said: Iterable[Series], scraped: set[TargetKey], finder: EngineFinder) -> _Stamps:
    stamps = _Stamps()
    for labels, taken in said:
        key = TargetKey.of(labels)
        if key in scraped:
            stamps.of_target[key] = max(taken, stamps.of_target.get(key, taken))
            continue
        door = labels.get(_HEARTBEAT) == Job.DOOR
        row = finder.row_of_replica(labels) if door else finder.row(labels)
        if row is not None:
            by_row = stamps.of_door if door else stamps.of_engine
            by_row[row] = min(taken, by_row.get(row, taken))
    return stamps


def _together(targets: list[TargetSeries]) -> Samples:
    """The samples of all targets of one engine. Whether a counter of experts is up says nothing of the engine itself."""
    if len(targets) == 1:
        return targets[0].samples
    beside = [only_counts_experts(target.samples) for target in targets]
    names = {name for target in targets for name in target.samples}
    return {
        name: [
            sample
            for target, apart in zip(targets, beside, strict=True)
            if not (apart and name in _OF_TARGET)
            for sample in target.samples.get(name, ())
        ]
        for name in names
    }


def _sampled_at(kept: Mapping[int, list[TargetSeries]], rows: int) -> Floats:
    """When each engine was sampled: with several targets, when the one looked at longest ago was."""
    taken = np.full(rows, np.nan)
    for row, targets in kept.items():
        taken[row] = min((target.sampled_at for target in targets), default=math.nan)
    return taken


def _by_name(names: set[str], narrowed: str) -> str:
    return f"{{__name__=~{_quoted('|'.join(sorted(names)))}{narrowed}}}"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _named(key: TargetKey) -> str:
    return f"job {key.job} ({key.instance})"
