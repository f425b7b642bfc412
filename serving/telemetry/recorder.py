"""Write a recording folder: series, spans, labels and a manifest, in the format that serving.telemetry.recording reads.

Does not belong here: where the samples come from (serving.telemetry.live_recorder, a range of a Prometheus).
"""

import gzip
import os
import shutil
import tempfile
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import orjson
from pydantic import BaseModel, ConfigDict

from serving.telemetry.anonymity import Names
from serving.telemetry.reading import FailureKind, RequestSpan
from serving.telemetry.recording_files import EVENTS, FAILED, FORMAT, MANIFEST, SERIES, SPANS, Happening, RecordingError
from serving.telemetry.spans import REQUEST

Labels = Mapping[str, str]

_LEVEL = 6  # of compression: the best costs thrice the time for a few percent
_STAGES = {"queue": "time_in_queue", "prefill": "time_in_model_prefill", "decode": "time_in_model_decode"}


class Manifest(BaseModel):
    """What a recording is and what made it. Times are Unix seconds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: int = FORMAT
    fleetwarden: str
    python: str
    source: str
    vllm: tuple[str, ...] = ()
    begin: float
    end: float
    interval: float
    anonymised: bool
    engines: int
    series: int
    samples: int
    spans: int


@dataclass(slots=True)
class _Samples:
    labels: dict[str, str]
    at: "array[float]" = field(default_factory=lambda: array("d"))
    values: "array[float]" = field(default_factory=lambda: array("d"))


class SeriesLog:
    """Samples as they come, by series. 16 bytes a sample."""

    def __init__(self) -> None:
        self._series: dict[frozenset[tuple[str, str]], _Samples] = {}

    def add(self, labels: Labels, at: float, value: float) -> None:
        """One sample. What is no number (a stale marker, NaN) is no sample, nor is one that is not newer than the last."""
        if value != value or at != at:  # noqa: PLR0124 - NaN
            return
        key = frozenset(labels.items())
        known = self._series.get(key)
        if known is None:
            known = self._series[key] = _Samples(dict(labels))
        if not known.at or at > known.at[-1]:
            known.at.append(at)
            known.values.append(value)

    def failed(self, target: str, kind: FailureKind, at: float) -> None:
        """A scrape of `target` (an engine, or `door`) that failed, and how."""
        self.add({"__name__": FAILED, "target": target, "kind": str(kind)}, at, 1.0)

    @property
    def series(self) -> int:
        """How many series there are."""
        return len(self._series)

    @property
    def samples(self) -> int:
        """How many samples there are."""
        return sum(len(one.at) for one in self._series.values())

    @property
    def span(self) -> tuple[float, float]:
        """The times of the first and the last sample. Raises RecordingError when there is none."""
        if not self._series:
            raise RecordingError("nothing was measured, so there is nothing to write; look at the targets' failures above")
        return min(one.at[0] for one in self._series.values()), max(one.at[-1] for one in self._series.values())

    def lines(self, t0: float, names: Names) -> Iterator[bytes]:
        """The lines of the series file, with names replaced as `names` does."""
        for one in self._series.values():
            values = [[round(at - t0, 3), f"{value!r}"] for at, value in zip(one.at, one.values, strict=True)]
            yield orjson.dumps({"metric": names.series(one.labels), "t0": t0, "values": values})


def write_recording(
    folder: Path,
    log: SeriesLog,
    manifest: Manifest,
    names: Names,
    *,
    spans: Iterable[RequestSpan] = (),
    labels: Iterable[Happening] | None = None,
) -> None:
    """Write the folder, whole or not at all. Raises RecordingError when it is there already or cannot be written."""
    told = list(spans)
    t0 = log.span[0]
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        making = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    except OSError as refused:
        raise RecordingError(f"{folder} cannot be written: {refused.strerror}") from None
    try:
        _write(making / SERIES, log.lines(t0, names))
        if told:
            _write(making / SPANS, (_export(number, span, names) for number, span in enumerate(told, start=1)))
        if labels is not None:
            events = [names.happening(label) for label in labels]
            (making / EVENTS).write_bytes(orjson.dumps([_event(one) for one in events], option=orjson.OPT_INDENT_2))
        (making / MANIFEST).write_text(manifest.model_dump_json(indent=2) + "\n")
        making.chmod(0o755)
        os.rename(making, folder)  # noqa: PTH104 - refuses a folder that is not empty; Path.replace is the same call
    except OSError as refused:
        raise RecordingError(f"{folder} cannot be written: {refused.strerror}; name a folder that does not exist") from None
    finally:
        shutil.rmtree(making, ignore_errors=True)


def _write(path: Path, lines: Iterable[bytes]) -> None:
    with path.open("wb") as raw, gzip.GzipFile("", "wb", _LEVEL, raw, mtime=0) as file:
        for line in lines:
            file.write(line + b"\n")


def _event(one: Happening) -> dict[str, object]:
    event: dict[str, object] = {"t": one.at, "fault": one.fault, "target": one.target, "phase": one.phase}
    if one.benign:
        event["benign"] = True
    if one.how:
        event["how"] = one.how
    if one.causes:
        event["causes"] = list(one.causes)
    return event


def _export(number: int, span: RequestSpan, names: Names) -> bytes:
    """A trace export with the one span of a finished request, as vLLM sends it."""
    said = {f"gen_ai.latency.{name}": getattr(span, stage) for stage, name in _STAGES.items()}
    attributes = [{"key": key, "value": {"doubleValue": value}} for key, value in said.items() if value is not None]
    counts = {
        "gen_ai.usage.prompt_tokens": span.prompt_tokens,
        "gen_ai.usage.completion_tokens": span.completion_tokens,
    }
    attributes += [{"key": key, "value": {"intValue": str(value)}} for key, value in counts.items()]
    told = {
        "traceId": f"{number:032x}",
        "spanId": f"{number:016x}",
        "name": REQUEST,
        "startTimeUnixNano": str(round(span.start * 1e9)),
        "endTimeUnixNano": str(round(span.end * 1e9)),
        "attributes": attributes,
    }
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": names.engine(span.engine)}}]}
    return orjson.dumps({"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": [told]}]}]})
