"""`fleetwarden record` out of a Prometheus: the samples with the times at which they were taken, and the same incidents."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from past_store import PastStore
from replay_command import run

from serving.telemetry.recording import Recording
from serving.telemetry.recording_files import series_lines


@pytest.fixture(scope="module")
def store(recordings: Path) -> Iterator[PastStore]:
    running = PastStore(recordings / "vllm-0.32-b")
    yield running
    running.close()


@pytest.fixture(scope="module")
def recorded(store: PastStore, recordings: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recorded") / "case"
    truth = recordings / "vllm-0.32-b" / "events.json"
    result = run(
        "record", folder, "--prometheus", store.url, "--from", store.begin, "--to", store.end,
        "--labels", truth, "--anonymise", "--json",
    )  # fmt: skip
    assert result.exit_code == 0, result.stderr
    told = json.loads(result.stdout)
    assert (told["folder"], told["anonymised"], told["engines"], told["source"]) == (str(folder), True, 3, "prometheus")
    return folder


def test_it_replays_to_the_same_incidents_under_other_names(recorded: Path) -> None:
    result = run("replay", recorded, "--json")
    assert result.exit_code == 0
    told = json.loads(result.stdout)
    assert [row["cause"] for row in told["rows"]] == ["engine.kv_pressure", "engine.kv_pressure"]
    assert {row["entity"] for row in told["rows"]} == {"engine/engine-1", "engine/engine-2"}
    assert told["totals"]["right_cause_first"] == told["totals"]["faults"] == 2


def test_nothing_of_the_names_of_that_fleet_is_left(recorded: Path) -> None:
    told = json.dumps([line["metric"] for line in series_lines(recorded / "series.jsonl.gz")])
    assert '"vllm"' not in told
    told += "".join(path.read_text() for path in recorded.glob("*.json"))
    for name in ("tiny", "node-a", "127.0.0.1", "8201"):
        assert name not in told


def test_the_samples_have_the_times_at_which_they_were_taken(recorded: Path, recordings: Path) -> None:
    def taken(folder: Path) -> list[np.ndarray]:
        lines = [
            line
            for line in series_lines(folder / "series.jsonl.gz")
            if line["metric"]["__name__"] == "vllm:num_requests_running"
        ]
        return [line["t0"] + line["values"][:, 0] for line in lines]

    origin = np.concatenate(taken(recordings / "vllm-0.32-b"))
    for times in taken(recorded):
        assert len(times) > 200
        assert all(np.abs(origin - at).min() < 0.002 for at in times)


def test_a_folder_that_exists_is_refused_before_anything_is_asked(tmp_path: Path) -> None:
    result = run("record", tmp_path, "--prometheus", "http://127.0.0.1:9")
    assert result.exit_code == 2
    assert "exists" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("--prometheus", "http://127.0.0.1:9"), "cannot be reached"),
        (("--fleet", "nowhere.yaml"), "nowhere.yaml"),
        (("--for", "soon", "--fleet", "nowhere.yaml"), "90s"),
        (("--labels", "nowhere.json"), "nowhere.json"),
    ],
)
def test_what_cannot_be_recorded_is_said_and_nothing_is_written(
    tmp_path: Path, arguments: tuple[str, ...], what: str
) -> None:
    result = run("record", tmp_path / "case", *arguments)
    assert result.exit_code == 2
    assert what in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_recording_without_a_name_replaced_keeps_the_addresses(store: PastStore, tmp_path: Path) -> None:
    folder = tmp_path / "plain"
    result = run("record", folder, "--prometheus", store.url, "--from", store.begin, "--to", store.begin + 60)
    assert result.exit_code == 0
    assert f"fleetwarden replay {folder}" in result.stdout
    recording = Recording(folder)
    assert set(recording.topology.row_of) == {"tiny-0", "tiny-1", "tiny-2"}
    assert json.loads((folder / "manifest.json").read_text())["source"] == store.url
