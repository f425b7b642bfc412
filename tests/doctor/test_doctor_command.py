"""The command as it is typed: exit codes, JSON and the page."""

import re
from pathlib import Path

import orjson
import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner, Result
from whole_set_up import SetUp

from agent.cli.doctor import doctor
from agent.doctor.findings import examination, ok, problem, warning
from agent.doctor.page import page

ROOT = Path(__file__).parents[2]


def run(runner: CliRunner, *words: str) -> Result:
    app = typer.Typer()
    app.command()(doctor)
    return runner.invoke(app, list(words))


def test_a_set_up_in_order_ends_with_0(set_up: SetUp, runner: CliRunner) -> None:
    set_up.serve()
    result = run(runner, "--config", str(set_up.config))
    assert result.exit_code == 0, result.output
    assert "checks came out well" in result.output


def test_a_problem_ends_with_1_and_json_has_its_documented_keys(set_up: SetUp, runner: CliRunner) -> None:
    set_up.serve()
    set_up.engine.stop()
    result = run(runner, "--config", str(set_up.config), "--json")
    assert result.exit_code == 1
    told = orjson.loads(result.stdout)
    assert told["problems"] >= 1
    assert told["exit_code"] == 1
    documented = (ROOT / "docs" / "doctor.md").read_text()
    assert all(f"`{key}`" in documented for key in (*told, *told["checks"][0]))
    assert all(f"`{row['check']}`" in documented for row in told["checks"])


@pytest.mark.parametrize("option", ["--config", "--fleet"])
def test_a_configuration_that_cannot_be_read_ends_with_2_and_names_the_line(
    option: str, tmp_path: Path, runner: CliRunner
) -> None:
    file = tmp_path / "file.yaml"
    file.write_text("fleet: [1\n")
    plain, json = run(runner, option, str(file)), run(runner, option, str(file), "--json")
    assert plain.exit_code == json.exit_code == 2
    assert f"{file}" in plain.stderr
    assert isinstance(plain.exception, SystemExit)
    told = orjson.loads(json.stdout)
    assert (told["exit_code"], told["checks"][0]["state"]) == (2, "problem")


def test_settings_whose_fleet_file_is_missing_end_with_2(tmp_path: Path, runner: CliRunner) -> None:
    file = tmp_path / "warden.yaml"
    file.write_text("state_dir: state\n")
    result = run(runner, "--config", str(file))
    assert result.exit_code == 2
    assert "no fleet file" in result.stderr


def test_two_things_at_once_are_bad_usage(tmp_path: Path, runner: CliRunner) -> None:
    result = run(runner, "http://127.0.0.1:1", "--fleet", str(tmp_path / "fleet.yaml"))
    assert result.exit_code == 2
    assert "name one of them" in result.stderr


def test_the_page_puts_alike_checks_together_and_what_is_wrong_first() -> None:
    checks = [ok("engine.answers", f"e-{number}", "answers") for number in range(6)]
    checks.append(problem("engine.answers", "e-9", "refuses connections", "check it " * 30))
    checks.append(warning("sinks", "sinks", "nobody is told", "name somebody"))
    console = Console(width=100, record=True, quiet=False, file=_Nowhere())
    for part in page(examination(0.0, checks)):
        console.print(part)
    lines = [line.rstrip() for line in console.export_text().splitlines()]
    assert max(map(len, lines)) <= 100
    assert lines[0] == "1 problem and 1 warning"
    engines = lines[lines.index("Engines") :]
    assert engines[1].startswith("  problem")
    assert any("e-0, e-1, e-2, e-3 and 2 more: answers" in line for line in engines)


def test_every_documented_check_is_shown_under_a_title_of_its_area() -> None:
    table = (
        (Path(__file__).parents[2] / "docs" / "doctor.md").read_text().partition("| `own.version`")[2].partition("\n\n")[0]
    )
    named = re.findall(
        r"`([a-z]+(?:\.[a-z_]+)?)`", "`own.version`" + "".join(line.split("|")[1] for line in table.splitlines()[1:])
    )
    console = Console(width=100, record=True, quiet=False, file=_Nowhere())
    for part in page(examination(0.0, [ok(check, "x", "is well") for check in named])):
        console.print(part)
    assert len(named) > 30
    assert "Other" not in console.export_text().splitlines()


class _Nowhere:
    def write(self, _: str) -> None:
        """Take it."""

    def flush(self) -> None:
        """Nothing is kept."""
