"""What is written reads back as it was measured, whole or not at all; and no name is left where that is asked."""

import gzip
import json
import math
import os
import string
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.telemetry.anonymity import PlainNames, Pseudonyms
from serving.telemetry.reading import FailureKind, RequestSpan
from serving.telemetry.recorder import Manifest, SeriesLog, write_recording
from serving.telemetry.recording import Happening, Recording, RecordingError, read_labels
from serving.telemetry.recording_files import series_lines

BEGAN = 1_800_000_000.0


def manifest(log: SeriesLog, *, anonymised: bool = False) -> Manifest:
    begin, end = log.span
    return Manifest(
        fleetwarden="0.1.0",
        python="3.11",
        source="scrape",
        begin=begin,
        end=end,
        interval=2.0,
        anonymised=anonymised,
        engines=1,
        series=log.series,
        samples=log.samples,
        spans=0,
    )


def logged(labels: dict[str, str], values: list[float], t0: float = BEGAN) -> SeriesLog:
    log = SeriesLog()
    for number, value in enumerate(values):
        log.add(labels, t0 + 2.0 * number, value)
    return log


UP = {"__name__": "up", "replica": "e0", "model": "m", "instance": "h:1", "job": "vllm"}


@given(values=st.lists(st.floats(allow_nan=False), min_size=1, max_size=50))
def test_every_sample_reads_back_exactly(values: list[float], tmp_path_factory: pytest.TempPathFactory) -> None:
    log = logged(UP, values)
    folder = tmp_path_factory.mktemp("written") / "one"
    write_recording(folder, log, manifest(log), PlainNames())
    (line,) = series_lines(folder / "series.jsonl.gz")
    assert line["metric"] == UP
    assert line["values"][:, 1].tolist() == values
    np.testing.assert_allclose(line["t0"] + line["values"][:, 0], BEGAN + 2.0 * np.arange(len(values)), atol=1e-3)


def test_what_is_no_number_and_what_is_not_newer_is_no_sample() -> None:
    log = SeriesLog()
    for at, value in ((1.0, 1.0), (1.0, 2.0), (0.5, 3.0), (2.0, math.nan), (3.0, 4.0)):
        log.add(UP, at, value)
    assert (log.series, log.samples, log.span) == (1, 2, (1.0, 3.0))


def test_a_carried_recording_written_again_reads_the_same(recordings: Path, tmp_path: Path) -> None:
    origin = Recording(recordings / "vllm-0.32-b")
    log = SeriesLog()
    for line in series_lines(origin.folder / "series.jsonl.gz"):
        for at, value in line["values"]:
            log.add(line["metric"], line["t0"] + at, value)
    write_recording(tmp_path / "again", log, manifest(log), PlainNames(), spans=origin.spans, labels=origin.happenings)
    again = Recording(tmp_path / "again")
    assert again.happenings == origin.happenings
    assert len(again.spans) == len(origin.spans)
    assert again.topology.row_of == origin.topology.row_of
    for mine, theirs in zip(again.readings(), origin.readings(), strict=True):
        assert mine.values.keys() == theirs.values.keys()
        for name, values in theirs.values.items():
            np.testing.assert_array_equal(mine.values[name], values)
        for name, histogram in theirs.histograms.items():
            np.testing.assert_array_equal(mine.histograms[name].counts, histogram.counts)
        assert mine.failures == theirs.failures


def test_how_a_scrape_failed_reads_back(tmp_path: Path) -> None:
    log = logged(UP, [1.0, 0.0, 0.0, 1.0])
    log.failed("e0", FailureKind.STATUS, BEGAN + 2.0)
    log.failed("door", FailureKind.TIMEOUT, BEGAN + 4.0)
    write_recording(tmp_path / "one", log, manifest(log), PlainNames())
    failures = [
        {target: told.kind for target, told in reading.failures.items()}
        for reading in Recording(tmp_path / "one").readings()
    ]
    assert failures == [
        {"e0": FailureKind.STATUS},
        {"door": FailureKind.TIMEOUT, "e0": FailureKind.OTHER},
        {},
    ]


def test_nothing_measured_is_nothing_written(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="nothing was measured"):
        write_recording(tmp_path / "one", SeriesLog(), manifest(logged(UP, [1.0])), PlainNames())
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_holds_something_is_never_written_over(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    folder.mkdir()
    (folder / "precious").write_text("x")
    log = logged(UP, [1.0])
    with pytest.raises(RecordingError, match="does not exist"):
        write_recording(folder, log, manifest(log), PlainNames())
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert (folder / "precious").read_text() == "x"


class _BreaksHalfway(PlainNames):
    def engine(self, name: str) -> str:  # noqa: ARG002 - the port's signature
        raise OSError(28, os.strerror(28))


def test_a_write_that_breaks_off_leaves_nothing(tmp_path: Path) -> None:
    log = logged(UP, [1.0, 2.0])
    span = RequestSpan("e0", BEGAN, BEGAN + 1.0, 0.1, 0.2, 0.3, None, 1, 1)
    with pytest.raises(RecordingError, match="No space"):
        write_recording(tmp_path / "one", log, manifest(log), _BreaksHalfway(), spans=[span])
    assert list(tmp_path.iterdir()) == []


SECRET = st.text(alphabet=string.ascii_letters + string.digits + "-_./:éß ", min_size=3, max_size=20).map(
    lambda text: f"zq{text}qz"
)
LABELS = ("replica", "node", "instance", "model", "model_name", "job", "pod", "namespace", "team", "reason", "engine")
NAMES = st.fixed_dictionaries(dict.fromkeys(LABELS, SECRET))


def _everything(folder: Path) -> str:
    """All that the folder holds, names of files included, as text with nothing escaped."""
    parts = [str(folder.name)]
    for path in sorted(folder.iterdir()):
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        parts += [
            path.name,
            raw.decode(),
            json.dumps(
                [json.loads(line) for line in raw.decode().splitlines()] if path.suffix == ".gz" else json.loads(raw),
                ensure_ascii=False,
            ),
        ]
    return "\n".join(parts)


@given(fleets=st.lists(NAMES, min_size=1, max_size=4, unique_by=lambda names: names["replica"]), how=SECRET, kind=SECRET)
def test_nothing_of_the_names_is_left_when_they_are_replaced(
    fleets: list[dict[str, str]], how: str, kind: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    log, spans, labels = SeriesLog(), [], []
    for names in fleets:
        for series in ("up", "vllm:num_requests_running"):
            for number in range(3):
                log.add({"__name__": series, **names}, BEGAN + 2.0 * number, float(number))
        log.failed(names["replica"], FailureKind.TIMEOUT, BEGAN)
        spans.append(RequestSpan(names["replica"], BEGAN, BEGAN + 1.0, 0.1, 0.2, 0.3, None, 5, 7))
        labels += [
            Happening(BEGAN, "engine_hang", names["replica"], "start", how=how),
            Happening(BEGAN + 1.0, kind, names["replica"], how, causes=(kind,)),
        ]
    folder = tmp_path_factory.mktemp("hidden") / "case"
    write_recording(
        folder,
        log,
        manifest(log, anonymised=True),
        Pseudonyms(lambda word: word == "engine_hang"),
        spans=spans,
        labels=labels,
    )
    told = _everything(folder)
    for secret in (*(value for names in fleets for value in names.values()), how, kind):
        assert secret not in told
    recording = Recording(folder)
    assert len(recording.topology.engines) == len(fleets)
    assert {span.engine for span in recording.spans} == set(recording.topology.row_of)
    assert {label.target for label in recording.happenings} == set(recording.topology.row_of)
    assert "engine_hang" in {label.fault for label in recording.happenings}


@given(names=NAMES)
def test_the_same_name_always_becomes_the_same_pseudonym(names: dict[str, str]) -> None:
    hidden = Pseudonyms()
    first = hidden.series({"__name__": "up", **names, "model_name": names["model"]})
    second = hidden.series({"__name__": "process_open_fds", **names})
    assert first["replica"] == second["replica"] == hidden.engine(names["replica"])
    assert first["model"] == first["model_name"] == second["model"]
    assert hidden.happening(Happening(0.0, "f", names["replica"], "start")).target == first["replica"]


def test_values_that_vllm_and_the_door_choose_stay_so_that_the_case_still_replays() -> None:
    hidden = Pseudonyms()
    labels = {
        "__name__": "door:requests_finished_total",
        "replica": "prod-1",
        "result": "http_503",
        "le": "+Inf",
        "engine": "0",
    }
    assert hidden.series(labels) == labels | {"replica": "engine-1"}


def test_series_that_differed_only_in_what_is_gone_stay_apart() -> None:
    hidden = Pseudonyms()
    told = [hidden.series({"__name__": "vllm:num_requests_running", "replica": "e", "lora": adapter}) for adapter in "abc"]
    assert len({tuple(sorted(labels.items())) for labels in told}) == 3


def test_labels_read_back_as_they_were_written(tmp_path: Path) -> None:
    log = logged(UP, [1.0, 1.0])
    told = [
        Happening(BEGAN, "baseline", "all", "start", benign=True, how="nothing"),
        Happening(BEGAN + 1.0, "meteor", "e0", "start", causes=("engine.dead",)),
    ]
    write_recording(tmp_path / "one", log, manifest(log), PlainNames(), labels=told)
    assert list(read_labels(tmp_path / "one" / "events.json")) == told
