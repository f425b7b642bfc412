"""The command: what it prints, writes and refuses, and its exit codes."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from made_results import fault, trial
from typer import Typer
from typer.testing import CliRunner

from agent.cli import drill_score
from agent.scoreboard.trial import TrialKind, TrialResult, TrialSpec

RUNNER = CliRunner()


def _ran(*arguments: object) -> tuple[int, str, str]:
    app = Typer()
    app.command("score")(drill_score.score)
    done = RUNNER.invoke(app, [str(argument) for argument in arguments])
    return done.exit_code, done.stdout, done.stderr


def _found(number: int) -> TrialResult:
    return trial(number, TrialKind.FAULT, fault("engine-hang"))


def _missed(number: int) -> TrialResult:
    return trial(number, TrialKind.FAULT, fault("engine-hang", detect=None))


@pytest.fixture
def comes(monkeypatch: pytest.MonkeyPatch) -> list[TrialResult | BaseException]:
    """What the trials come to, instead of running any; an exception is raised in its place."""
    results: list[TrialResult | BaseException] = [_found(number) for number in range(60)]

    def run_all(_trials: object, _run: object, _workers: int) -> Iterator[TrialResult]:
        for result in results:
            if isinstance(result, BaseException):
                raise result
            yield result

    def draw_suite(*_: object) -> tuple[TrialSpec, ...]:
        return tuple(None for _ in results)  # type: ignore[misc]

    monkeypatch.setattr(drill_score, "run_all", run_all)
    monkeypatch.setattr(drill_score, "draw_suite", draw_suite)
    return results


def test_the_board_is_printed_and_written_with_its_pictures(comes: list[object], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    code, out, _ = _ran("--suite", "quick", "--workers", 1, "--out", tmp_path / "new" / "board")
    assert code == 0
    assert "engine-hang" in out
    assert "simulated" in out
    names = {path.name for path in (tmp_path / "new" / "board").iterdir()}
    assert names == {"scoreboard.json", "README.md", "recall.svg", "time-to-detect.svg"}
    assert len(comes) == 60


@pytest.mark.usefixtures("comes")
def test_json_is_the_board_with_its_totals() -> None:
    code, out, _ = _ran("--suite", "quick", "--json")
    assert code == 0
    told = json.loads(out)
    assert told["totals"]["drills"] == 60
    assert told["totals"]["recall"] == 1.0
    assert told["run"]["suite"] == "quick"


def test_after_an_interruption_what_was_done_is_told_and_nothing_is_written(comes: list[object], tmp_path: Path) -> None:
    comes[20] = KeyboardInterrupt()
    code, out, err = _ran("--suite", "quick", "--out", tmp_path)
    assert code == 1
    assert "interrupted after 20 of 60 trials" in err
    assert "Only 20 of 60 trials were run." in out
    assert list(tmp_path.iterdir()) == []


def test_a_trial_that_could_not_be_run_is_an_exit_code_of_its_own(comes: list[object]) -> None:
    comes[3] = trial(3, TrialKind.FAULT, fault("engine-hang"), error="ValueError: broken")
    code, out, _ = _ran("--suite", "quick")
    assert code == 1
    assert "trial 3: ValueError: broken" in out


def test_what_is_worse_than_before_beyond_chance_is_said_and_is_the_exit_code(comes: list[object], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    assert _ran("--suite", "quick", "--out", tmp_path)[0] == 0
    code, out, _ = _ran("--suite", "quick", "--against", tmp_path / "scoreboard.json")
    assert code == 0
    assert "no figure differs by more than chance explains" in out
    comes[:] = [_missed(number) for number in range(60)]
    code, out, _ = _ran("--suite", "quick", "--against", tmp_path / "scoreboard.json")
    assert code == 1
    assert "WORSE: engine-hang, recall: 1 before, 0 now" in out


@pytest.mark.usefixtures("comes")
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--suite", "enormous"], "there is no suite 'enormous'; there are quick, full"),
        (["--suite", "quick", "--against", "nowhere.json"], "nowhere.json cannot be read: No such file or directory"),
        (["--suite", "quick", "--against", "{file}"], "is not a scoreboard of format"),
        (["--suite", "quick", "--out", "{file}"], "is not a folder"),
        (["--suite", "quick", "--seeds", "0"], "greater than or equal to 1"),
    ],
)
def test_bad_usage_is_a_sentence_and_exit_code_two(arguments: list[str], says: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("nothing")
    code, _, err = _ran(*(argument.format(file=file) for argument in arguments))
    assert code == 2
    assert says in " ".join(err.replace("│", " ").split())
