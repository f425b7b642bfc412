"""A recording folder read back as telemetry: the readings and windows that the live fleet would have given, tick by tick.

Does not belong here: what the recorded faults should be called (the judge's business), thresholds, verdicts. Missing
samples stay missing: a tick between two scrapes has NaN in its column, as a late scrape has in the live loop.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from serving.fleet.entity import Entity, EntityKind
from serving.fleet.topology import EngineFacts, Relation, Topology
from serving.telemetry.experts import OWN_PREFIX, REDUCED, TOKENS, ExpertLoads, Key, key_of
from serving.telemetry.history import History
from serving.telemetry.reading import FailureKind, HistogramReading, Reading, RequestSpan, TargetFailure
from serving.telemetry.recording_files import (
    EVENTS,
    FAILED,
    LIVE,
    MANIFEST,
    SERIES,
    SPANS,
    Happening,
    RecordingError,
    cadence_of,
    check_manifest,
    raw_lines,
    read_labels,
    series_lines,
)
from serving.telemetry.registry import Combine, Job, Registry, SignalKind, SignalSpec, load_registry
from serving.telemetry.spans import REQUEST, SpanError, decode_json, request_span
from serving.telemetry.window import Window

Floats = NDArray[np.float64]

RECORDER = Entity(EntityKind.TELEMETRY, "recording")
DOOR = Entity(EntityKind.GATEWAY, "door")

__all__ = ["DOOR", "EVENTS", "RECORDER", "SERIES", "SPANS", "Happening", "Recording", "RecordingError", "read_labels"]

_COMBINED = {Combine.SUM: np.add, Combine.MAX: np.maximum, Combine.MIN: np.minimum}
_OF_TARGET = frozenset({"up", "scrape_duration_seconds"})
_TIMED_OUT = 0.5  # seconds a failed scrape took: a refusal comes back in milliseconds


@dataclass(frozen=True, slots=True, eq=False)
class _Track:
    """One signal over all ticks: `values` (engines, ticks) or, of a histogram, counts (engines, ticks, buckets)."""

    values: Floats
    taken: Floats
    bounds: Floats | None = None
    sums: Floats | None = None


class Recording:
    """One recording folder, read whole. Ticks are `interval` seconds apart, from the first sample to the last.

    `cadence` is how many seconds usually lie between two samples of a series; without an `interval` the ticks are that far
    apart, but not closer than the live loop's.
    `happenings` are the labels of the folder; none where it has no labels. Raises RecordingError when the folder lacks its
    series, or a line cannot be read.
    """

    def __init__(self, folder: Path | str, *, interval: float | None = LIVE, registry: Registry | None = None) -> None:
        self.folder = Path(folder)
        if not self.folder.is_dir():
            raise RecordingError(f"{self.folder} is no folder; a recording is a folder with {SERIES} in it")
        check_manifest(self.folder / MANIFEST)
        labels = self.folder / EVENTS
        self.happenings = read_labels(labels) if labels.exists() else ()
        lines = [line for line in series_lines(self.folder / SERIES) if len(line["values"])]
        if not lines:
            raise RecordingError(f"{self.folder / SERIES} holds no samples; record again")
        self.topology = _topology(lines)
        if not self.topology.engines:
            raise RecordingError(f"{self.folder / SERIES}: no series has a label `replica`, which names its engine; add it")
        self.cadence = cadence_of(lines)
        interval = interval or max(LIVE, float(np.ceil(self.cadence - 0.2)))
        self.interval = interval
        first = min(line["t0"] + line["values"][0][0] for line in lines)
        last = max(line["t0"] + line["values"][-1][0] for line in lines)
        self.times: Floats = first + interval * np.arange(1, int(np.ceil((last - first) / interval)) + 1)
        self._registry = registry or load_registry()
        loader = _Loader(self.topology, self.times, self._registry)
        self._tracks = loader.load(lines)
        self._failed = loader.failures(lines)

    @cached_property
    def spans(self) -> tuple[RequestSpan, ...]:
        """Every finished request's span, by its end; empty where the folder has no spans."""
        path = self.folder / SPANS
        if not path.exists():
            return ()
        found: list[RequestSpan] = []
        for number, line in enumerate(raw_lines(path), start=1):
            try:
                exported = decode_json(line)
            except SpanError as error:
                raise RecordingError(f"{path}, line {number}: {error}; cut the line or record again") from error
            found.extend(request_span(span, span.senders[0]) for span in exported if span.name == REQUEST and span.senders)
        return tuple(sorted(found, key=lambda span: span.end))

    def readings(self) -> Iterator[Reading]:
        """One Reading per tick: the samples taken since the tick before it."""
        ends = np.array([span.end for span in self.spans])
        for column, now in enumerate(self.times):
            first, last = np.searchsorted(ends, [now - self.interval, now], side="right")
            yield self._reading(column, float(now), self.spans[first:last])

    def windows(self, horizon: float = 600.0) -> Iterator[Window]:
        """One Window per tick over the last `horizon` seconds, as the live loop would have seen it."""
        history = History(self.topology, horizon, max(2, int(np.ceil(horizon / self.interval))))
        for reading in self.readings():
            yield history.window(reading.at, self.topology, (reading,))

    def _reading(self, column: int, now: float, spans: tuple[RequestSpan, ...]) -> Reading:
        values = {name: track.values[:, column] for name, track in self._tracks.items() if track.bounds is None}
        histograms = {
            name: HistogramReading(track.bounds, track.values[:, column], track.sums[:, column])
            for name, track in self._tracks.items()
            if track.bounds is not None and track.sums is not None
        }
        taken = {job: self._taken(job, column) for job in Job}
        return Reading(
            source=RECORDER,
            at=now,
            sampled_at=taken[Job.ENGINE],
            values=values,
            histograms=histograms,
            sampled_at_of={
                name: taken[self._registry.signals[name].job]
                for name in (*values, *histograms)
                if self._registry.signals[name].job is not Job.ENGINE
            },
            spans=spans,
            failures=self._failures(column, values),
        )

    def _taken(self, job: Job, column: int) -> Floats:
        """When the series of one job were sampled at this tick; NaN where they were not. Shape (engines,)."""
        times = [track.taken[:, column] for name, track in self._tracks.items() if self._registry.signals[name].job is job]
        nothing = np.full(len(self.topology.engines), np.nan)
        return np.asarray(np.fmax.reduce([nothing, *times]), dtype=np.float64)

    def _failures(self, column: int, values: Mapping[str, Floats]) -> dict[str, TargetFailure]:
        """What failed at this tick: as it was written down, else as `up` and the time it took tell."""
        failures = {
            target: TargetFailure(kind, f"the recorded scrape failed: {kind.value}")
            for target, kind in self._failed.get(column, {}).items()
        }
        up = values.get("scrape.up")
        if up is None:
            return failures
        took = values.get("scrape.seconds", np.full_like(up, np.nan))
        for row in np.flatnonzero(up == 0):
            kind = FailureKind.TIMEOUT if took[row] > _TIMED_OUT else FailureKind.REFUSED
            kind = FailureKind.OTHER if np.isnan(took[row]) else kind
            told = TargetFailure(kind, f"the recorded scrape failed after {took[row]:.1f} s")
            failures.setdefault(self.topology.engines[row].name, told)
        return failures


class _Loader:
    """Puts recorded series on the ticks, by canonical signal."""

    def __init__(self, topology: Topology, times: Floats, registry: Registry) -> None:
        self._topology = topology
        self._times = times
        self._registry = registry
        self._plain: dict[str, list[tuple[int, SignalSpec, str]]] = {}
        self._based: dict[str, list[str]] = {}
        for signal, spec in registry.signals.items():
            for rank, name in enumerate(() if spec.reduced else spec.names):
                if spec.kind is SignalKind.HISTOGRAM:
                    self._based.setdefault(name, []).append(signal)
                else:
                    self._plain.setdefault(name, []).append((rank, spec, signal))

    def load(self, lines: Iterable[dict[str, Any]]) -> dict[str, _Track]:
        """Every signal that the lines carry."""
        plain: dict[tuple[str, int], dict[int, list[dict[str, Any]]]] = {}
        buckets: dict[str, dict[int, dict[float, list[dict[str, Any]]]]] = {}
        loads: dict[int, list[dict[str, Any]]] = {}
        lines = tuple(lines)
        beside = _only_experts(lines)
        for line in lines:
            labels = line["metric"]
            row = self._topology.row_of.get(labels.get("replica", ""))
            if row is None or (labels["__name__"] in _OF_TARGET and labels.get("job", "") in beside):
                continue
            if labels["__name__"] == TOKENS and key_of(labels) is not None:
                loads.setdefault(row, []).append(line)
            for rank, spec, signal in self._plain.get(labels["__name__"], ()):
                if all(pattern.fullmatch(labels.get(label, "")) for label, pattern in spec.matchers):
                    plain.setdefault((signal, row), {}).setdefault(rank, []).append(line)
            base, _, suffix = labels["__name__"].rpartition("_")
            if suffix in ("bucket", "sum"):
                bound = _bound(labels.get("le", "")) if suffix == "bucket" else np.nan
                if bound is None:
                    continue
                for signal in self._based.get(base, ()):
                    buckets.setdefault(signal, {}).setdefault(row, {}).setdefault(bound, []).append(line)
        tracks: dict[str, _Track] = {}
        for (signal, row), ranked in plain.items():
            track = tracks.setdefault(signal, _Track(self._empty(), self._empty()))
            track.values[row], track.taken[row] = self._combined(ranked[min(ranked)], self._registry.signals[signal].combine)
        tracks |= {signal: self._histogram(rows) for signal, rows in buckets.items()}
        return tracks | (self._experts(loads) if REDUCED[0] in self._registry.signals else {})

    def failures(self, lines: Iterable[dict[str, Any]]) -> dict[int, dict[str, FailureKind]]:
        """What is written down of failed scrapes, by tick and target."""
        found: dict[int, dict[str, FailureKind]] = {}
        for line in lines:
            labels = line["metric"]
            if labels["__name__"] == FAILED and labels.get("kind") in set(FailureKind):
                _, at = self._placed(line)
                for column in np.flatnonzero(~np.isnan(at)):
                    found.setdefault(int(column), {})[labels.get("target", "")] = FailureKind(labels["kind"])
        return found

    def _empty(self, *tail: int) -> Floats:
        return np.full((len(self._topology.engines), len(self._times), *tail), np.nan)

    def _placed(self, line: dict[str, Any]) -> tuple[Floats, Floats]:
        """The line's samples and when they were taken, on the ticks: each is seen at the first tick at or after it."""
        pairs = line["values"]
        taken = line["t0"] + pairs[:, 0]
        column = np.minimum(np.searchsorted(self._times, taken - 1e-6), len(self._times) - 1)
        values, at = np.full(len(self._times), np.nan), np.full(len(self._times), np.nan)
        values[column] = pairs[:, 1]  # of two samples on one tick the later stays: numpy assigns in order
        at[column] = taken
        return values, at

    def _combined(self, lines: list[dict[str, Any]], combine: Combine) -> tuple[Floats, Floats]:
        """Several series of one engine (data-parallel ranks, processes) as one: values and when they were taken."""
        values, taken = self._placed(lines[0])
        for line in lines[1:]:
            others, at = self._placed(line)
            both = _COMBINED[combine](values, others)
            values = np.where(np.isnan(values), others, np.where(np.isnan(others), values, both))
            taken = np.fmax(taken, at)
        return values, taken

    def _experts(self, loads: Mapping[int, list[dict[str, Any]]]) -> dict[str, _Track]:
        """The counters of tokens per expert, reduced tick by tick as a live source reduces them."""
        tracks = {name: _Track(self._empty(), self._empty()) for name in REDUCED} if loads else {}
        reducer = ExpertLoads()
        for row, lines in loads.items():
            by_key: dict[Key, list[dict[str, Any]]] = {}
            for line in lines:
                key = key_of(line["metric"])
                if key is not None:
                    by_key.setdefault(key, []).append(line)
            placed = {key: self._combined(same, Combine.SUM) for key, same in by_key.items()}
            taken = np.fmax.reduce([at for _, at in placed.values()])
            for column in np.flatnonzero(~np.isnan(taken)):
                counts = {key: float(values[column]) for key, (values, _) in placed.items() if not np.isnan(values[column])}
                told = reducer.take(self._topology.engines[row].name, counts, float(taken[column]))
                for name, value in told.items():
                    tracks[name].values[row, column] = value
                    tracks[name].taken[row, column] = taken[column]
        return tracks

    def _histogram(self, rows: dict[int, dict[float, list[dict[str, Any]]]]) -> _Track:
        bounds = np.array(sorted({bound for series in rows.values() for bound in series if not np.isnan(bound)}))
        counts, sums, taken = self._empty(len(bounds)), self._empty(), self._empty()
        for row, by_bound in rows.items():
            for bound, lines in by_bound.items():
                values, at = self._combined(lines, Combine.SUM)
                if np.isnan(bound):
                    sums[row] = values
                else:
                    counts[row, :, int(np.searchsorted(bounds, bound))] = values
                taken[row] = np.fmax(taken[row], at)
        return _Track(counts, taken, bounds, sums)


def _only_experts(lines: Iterable[dict[str, Any]]) -> frozenset[str]:
    """The jobs that scrape counters of experts and no engines: whether those are up says nothing of the engines."""
    named: dict[str, set[str]] = {}
    for line in lines:
        labels = line["metric"]
        named.setdefault(labels.get("job", ""), set()).add(labels["__name__"].partition(":")[0])
        if labels["__name__"].startswith(OWN_PREFIX):
            named[labels.get("job", "")].add(OWN_PREFIX)
    return frozenset(job for job, kinds in named.items() if OWN_PREFIX in kinds and "vllm" not in kinds)


def _bound(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _topology(lines: Iterable[dict[str, Any]]) -> Topology:
    """The map that the labels tell: replicas on their nodes, behind one door, scraped by the recorder."""
    labels: dict[str, dict[str, str]] = {}
    for line in lines:
        metric = line["metric"]
        if "replica" in metric:
            known = {key: metric[key] for key in ("replica", "node", "model", "instance") if key in metric}
            labels.setdefault(metric["replica"], {}).update(known)
    facts: list[EngineFacts] = []
    relations: list[tuple[Entity, Relation, Entity]] = []
    for name, own in sorted(labels.items()):
        facts.append(EngineFacts(name, f"http://{own.get('instance', name)}", own.get("model", "unknown"), labels=own))
        engine = Entity.engine(name)
        if "node" in own:
            relations.append((engine, Relation.RUNS_ON, Entity(EntityKind.NODE, own["node"])))
        relations.append((DOOR, Relation.ROUTES_TO, engine))
        relations.append((engine, Relation.SCRAPED_BY, RECORDER))
    return Topology(facts, relations)
