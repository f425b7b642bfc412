"""A recording folder read back as telemetry: the readings and windows that the live fleet would have given, tick by tick.

Does not belong here: what the recorded faults should be called (the judge's business), thresholds, verdicts. Missing
samples stay missing: a tick between two scrapes has NaN in its column, as a late scrape has in the live loop.
"""

import gzip
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from serving.fleet.entity import Entity, EntityKind
from serving.fleet.topology import EngineFacts, Relation, Topology
from serving.telemetry.history import History
from serving.telemetry.reading import FailureKind, HistogramReading, Reading, RequestSpan, TargetFailure
from serving.telemetry.registry import Combine, Job, Registry, SignalKind, SignalSpec, load_registry
from serving.telemetry.spans import REQUEST, SpanError, decode_json, request_span
from serving.telemetry.window import Window

Floats = NDArray[np.float64]

RECORDER = Entity(EntityKind.TELEMETRY, "recording")
DOOR = Entity(EntityKind.GATEWAY, "door")

SERIES, EVENTS, SPANS = "series.jsonl.gz", "events.json", "spans.jsonl.gz"
_COMBINED = {Combine.SUM: np.add, Combine.MAX: np.maximum, Combine.MIN: np.minimum}
_TIMED_OUT = 0.5  # seconds a failed scrape took: a refusal comes back in milliseconds


class RecordingError(ValueError):
    """A recording folder that cannot be read. The text names the file, the line and what to do."""


@dataclass(frozen=True, slots=True)
class Happening:
    """One line of the truth: something was done to the fleet at `at` (Unix seconds), or observed meanwhile.

    `causes` are the names that it should be diagnosed by, where the line itself says so.
    """

    at: float
    fault: str
    target: str
    phase: str
    benign: bool = False
    how: str = ""
    causes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class _Track:
    """One signal over all ticks: `values` (engines, ticks) or, of a histogram, counts (engines, ticks, buckets)."""

    values: Floats
    taken: Floats
    bounds: Floats | None = None
    sums: Floats | None = None


class Recording:
    """One recording folder, read whole. Ticks are `interval` seconds apart, from the first sample to the last.

    `happenings` are the labels of the folder; none where it has no labels. Raises RecordingError when the folder lacks its
    series, or a line cannot be read.
    """

    def __init__(self, folder: Path | str, *, interval: float = 2.0, registry: Registry | None = None) -> None:
        self.folder = Path(folder)
        self.interval = interval
        labels = self.folder / EVENTS
        self.happenings = read_labels(labels) if labels.exists() else ()
        lines = [line for line in _lines(self.folder / SERIES) if line["values"]]
        if not lines:
            raise RecordingError(f"{self.folder / SERIES} holds no samples; record again")
        self.topology = _topology(lines)
        first = min(line["t0"] + line["values"][0][0] for line in lines)
        last = max(line["t0"] + line["values"][-1][0] for line in lines)
        self.times: Floats = first + interval * np.arange(1, int(np.ceil((last - first) / interval)) + 1)
        self._registry = registry or load_registry()
        self._tracks = _Loader(self.topology, self.times, self._registry).load(lines)

    @cached_property
    def spans(self) -> tuple[RequestSpan, ...]:
        """Every finished request's span, by its end; empty where the folder has no spans."""
        path = self.folder / SPANS
        if not path.exists():
            return ()
        found: list[RequestSpan] = []
        for number, line in enumerate(_raw_lines(path), start=1):
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
            failures=self._failures(values),
        )

    def _taken(self, job: Job, column: int) -> Floats:
        """When the series of one job were sampled at this tick; NaN where they were not. Shape (engines,)."""
        times = [track.taken[:, column] for name, track in self._tracks.items() if self._registry.signals[name].job is job]
        nothing = np.full(len(self.topology.engines), np.nan)
        return np.asarray(np.fmax.reduce([nothing, *times]), dtype=np.float64)

    def _failures(self, values: Mapping[str, Floats]) -> dict[str, TargetFailure]:
        up = values.get("scrape.up")
        if up is None:
            return {}
        took = values.get("scrape.seconds", np.full_like(up, np.nan))
        failures = {}
        for row in np.flatnonzero(up == 0):
            kind = FailureKind.TIMEOUT if took[row] > _TIMED_OUT else FailureKind.REFUSED
            kind = FailureKind.OTHER if np.isnan(took[row]) else kind
            failures[self.topology.engines[row].name] = TargetFailure(
                kind, f"the recorded scrape failed after {took[row]:.1f} s"
            )
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
            for rank, name in enumerate(spec.names):
                if spec.kind is SignalKind.HISTOGRAM:
                    self._based.setdefault(name, []).append(signal)
                else:
                    self._plain.setdefault(name, []).append((rank, spec, signal))

    def load(self, lines: Iterable[dict[str, Any]]) -> dict[str, _Track]:
        """Every signal that the lines carry."""
        plain: dict[tuple[str, int], dict[int, list[dict[str, Any]]]] = {}
        buckets: dict[str, dict[int, dict[float, dict[str, Any]]]] = {}
        for line in lines:
            labels = line["metric"]
            row = self._topology.row_of.get(labels.get("replica", ""))
            if row is None:
                continue
            for rank, spec, signal in self._plain.get(labels["__name__"], ()):
                if all(pattern.fullmatch(labels.get(label, "")) for label, pattern in spec.matchers):
                    plain.setdefault((signal, row), {}).setdefault(rank, []).append(line)
            base, _, suffix = labels["__name__"].rpartition("_")
            if suffix in ("bucket", "sum"):
                bound = float(labels["le"]) if suffix == "bucket" else np.nan
                for signal in self._based.get(base, ()):
                    buckets.setdefault(signal, {}).setdefault(row, {})[bound] = line
        tracks: dict[str, _Track] = {}
        for (signal, row), ranked in plain.items():
            track = tracks.setdefault(signal, _Track(self._empty(), self._empty()))
            self._combine(track, row, ranked[min(ranked)], self._registry.signals[signal].combine)
        return tracks | {signal: self._histogram(rows) for signal, rows in buckets.items()}

    def _empty(self, *tail: int) -> Floats:
        return np.full((len(self._topology.engines), len(self._times), *tail), np.nan)

    def _placed(self, line: dict[str, Any]) -> tuple[Floats, Floats]:
        """The line's samples and when they were taken, on the ticks: each is seen at the first tick at or after it."""
        pairs = np.array(line["values"], dtype=np.float64)
        taken = line["t0"] + pairs[:, 0]
        column = np.minimum(np.searchsorted(self._times, taken - 1e-6), len(self._times) - 1)
        values, at = np.full(len(self._times), np.nan), np.full(len(self._times), np.nan)
        values[column] = pairs[:, 1]  # of two samples on one tick the later stays: numpy assigns in order
        at[column] = taken
        return values, at

    def _combine(self, track: _Track, row: int, lines: list[dict[str, Any]], combine: Combine) -> None:
        for line in lines:
            values, at = self._placed(line)
            before = track.values[row].copy()
            both = _COMBINED[combine](before, values)
            track.values[row] = np.where(np.isnan(before), values, np.where(np.isnan(values), before, both))
            track.taken[row] = np.fmax(track.taken[row], at)

    def _histogram(self, rows: dict[int, dict[float, dict[str, Any]]]) -> _Track:
        bounds = np.array(sorted({bound for series in rows.values() for bound in series if not np.isnan(bound)}))
        counts, sums, taken = self._empty(len(bounds)), self._empty(), self._empty()
        for row, by_bound in rows.items():
            for bound, line in by_bound.items():
                values, at = self._placed(line)
                if np.isnan(bound):
                    sums[row] = values
                else:
                    counts[row, :, int(np.searchsorted(bounds, bound))] = values
                taken[row] = np.fmax(taken[row], at)
        return _Track(counts, taken, bounds, sums)


def _raw_lines(path: Path) -> Iterator[bytes]:
    try:
        with gzip.open(path, "rb") as file:
            yield from file
    except (OSError, EOFError) as error:
        raise RecordingError(f"{path} cannot be read ({error}); is {path.parent} a recording folder?") from error


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(_raw_lines(path), start=1):
        try:
            told = orjson.loads(line)
            yield {"metric": dict(told["metric"]), "t0": float(told["t0"]), "values": list(told["values"])}
        except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
            what = "is not a series with metric, t0 and values"
            raise RecordingError(f"{path}, line {number} {what} ({error}); cut the line or record again") from error


def read_labels(path: Path) -> tuple[Happening, ...]:
    """The labels of a recording: what was really done to the fleet. Raises RecordingError."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RecordingError(f"{path} cannot be read ({error}); is {path.parent} a recording folder?") from error
    try:
        told = json.loads(text)
    except json.JSONDecodeError as wrong:
        raise RecordingError(f"{path}, line {wrong.lineno} is no JSON ({wrong.msg}); correct it") from wrong
    if not isinstance(told, list):
        raise RecordingError(f"{path} holds no list; labels are a list of events with t, fault, target and phase")
    return tuple(_happening(path, number, one) for number, one in enumerate(told, start=1))


def _happening(path: Path, number: int, one: Any) -> Happening:
    try:
        return Happening(
            at=float(one["t"]),
            fault=str(one["fault"]),
            target=str(one["target"]),
            phase=str(one["phase"]),
            benign=bool(one.get("benign")),
            how=str(one.get("how", "")),
            causes=tuple(map(str, one.get("causes", ()))),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        what = f"event {number} has no readable t, fault, target and phase ({type(error).__name__}: {error})"
        raise RecordingError(f"{path}: {what}; correct that event") from error


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
