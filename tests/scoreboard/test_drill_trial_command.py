"""One trial lived once more: the same as in the run, with its whole record."""

import json

from typer import Typer
from typer.testing import CliRunner

from agent.cli import drill_trial
from agent.scoreboard.episode import run_trial
from agent.scoreboard.suite import draw_suite, load_tables
from agent.scoreboard.trial import TrialKind

RUNNER = CliRunner()


def _ran(*arguments: object) -> tuple[int, str, str]:
    app = Typer()
    app.command("trial")(drill_trial.trial)
    done = RUNNER.invoke(app, [str(argument) for argument in arguments])
    return done.exit_code, done.stdout, done.stderr


def test_a_trial_is_the_one_of_the_run_and_comes_with_every_incident() -> None:
    drawn = draw_suite("quick", 1, 0, load_tables())
    spec = next(
        one for one in drawn if [fault.name for fault in one.faults] == ["engine-hang"] and one.kind is TrialKind.FAULT
    )
    code, out, _ = _ran(spec.number, "--suite", "quick", "--json")
    told, ran = json.loads(out), run_trial(spec)
    assert code == 0
    assert told["data"] == "simulated"
    assert told["result"]["faults"][0]["detected_after"] == ran.faults[0].detected_after
    assert told["result"]["steps"] == ran.steps
    assert "engine.hung" in {one["incident"]["cause"] for one in told["incidents"]}
    code, out, _ = _ran(spec.number, "--suite", "quick")
    assert code == 0
    assert "engine-hang" in out
    assert "The record" in out


def test_numbers_of_later_seeds_are_found_and_an_unknown_suite_is_refused() -> None:
    first = draw_suite("quick", 1, 3, load_tables())
    later = drill_trial._drawn("quick", 3, len(first))
    assert later == draw_suite("quick", 2, 3, load_tables())[len(first)]
    code, _, said = _ran(1, "--suite", "none")
    assert code == 2
    assert "quick" in said
