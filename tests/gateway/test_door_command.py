"""`python -m serving.gateway` as a person or a launcher runs it."""

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import requests

from serving.gateway.__main__ import TOKEN_VARIABLE, main, parser, settings

ENGINE = ("--engine", "sim-0=sim@http://127.0.0.1:1")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "give one of --fleet FLEET.yaml, --kubernetes-selector SELECTOR, or one or more --engine"),
        (("--engine", "sim-0"), "write NAME=MODEL@URL"),
        (("--engine", "sim-0=sim@ftp://h"), "write NAME=MODEL@URL"),
        ((*ENGINE, *ENGINE), "sim-0 is given twice"),
        (("--fleet", "/nowhere/fleet.yaml"), "/nowhere/fleet.yaml"),
        (("--fleet", "/nowhere/fleet.yaml", "--follow"), "/nowhere/fleet.yaml"),
        ((*ENGINE, "--kubernetes-selector", "app=llm"), "give one of"),
        (("--kubernetes-selector", "app in llm"), "--kubernetes-selector: Value error, is no label selector"),
        (("--kubernetes-selector", "app=llm", "--kubeconfig", "/nowhere/config"), "/nowhere/config"),
        ((*ENGINE, "--admin-host", "0.0.0.0"), "need a token"),  # noqa: S104 - it must be refused
        ((*ENGINE, "--admin-token-file", "/nowhere"), "cannot be read"),
        ((*ENGINE, "--first-byte-timeout", "0"), "more than 0 seconds"),
    ],
)
def test_bad_usage_is_said_in_one_line_with_what_to_do(
    arguments: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert says in error


def test_a_port_out_of_range_is_bad_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parser().parse_args([*ENGINE, "--port", "70000"])
    assert ended.value.code == 2
    assert "65535" in capsys.readouterr().err


def test_a_state_file_that_cannot_be_understood_stops_the_start(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = tmp_path / "state.json"
    state.write_text("{")
    assert main([*ENGINE, "--port", "0", "--admin-port", "0", "--state", str(state)]) == 2
    assert str(state) in capsys.readouterr().err


def test_a_taken_port_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert main([*ENGINE, "--admin-port", "0", "--port", str(taken.getsockname()[1])]) == 1
    assert "cannot listen" in capsys.readouterr().err


def test_the_token_comes_from_a_file_or_the_environment_and_is_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text("from-file\n")
    monkeypatch.setenv(TOKEN_VARIABLE, "from-env")
    in_env, in_file = "from-env", "from-file"
    assert settings(parser().parse_args([*ENGINE])).admin_token == in_env
    chosen = settings(parser().parse_args([*ENGINE, "--admin-token-file", str(tmp_path / "token")]))
    assert chosen.admin_token == in_file
    assert in_file not in repr(chosen)


def test_the_command_serves_until_it_is_told_to_stop(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "serving.gateway", *ENGINE, "--port", "0", "--admin-port", "0", "--state"]
    environment = {**os.environ, TOKEN_VARIABLE: "t"}
    with subprocess.Popen(
        [*command, str(tmp_path / "state.json")], stdout=subprocess.PIPE, text=True, env=environment
    ) as door:
        assert door.stdout is not None
        users, orders = re.findall(r"http://127\.0\.0\.1:\d+", door.stdout.readline())
        try:
            assert requests.get(f"{users}/health", timeout=5).status_code == 200
            rows = requests.get(f"{orders}/admin/engines", headers={"Authorization": "Bearer t"}, timeout=5).json()
            assert [row["name"] for row in rows] == ["sim-0"]
            body = {"model": "sim", "prompt": "x"}
            assert requests.post(f"{users}/v1/completions", json=body, timeout=5).status_code == 502
        finally:
            door.send_signal(signal.SIGTERM)
        assert door.wait(20) == 0
