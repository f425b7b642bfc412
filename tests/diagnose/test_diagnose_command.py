"""The command as it is typed: exit codes, JSON, the page at 100 columns, changes only, and never a traceback."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner, Result

from agent.checkup.changes import changes
from agent.checkup.page import page
from agent.checkup.report import CheckupReport, Verdict
from agent.cli.diagnose import diagnose

ROOT = Path(__file__).parents[2]
KEYS = {
    "at",
    "source",
    "urls",
    "watched_s",
    "readings",
    "verdict",
    "exit_code",
    "says",
    "engines",
    "causes",
    "unread",
    "unseen",
    "notes",
}


def run(*words: str) -> Result:
    app = typer.Typer()
    app.command()(diagnose)
    return CliRunner().invoke(app, list(words))


def test_a_healthy_engine_ends_with_0_and_says_what_could_not_be_seen(engine: Any) -> None:
    result = run(engine.url, "--for", "3")
    assert result.exit_code == 0, result.output
    assert result.output.startswith("No sign of trouble in what could be seen of 1 engine.")
    assert "Could not be seen" in result.output
    assert "no front door" in result.output


def test_the_report_as_json_has_its_documented_keys(engine: Any) -> None:
    result = run(engine.url, "--for", "2", "--json")
    told = orjson.loads(result.stdout)
    assert set(told) == KEYS
    assert told["exit_code"] == result.exit_code == 0
    documented = (ROOT / "docs" / "diagnose.md").read_text()
    rows = [row for name in ("engines", "causes", "unread", "unseen") for row in told[name]]
    assert all(f"`{key}`" in documented for key in KEYS | {key for row in rows for key in row})


def test_a_url_that_cannot_be_read_ends_with_2_and_a_sentence_in_both_forms(refused: str) -> None:
    plain, json = run(refused), run(refused, "--json")
    assert plain.exit_code == json.exit_code == 2
    assert "refuses connections" in plain.output
    told = orjson.loads(json.stdout)
    assert (told["verdict"], told["unread"][0]["kind"]) == ("unreadable", "refused")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["http://h:1", "--since", "soon"], "--since"),
        (["http://h:1", "--since", "1s"], "--since"),
        (["http://h:1", "--match", "cluster"], "LABEL=VALUE"),
        (["http://h:1", "--token-file", "/no/such/file"], "no such file"),
        (["http://h:1", "--for", "0"], "--for"),
        ([], "URL"),
    ],
)
def test_bad_usage_ends_with_2_and_says_what_is_wrong(words: list[str], says: str) -> None:
    result = run(*words)
    assert result.exit_code == 2
    assert says in result.output + result.stderr
    assert isinstance(result.exception, SystemExit)


def _report(**changed: Any) -> CheckupReport:
    evidence = {
        "symptom": "steps.frozen",
        "entity": "engine/vllm-0",
        "since": 100.0,
        "severity": 0.9,
        "signal": "engine.steps",
        "says": "no engine step for 40 s with 3 requests in flight",
        "value": 40.0,
        "expected": 0.0,
        "unit": "seconds",
    }
    cause = {
        "rank": 1,
        "cause": "engine.hung",
        "entity": "engine/vllm-0",
        "headline": "vllm-0 is hung",
        "means": "it takes requests, and answers do not come",
        "score": 0.81,
        "enough": True,
        "since": 100.0,
        "evidence": [evidence],
        "against": [],
        "missing": ["door.in_flight"],
        "rivals": [],
        "probe": "engine.canary",
        "settings": [{"setting": "--max-num-seqs", "look": "fewer at once " * 12, "source": "vllm/config/scheduler.py"}],
    }
    engine = {
        "engine": "vllm-0.a-rather-long-name.of-a-pod.in-some-namespace:8000",
        "url": "http://h:1/metrics",
        "model": "some-organisation/some-model-with-a-long-name-70B-Instruct",
        "node": None,
        "measured": True,
        "idle": False,
        "running": 3.0,
        "waiting": None,
        "kv_usage": 0.51,
        "steps_per_s": 12.3,
        "older_names": {},
    }
    whole = {
        "at": 140.0,
        "source": "metrics",
        "urls": ["http://h:1/metrics"],
        "watched_s": 40.0,
        "readings": 20,
        "verdict": "sick",
        "exit_code": 1,
        "says": "1 cause of trouble found",
        "engines": [engine],
        "causes": [cause],
        "unread": [{"url": "http://h:2/metrics", "kind": "refused", "says": "refuses connections", "todo": "check it"}],
        "unseen": [],
        "notes": ["a note that is " + "long " * 40],
    }
    return CheckupReport.model_validate(whole | changed)


def _shown(report: CheckupReport, width: int = 100) -> str:
    console = Console(width=width, record=True, file=open(os.devnull, "w"))  # noqa: SIM115, PTH123 - closed with the test
    for part in page(report):
        console.print(part)
    console.file.close()
    return console.export_text()


def test_the_page_fits_100_columns_and_says_the_important_things() -> None:
    text = _shown(_report())
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 100
    for said in ("vllm-0 is hung", "no engine step for 40 s", "--max-num-seqs", "door.in_flight", "To be sure", "51%"):
        assert said in text


def test_a_watch_tells_what_came_and_what_went_and_nothing_else() -> None:
    sick = _report()
    well = _report(causes=[], unread=[], verdict="healthy", exit_code=0, says="no sign of trouble")
    assert list(changes(sick, sick)) == []
    assert list(changes(sick, _report(at=150.0, readings=30))) == []
    assert list(changes(sick, well)) == [
        "no longer seen: vllm-0 is hung (engine.hung)",
        "can be read again: http://h:2/metrics",
        "healthy: no sign of trouble",
    ]
    came = list(changes(well, sick))
    assert came[0].startswith("vllm-0 is hung (engine.hung, score 0.81): no engine step")
    assert came[-1] == "sick: 1 cause of trouble found"
    assert Verdict(sick.verdict) is Verdict.SICK


def test_a_watch_ends_at_ctrl_c_with_the_exit_code_of_its_last_look(engine: Any) -> None:
    code = "import typer; from agent.cli.diagnose import diagnose; app = typer.Typer(); app.command()(diagnose); app()"
    command = [sys.executable, "-c", code, engine.url, "--for", "1", "--watch", "--json"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        first = orjson.loads(process.stdout.readline())
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=60)
    assert first["verdict"] in {"healthy", "unmeasured"}
    assert process.returncode in {0, 2}
    assert "Traceback" not in error
