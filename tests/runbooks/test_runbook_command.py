"""`fleetwarden runbook lint|show|explain`: what it prints, its JSON, its exit codes."""

from pathlib import Path

import orjson
import pytest
from typer.testing import CliRunner

from agent.cli.runbook import app

BAD = Path(__file__).parent / "bad"
run = CliRunner().invoke


def test_lint_finds_nothing_wrong_with_what_is_shipped() -> None:
    result = run(app, ["lint"])
    assert result.exit_code == 0
    assert "no mistakes" in result.output


def test_lint_prints_every_mistake_and_exits_with_1() -> None:
    result = run(app, ["lint", str(BAD / "several-at-once.yaml"), str(BAD / "unknown-key.yaml")])
    assert result.exit_code == 1
    assert "several-at-once.yaml:7: steps[0].do: is not a known verb; did you mean door.drain?" in result.output
    assert "unknown-key.yaml:4: autonomie" in result.output


def test_lint_json_has_stable_keys() -> None:
    result = run(app, ["lint", "--json", str(BAD)])
    content = orjson.loads(result.output)
    assert result.exit_code == 1
    assert set(content) == {"problems", "runbooks"}
    assert all(set(problem) == {"file", "line", "field", "what", "value"} for problem in content["problems"])


def test_lint_of_a_file_that_is_not_there_says_so() -> None:
    result = run(app, ["lint", "/nowhere/book.yaml"])
    assert result.exit_code == 1
    assert "there is no such file" in result.output


def test_show_prints_the_file_or_the_runbook_as_json() -> None:
    assert "name: engine-hung" in run(app, ["show", "engine.hung"]).output
    content = orjson.loads(run(app, ["show", "engine-hung", "--json"]).output)
    assert (content["cause"], content["steps"][0]["do"]) == ("engine.hung", "engine.canary")


def test_show_lists_all() -> None:
    rows = orjson.loads(run(app, ["show", "--json"]).output)["runbooks"]
    assert {"name", "cause", "autonomy", "steps", "file"} == set(rows[0])
    assert "telemetry.blind" in run(app, ["show"]).output


@pytest.mark.parametrize("command", ["show", "explain"])
def test_an_unknown_name_exits_with_2_and_guesses(command: str) -> None:
    result = run(app, [command, "engine.hang"])
    assert result.exit_code == 2
    assert "did you mean engine.hung?" in result.output


def test_explain_says_what_would_happen_step_by_step() -> None:
    says = run(app, ["explain", "engine.hung"]).output
    assert says.index("probe: engine.canary") < says.index("drain: door.drain") < says.index("restart: process.restart")
    assert "no data is not success" in says
    assert set(orjson.loads(run(app, ["explain", "engine.hung", "--json"]).output)) == {"name", "cause", "file", "says"}


def test_an_own_directory_that_is_wrong_exits_with_2(tmp_path: Path) -> None:
    (tmp_path / "wrong.yaml").write_text("name: x\n")
    result = run(app, ["show", "--dir", str(tmp_path)])
    assert result.exit_code == 2
    assert "wrong.yaml:1: cause: is missing" in result.output
