"""A file with a few parameters stands over the shipped ones."""

from pathlib import Path

import pytest

from agent.local_fleet import DETECTORS
from detectors.parameters import load_parameters
from serving.yaml_file import FileError


def test_what_a_file_states_wins_and_the_rest_stays_as_shipped(tmp_path: Path) -> None:
    own = tmp_path / "detectors.yaml"
    own.write_text("progress:\n  young: 15.0\n")
    shipped, read = load_parameters(), load_parameters(own)
    assert read.progress.young == 15.0
    assert read.progress.hold == shipped.progress.hold
    assert read.load == shipped.load


def test_every_mistake_is_named_with_file_and_line(tmp_path: Path) -> None:
    own = tmp_path / "detectors.yaml"
    own.write_text("progress:\n  young: soon\n  yuong: 3\nloud: {}\n")
    with pytest.raises(FileError) as refused:
        load_parameters(own)
    lines = {(problem.line, problem.field) for problem in refused.value.problems}
    assert lines == {(2, "progress.young"), (3, "progress.yuong"), (4, "loud")}


def test_the_local_fleets_own_file_fits(tmp_path: Path) -> None:
    own = tmp_path / "detectors.yaml"
    own.write_text(DETECTORS)
    assert load_parameters(own).progress.young < load_parameters().progress.young
