"""The files of a recording folder: their names, and reading them with errors that name file and line.

Does not belong here: what the series mean (serving.telemetry.recording), writing them (serving.telemetry.recorder).
"""

import gzip
import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LIVE = 2.0  # seconds from one look at the fleet to the next
SERIES, EVENTS, SPANS, MANIFEST = "series.jsonl.gz", "events.json", "spans.jsonl.gz", "manifest.json"
FORMAT = 1
"""The version of the format that is written, and the newest that can be read."""
FAILED = "fleetwarden:scrape_failed"
"""A series with 1 at each scrape that failed; its labels tell the `target` (engine or `door`) and the `kind` of failure."""
_TELL_CADENCE = 200  # series are enough to tell how often a fleet was scraped


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


def raw_lines(path: Path) -> Iterator[bytes]:
    """The lines of a compressed file. Raises RecordingError."""
    try:
        with gzip.open(path, "rb") as file:
            yield from file
    except (OSError, EOFError, zlib.error) as error:
        raise RecordingError(f"{path} cannot be read ({error}); is {path.parent} a recording folder?") from error


def series_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The series of the file: labels, `t0`, and values as an array of (seconds after t0, value), in order of time."""
    for number, line in enumerate(raw_lines(path), start=1):
        try:
            told = orjson.loads(line)
            labels = {str(name): str(value) for name, value in told["metric"].items()}
            yield {"metric": {**labels, "__name__": labels["__name__"]}, "t0": _finite(told["t0"]), "values": _samples(told)}
        except (orjson.JSONDecodeError, AttributeError, KeyError, TypeError, ValueError) as error:
            what = "is not a series with metric, t0 and values"
            why = f"{type(error).__name__}: {error}"
            raise RecordingError(f"{path}, line {number} {what} ({why}); cut the line or record again") from error


def _samples(told: dict[str, Any]) -> Floats:
    """(seconds after t0, value) of each sample, in order of time. Shape (samples, 2)."""
    pairs = np.array([(_finite(at), float(value)) for at, value in told["values"]], dtype=np.float64).reshape(-1, 2)
    return pairs[np.argsort(pairs[:, 0], kind="stable")]


def _finite(value: Any) -> float:
    number = float(value)
    if not np.isfinite(number):
        raise ValueError(f"{value!r} is no moment")
    return number


def cadence_of(lines: Sequence[dict[str, Any]]) -> float:
    """How many seconds usually lie between two samples of one series."""
    told = [line["values"][:, 0] for line in lines if len(line["values"]) > 2]  # noqa: PLR2004 - two gaps at least
    return float(np.median([np.median(np.diff(taken)) for taken in told[:_TELL_CADENCE]])) if told else LIVE


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


def check_manifest(path: Path) -> None:
    """Refuse a recording that a newer version wrote. Recordings without a manifest are of the first format."""
    if not path.exists():
        return
    try:
        written = int(json.loads(path.read_text("utf-8"))["format"])
    except (OSError, ValueError, KeyError, TypeError) as wrong:
        raise RecordingError(
            f"{path} is no manifest with a `format` ({type(wrong).__name__}: {wrong}); remove it"
        ) from wrong
    if written > FORMAT:
        raise RecordingError(f"{path} says format {written}; this version reads up to {FORMAT}: use a newer fleetwarden")
