"""A recording folder is read back as the telemetry that the live fleet would have given."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from serving.fleet.entity import Entity, EntityKind
from serving.fleet.topology import Relation
from serving.telemetry.reading import FailureKind
from serving.telemetry.recording import Recording, RecordingError

FOLDERS = Path(__file__).parent
DURING_HANG = 1795965990.0


@pytest.fixture(scope="module")
def long() -> Recording:
    return Recording(FOLDERS / "vllm-0.32-a")


def _lines(folder: Path, name: str, labels: dict[str, str]) -> list[tuple[float, float]]:
    """The raw samples of one series, straight from the file."""
    with gzip.open(folder / "series.jsonl.gz", "rb") as file:
        for text in file:
            line = json.loads(text)
            if line["metric"]["__name__"] == name and labels.items() <= line["metric"].items():
                return [(line["t0"] + at, float(value)) for at, value in line["values"]]
    raise AssertionError(f"no series {name}")


def test_the_map_comes_from_the_labels(long: Recording) -> None:
    assert [engine.name for engine in long.topology.engines] == ["tiny-0", "tiny-1", "tiny-2"]
    assert long.topology.related(Entity.engine("tiny-1"), Relation.RUNS_ON) == (Entity(EntityKind.NODE, "node-b"),)
    assert long.topology.facts(Entity.engine("tiny-2")).model == "tiny"
    assert len(long.topology.peers(Entity.engine("tiny-0"))) == 2


def test_each_reading_holds_the_samples_taken_since_the_one_before(long: Recording) -> None:
    raw = dict(_lines(long.folder, "vllm:iteration_tokens_total_count", {"replica": "tiny-1"}))
    seen = 0
    for reading in long.readings():
        value, at = reading.values["engine.steps"][1], reading.sampled_at[1]
        if np.isnan(value):
            continue
        seen += 1
        assert reading.at - long.interval - 1e-3 < at <= reading.at + 1e-3
        assert value in {sample for moment, sample in raw.items() if abs(moment - at) < 0.01}
    assert seen > 0.9 * len(raw) - 5


def test_what_was_not_scraped_is_missing_and_says_why(long: Recording) -> None:
    dead = [r for r in long.readings() if "tiny-0" in r.failures and np.isnan(r.values["engine.steps"][0])]
    assert dead
    assert {reading.failures["tiny-0"].kind for reading in dead} <= {FailureKind.REFUSED, FailureKind.TIMEOUT}
    assert FailureKind.REFUSED in {reading.failures["tiny-0"].kind for reading in dead}


def test_windows_show_the_hang_as_the_live_loop_would_have_seen_it(long: Recording) -> None:
    row = long.topology.row_of["tiny-2"]
    for window in long.windows(horizon=120.0):
        if window.now > DURING_HANG:
            break
    assert window.increase("engine.steps", 25.0)[row] == 0
    assert window.latest("door.in_flight", 5.0)[row] > 10
    assert window.latest("scrape.up", 5.0)[row] == 1
    assert window.times[0] >= window.now - 120.0
    assert window.mean("engine.ttft", 60.0)[0] > 0
    assert window.stages is not None
    assert window.stages.finished[0] > 0


def test_a_restarted_engines_counters_begin_anew_and_the_doors_go_on(long: Recording) -> None:
    *_, last = long.windows()
    minute = last.increase("door.started", 120.0)
    assert 0 < minute[0] < 200
    assert 0 < last.increase("engine.steps", 120.0)[0] < 5000


def test_finished_requests_come_as_spans_at_their_end(long: Recording) -> None:
    within = [span for span in long.spans if span.end <= long.times[-1]]  # requests went on after the last scrape
    assert len(within) == sum(len(reading.spans) for reading in long.readings()) > 1000
    assert {span.engine for span in long.spans} == {"tiny-0", "tiny-1", "tiny-2"}
    assert all(span.start <= span.end for span in long.spans)


def test_a_folder_without_spans_or_scrape_times_is_read_all_the_same() -> None:
    recording = Recording(FOLDERS / "vllm-0.32-c")
    reading = next(recording.readings())
    assert recording.spans == ()
    assert "scrape.seconds" not in reading.values or np.isnan(reading.values["scrape.seconds"]).all()


def test_a_folder_that_is_no_recording_is_refused_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match=r"series\.jsonl\.gz cannot be read"):
        Recording(tmp_path)


def test_a_broken_line_is_told_with_its_number(tmp_path: Path) -> None:
    good = {"metric": {"__name__": "up", "replica": "a"}, "t0": 0.0, "values": [[0, "1"], [2, "1"]]}
    (tmp_path / "events.json").write_text("[]")
    with gzip.open(tmp_path / "series.jsonl.gz", "wt") as file:
        file.write(json.dumps(good) + "\n{\n")
    with pytest.raises(RecordingError, match="line 2"):
        Recording(tmp_path)
