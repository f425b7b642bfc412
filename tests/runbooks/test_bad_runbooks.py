"""One small bad runbook for each mistake, with the exact message: file, line, field, what is wrong, what may be meant."""

from pathlib import Path

import pytest

from agent.cli.runbook import known
from runbooks.loader import load_library, load_runbook
from serving.yaml_file import FileError

BAD = Path(__file__).parent / "bad"
FILES = sorted(BAD.glob("*.yaml"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_mistake_is_told_exactly(path: Path) -> None:
    expected = [line.removeprefix("# expect ") for line in path.read_text().splitlines() if line.startswith("# expect ")]
    assert expected
    with pytest.raises(FileError) as refused:
        load_runbook(path, known())
    assert [str(problem).removeprefix(f"{BAD}/") for problem in refused.value.problems] == expected


def test_all_files_of_a_directory_are_judged_at_once() -> None:
    what = known()
    with pytest.raises(FileError) as refused:
        load_library(what.verbs, what.causes, [BAD])
    files = {problem.file for problem in refused.value.problems}
    assert files == {str(path) for path in FILES}


def test_a_directory_that_is_not_there_is_told(tmp_path: Path) -> None:
    what = known()
    with pytest.raises(FileError, match="is not a directory of runbooks"):
        load_library(what.verbs, what.causes, [tmp_path / "none"])
