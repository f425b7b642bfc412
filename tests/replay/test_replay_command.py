"""`fleetwarden replay` as people type it, and what it says when it cannot read what it is given."""

import gzip
import json
import shutil
from pathlib import Path

import pytest
from replay_command import run

SERIES = "series.jsonl.gz"


@pytest.fixture(scope="module")
def short(recordings: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first minute of the second recording: short, healthy, without labels."""
    folder = tmp_path_factory.mktemp("short") / "healthy"
    folder.mkdir()
    with gzip.open(recordings / "vllm-0.32-b" / SERIES) as lines:
        told = [json.loads(line) for line in lines]
    with gzip.open(folder / SERIES, "wt") as file:
        for one in told:
            one["values"] = [pair for pair in one["values"] if pair[0] <= 40.0]
            file.write(json.dumps(one) + "\n")
    return folder


@pytest.fixture
def labels(tmp_path: Path) -> Path:
    """The truth about that minute: it was healthy but for a hang that nobody could have made."""
    path = tmp_path / "truth.json"
    begin = 1_795_967_269.0
    told = [
        {"t": begin + at, "fault": "engine_hang", "target": "tiny-0", "phase": phase}
        for at, phase in ((10.0, "start"), (20.0, "end"))
    ]
    path.write_text(json.dumps(told))
    return path


@pytest.fixture
def broken(short: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "broken"
    shutil.copytree(short, folder)
    return folder


def test_without_labels_incidents_are_shown_and_nothing_is_judged(short: Path) -> None:
    result = run("replay", short)
    assert result.exit_code == 0
    assert "no incidents" in result.stdout
    told = json.loads(run("replay", short, "--json").stdout)
    assert (told["rows"], told["totals"], told["faults"]) == ([], None, None)
    assert told["engines"] == ["tiny-0", "tiny-1", "tiny-2"]


def test_a_fault_that_is_missed_ends_with_exit_code_1(short: Path, labels: Path) -> None:
    result = run("replay", short, "--labels", labels)
    assert result.exit_code == 1
    assert "MISSED" in result.stdout


@pytest.mark.parametrize("order", ["after", "before", "alone"])
def test_labels_without_a_value_are_those_of_the_folder(broken: Path, labels: Path, order: str) -> None:
    shutil.copy(labels, broken / "events.json")
    words = {
        "after": ("replay", broken, "--labels", "--json"),
        "before": ("replay", "--labels", "--json", broken),
        "alone": ("replay", "--json", "--labels", broken),
    }[order]
    assert json.loads(run(*words).stdout)["totals"]["faults"] == 1


def test_labels_that_lie_in_the_folder_are_used_unasked(broken: Path, labels: Path) -> None:
    shutil.copy(labels, broken / "events.json")
    assert json.loads(run("replay", broken, "--json").stdout)["totals"]["faults"] == 1


def test_a_kind_of_fault_that_nobody_knows_is_said_to_be_unknown(short: Path, tmp_path: Path) -> None:
    path = tmp_path / "truth.json"
    path.write_text(json.dumps([{"t": 1_795_967_280.0, "fault": "meteor", "target": "tiny-0", "phase": "start"}]))
    result = run("replay", short, "--labels", path)
    assert "meteor" in result.stdout
    assert "`causes`" in result.stdout


def test_nothing_to_replay_says_what_to_name() -> None:
    result = run("replay")
    assert result.exit_code == 2
    assert "recording folder" in result.stderr


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    result = run("replay", tmp_path / "nowhere")
    assert result.exit_code == 2
    assert str(tmp_path / "nowhere") in result.stderr


def test_an_empty_folder_is_no_recording(tmp_path: Path) -> None:
    result = run("replay", tmp_path)
    assert result.exit_code == 2
    assert SERIES in result.stderr


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("{", "JSONDecodeError"),
        ("[]", "TypeError"),
        ('{"metric": {}, "t0": 1, "values": [[0, "1"]]}', "__name__"),
        ('{"metric": {"__name__": "up"}, "values": [[0, "1"]]}', "t0"),
        ('{"metric": {"__name__": "up"}, "t0": 1, "values": [[0]]}', "ValueError"),
        ('{"metric": {"__name__": "up"}, "t0": 1, "values": [["x", "1"]]}', "ValueError"),
        ('{"metric": {"__name__": "up"}, "t0": 1, "values": [[0, "many"]]}', "many"),
        ('{"metric": {"__name__": "up"}, "t0": NaN, "values": [[0, "1"]]}', "JSONDecodeError"),
    ],
)
def test_a_line_that_cannot_be_read_is_named_with_its_file_and_number(broken: Path, line: str, what: str) -> None:
    with gzip.open(broken / SERIES, "rt") as file:
        lines = file.read().splitlines()
    lines[4] = line
    with gzip.open(broken / SERIES, "wt") as file:
        file.write("\n".join(lines))
    result = run("replay", broken)
    assert result.exit_code == 2
    assert f"{broken / SERIES}, line 5 " in result.stderr
    assert what in result.stderr
    assert "record again" in result.stderr


@pytest.mark.parametrize("damage", ["cut", "flipped", "plain"])
def test_a_damaged_file_is_named(broken: Path, damage: str) -> None:
    raw = (broken / SERIES).read_bytes()
    middle = len(raw) // 2
    new = {"cut": raw[:middle], "flipped": raw[:middle] + bytes(64) + raw[middle + 64 :], "plain": b"not compressed"}[damage]
    (broken / SERIES).write_bytes(new)
    result = run("replay", broken)
    assert result.exit_code == 2
    assert str(broken / SERIES) in result.stderr


def test_series_that_name_no_engine_are_refused(tmp_path: Path) -> None:
    with gzip.open(tmp_path / SERIES, "wt") as file:
        file.write('{"metric": {"__name__": "up", "instance": "h:1"}, "t0": 1, "values": [[0, "1"], [2, "1"]]}\n')
    result = run("replay", tmp_path)
    assert result.exit_code == 2
    assert "`replica`" in result.stderr


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("{", "line 1"),
        ("{}", "list"),
        ('[{"t": 1}]', "event 1"),
        ('[{"t": "x", "fault": "f", "target": "e", "phase": "start"}]', "x"),
    ],
)
def test_labels_that_cannot_be_read_are_named(broken: Path, text: str, what: str) -> None:
    (broken / "events.json").write_text(text)
    result = run("replay", broken)
    assert result.exit_code == 2
    assert str(broken / "events.json") in result.stderr
    assert what in result.stderr


def test_a_recording_of_a_newer_format_is_refused(broken: Path) -> None:
    (broken / "manifest.json").write_text('{"format": 99}')
    result = run("replay", broken)
    assert result.exit_code == 2
    assert "newer fleetwarden" in result.stderr


def test_a_page_that_cannot_be_written_is_said_so(short: Path, tmp_path: Path) -> None:
    result = run("replay", short, "--html", tmp_path / "nowhere" / "page.html")
    assert result.exit_code == 2
    assert "page.html" in result.stderr


def test_settings_replayed_by_are_the_users_own(broken: Path, tmp_path: Path) -> None:
    path = tmp_path / "warden.yaml"
    path.write_text("policy: {autonomi: auto}\n")
    with pytest.raises(ValueError, match="autonomi"):
        run("replay", broken, "--config", path)
