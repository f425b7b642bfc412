"""A recording folder read back as telemetry: the same canonical readings and windows that the live fleet gives, tick by tick.

Does not belong here: what the recorded faults should be called (the judge's business), thresholds, verdicts. Missing
samples stay missing: a tick between two scrapes has NaN in its column, as a late scrape has in the live loop.
"""

import gzip
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import orjson
import yaml
from numpy.typing import NDArray

from serving.fleet.entity import Entity, EntityKind
from serving.fleet.topology import EngineFacts, Relation, Topology
from serving.telemetry.reading import FailureKind, HistogramReading, Reading, RequestSpan, TargetFailure
from serving.telemetry.window import HistogramMatrix, SignalMatrix, SourceStatus, Window

Floats = NDArray[np.float64]

RECORDER = Entity(EntityKind.TELEMETRY, "recording")
DOOR = Entity(EntityKind.GATEWAY, "door")


class RecordingError(ValueError):
    """A recording folder that cannot be read. The text names the file, the line and what to do."""


@dataclass(frozen=True, slots=True)
class Happening:
    """One line of the truth: something was done to the fleet at `at` (Unix seconds)."""

    at: float
    fault: str
    target: str
    phase: str
    benign: bool = False
    how: str = ""


@dataclass(frozen=True, slots=True)
class _Name:
    """Where a series goes: its canonical signal, how well its name ranks among the signal's names, how to combine."""

    signal: str
    rank: int
    combine: str
    where: Mapping[str, str]
    histogram: bool

    def wants(self, labels: Mapping[str, str]) -> bool:
        for label, value in self.where.items():
            said = labels.get(label, "")
            if not (re.fullmatch(value[1:], said) if value.startswith("~") else said == value):
                return False
        return True


def _names(path: Path) -> dict[str, list[_Name]]:
    by_name: dict[str, list[_Name]] = {}
    for signal, spec in yaml.safe_load(path.read_text()).items():
        for rank, name in enumerate(spec["names"]):
            entry = _Name(signal, rank, spec.get("combine", "sum"), spec.get("where", {}), spec["kind"] == "histogram")
            by_name.setdefault(name, []).append(entry)
    return by_name


@dataclass(slots=True, eq=False)
class _Series:
    """One recorded series of one engine, put on the ticks."""

    values: Floats
    sampled_at: Floats


class Recording:
    """One recording folder, read whole. Ticks are `interval` seconds apart, from the first sample to the last.

    Raises RecordingError when the folder lacks its series or truth, or a line cannot be read.
    """

    def __init__(self, folder: Path | str, *, interval: float = 2.0) -> None:
        self.folder = Path(folder)
        self.interval = interval
        self.happenings = _happenings(self.folder / "events.json")
        raw = list(_lines(self.folder / "series.jsonl.gz"))
        if not raw:
            raise RecordingError(f"{self.folder / 'series.jsonl.gz'} holds no series; record again")
        self.topology = _topology(raw)
        first = min(line["t0"] + line["values"][0][0] for line in raw if line["values"])
        last = max(line["t0"] + line["values"][-1][0] for line in raw if line["values"])
        self.times: Floats = first + interval * np.arange(1, int(np.ceil((last - first) / interval)) + 1)
        self._signals: dict[str, SignalMatrix] = {}
        self._histograms: dict[str, HistogramMatrix] = {}
        self._load(raw)

    @cached_property
    def spans(self) -> tuple[RequestSpan, ...]:
        """Every finished request's span, by its end; empty where the folder has no spans."""
        path = self.folder / "spans.jsonl.gz"
        if not path.exists():
            return ()
        found = [span for export in _lines(path) for span in _request_spans(export)]
        return tuple(sorted(found, key=lambda span: span.end))

    def readings(self) -> Iterator[Reading]:
        """One Reading per tick: the samples taken since the tick before it."""
        ends = np.array([span.end for span in self.spans])
        for column, now in enumerate(self.times):
            first, last = np.searchsorted(ends, [now - self.interval, now], side="right")
            up = self._signals["scrape.up"].values[:, column] if "scrape.up" in self._signals else np.array([])
            yield Reading(
                source=RECORDER,
                at=float(now),
                sampled_at=self._sampled_at(column),
                values={name: matrix.values[:, column] for name, matrix in self._signals.items()},
                histograms={
                    name: HistogramReading(matrix.bounds, matrix.counts[:, column], matrix.sums[:, column])
                    for name, matrix in self._histograms.items()
                },
                spans=self.spans[first:last],
                failures={
                    self.topology.engines[row].name: TargetFailure(FailureKind.OTHER, "the recorded scrape failed")
                    for row in np.flatnonzero(up == 0)
                },
            )

    def windows(self, horizon: float = 600.0) -> Iterator[Window]:
        """One Window per tick over the last `horizon` seconds, as the live loop would have seen it."""
        for column, now in enumerate(self.times):
            first = max(0, column + 1 - int(horizon / self.interval))
            yield self._window(float(now), slice(first, column + 1))

    def _window(self, now: float, columns: slice) -> Window:
        return Window(
            now=now,
            topology=self.topology,
            times=self.times[columns],
            signals=MappingProxyType(
                {name: SignalMatrix(m.values[:, columns], m.sampled_at[:, columns]) for name, m in self._signals.items()}
            ),
            histograms=MappingProxyType(
                {
                    name: HistogramMatrix(m.bounds, m.counts[:, columns], m.sums[:, columns], m.sampled_at[:, columns])
                    for name, m in self._histograms.items()
                }
            ),
            sources=(SourceStatus(RECORDER, now),),
        )

    def _sampled_at(self, column: int) -> Floats:
        taken = [matrix.sampled_at[:, column] for matrix in self._signals.values()]
        with np.errstate(invalid="ignore"):
            newest = np.fmax.reduce(taken)
        return np.asarray(newest, dtype=np.float64)

    def _load(self, raw: list[dict[str, Any]]) -> None:
        names = _names(Path(__file__).with_name("signals.yaml"))
        plain: dict[tuple[str, int], dict[int, list[tuple[_Name, _Series]]]] = {}
        buckets: dict[str, dict[int, dict[float, _Series]]] = {}
        for line in raw:
            labels = line["metric"]
            row = self.topology.row_of.get(labels.get("replica", ""))
            if row is None or not line["values"]:
                continue
            name = labels["__name__"]
            for entry in names.get(name, ()):
                if not entry.histogram and entry.wants(labels):
                    plain.setdefault((entry.signal, row), {}).setdefault(entry.rank, []).append((entry, self._put(line)))
            base, _, suffix = name.rpartition("_")
            for entry in names.get(base, ()):
                if entry.histogram and suffix in ("bucket", "sum"):
                    bound = float(labels["le"]) if suffix == "bucket" else np.nan
                    buckets.setdefault(entry.signal, {}).setdefault(row, {})[bound] = self._put(line)
        for (signal, row), ranked in plain.items():
            self._fill(signal, row, ranked[min(ranked)])
        for signal, rows in buckets.items():
            self._histograms[signal] = self._histogram(rows)

    def _put(self, line: dict[str, Any]) -> _Series:
        """The samples on the ticks: each becomes visible at the first tick at or after it was taken."""
        pairs = np.array(line["values"], dtype=np.float64)
        taken = line["t0"] + pairs[:, 0]
        column = np.searchsorted(self.times, taken - 1e-6)
        column = np.minimum(column, len(self.times) - 1)
        series = _Series(np.full(len(self.times), np.nan), np.full(len(self.times), np.nan))
        series.values[column] = pairs[:, 1]  # of two samples on one tick the later stays: numpy assigns in order
        series.sampled_at[column] = taken
        return series

    def _fill(self, signal: str, row: int, entries: list[tuple[_Name, _Series]]) -> None:
        shape = (len(self.topology.engines), len(self.times))
        matrix = self._signals.setdefault(signal, SignalMatrix(np.full(shape, np.nan), np.full(shape, np.nan)))
        combine = {"sum": np.add, "max": np.maximum, "min": np.minimum}[entries[0][0].combine]
        for _, series in entries:
            present = np.isnan(matrix.values[row])
            matrix.values[row] = np.where(
                present,
                series.values,
                np.where(np.isnan(series.values), matrix.values[row], combine(matrix.values[row], series.values)),
            )
            matrix.sampled_at[row] = np.fmax(matrix.sampled_at[row], series.sampled_at)

    def _histogram(self, rows: dict[int, dict[float, _Series]]) -> HistogramMatrix:
        bounds = np.array(sorted({bound for series in rows.values() for bound in series if not np.isnan(bound)}))
        shape = (len(self.topology.engines), len(self.times))
        counts, sums, taken = np.full((*shape, len(bounds)), np.nan), np.full(shape, np.nan), np.full(shape, np.nan)
        for row, by_bound in rows.items():
            for bound, series in by_bound.items():
                if np.isnan(bound):
                    sums[row] = series.values
                else:
                    counts[row, :, int(np.searchsorted(bounds, bound))] = series.values
                taken[row] = np.fmax(taken[row], series.sampled_at)
        return HistogramMatrix(bounds, counts, sums, taken)


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    try:
        with gzip.open(path, "rb") as file:
            for number, line in enumerate(file, start=1):
                try:
                    if line.strip():
                        yield orjson.loads(line)
                except orjson.JSONDecodeError as error:
                    raise RecordingError(
                        f"{path}, line {number}: not JSON ({error}); cut the line or record again"
                    ) from error
    except OSError as error:
        raise RecordingError(f"{path} cannot be read ({error}); is {path.parent} a recording folder?") from error


def _happenings(path: Path) -> tuple[Happening, ...]:
    try:
        told = json.loads(path.read_text())
        return tuple(
            Happening(
                float(one["t"]), one["fault"], one["target"], one["phase"], bool(one.get("benign")), one.get("how", "")
            )
            for one in told
        )
    except OSError as error:
        raise RecordingError(f"{path} cannot be read ({error}); is {path.parent} a recording folder?") from error
    except (ValueError, KeyError, TypeError) as error:
        raise RecordingError(f"{path} is not a list of events with t, fault, target and phase ({error!r})") from error


def _topology(raw: list[dict[str, Any]]) -> Topology:
    labels: dict[str, dict[str, str]] = {}
    for line in raw:
        metric = line["metric"]
        if "replica" in metric:
            labels.setdefault(metric["replica"], {}).update(
                {key: metric[key] for key in ("replica", "node", "model", "instance") if key in metric}
            )
    facts, relations = [], []
    for name in sorted(labels):
        own = labels[name]
        facts.append(EngineFacts(name, f"http://{own.get('instance', name)}", own.get("model", "unknown"), labels=own))
        engine = Entity.engine(name)
        if "node" in own:
            relations.append((engine, Relation.RUNS_ON, Entity(EntityKind.NODE, own["node"])))
        relations.append((DOOR, Relation.ROUTES_TO, engine))
        relations.append((engine, Relation.SCRAPED_BY, RECORDER))
    return Topology(facts, relations)


def _request_spans(export: dict[str, Any]) -> Iterator[RequestSpan]:
    for resource in export.get("resourceSpans", ()):
        engine = _attributes(resource.get("resource", {})).get("service.name", "")
        for scope in resource.get("scopeSpans", ()):
            for span in scope.get("spans", ()):
                if span.get("name") == "llm_request":
                    yield _request_span(str(engine), span)


def _request_span(engine: str, span: dict[str, Any]) -> RequestSpan:
    said = _attributes(span)

    def seconds(key: str) -> float | None:
        value = said.get(f"gen_ai.latency.{key}")
        return None if value is None else float(value)

    return RequestSpan(
        engine=engine,
        start=int(span["startTimeUnixNano"]) / 1e9,
        end=int(span["endTimeUnixNano"]) / 1e9,
        queue=seconds("time_in_queue"),
        prefill=seconds("time_in_model_prefill"),
        decode=seconds("time_in_model_decode"),
        transfer=None,
        prompt_tokens=int(said.get("gen_ai.usage.prompt_tokens", 0)),
        completion_tokens=int(said.get("gen_ai.usage.completion_tokens", 0)),
    )


def _attributes(thing: dict[str, Any]) -> dict[str, Any]:
    return {one["key"]: next(iter(one["value"].values()), None) for one in thing.get("attributes", ())}
