"""The hook inside vLLM: silent unless asked, real collector pauses while asked."""

import subprocess
import sys
from pathlib import Path

import pytest

from serving.engines.vllm_plugin import Wish, read_wish

# Counts how often its own loop stands still for at least 60 ms, until three times; then takes the wish back.
PAUSED = """
import sys, time
from pathlib import Path
from serving.engines import vllm_plugin
wish = Path(sys.argv[1])
wish.write_text('{"pause_s": 0.15, "every_s": 0.4}')
vllm_plugin.start_thread(wish)
pauses, last, deadline = 0, time.monotonic(), time.monotonic() + 60
while pauses < 3 and time.monotonic() < deadline:
    time.sleep(0.001)
    now = time.monotonic()
    pauses += now - last > 0.06
    last = now
print("pauses", pauses)
"""
LOADED = "import sys; before = set(sys.modules); from serving.engines.vllm_plugin import register; register()\n"


def run(script: str, *arguments: str, environment: dict[str, str] | None = None) -> str:
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout


def test_the_collector_really_pauses_a_process_while_the_file_asks(tmp_path: Path) -> None:
    assert run(PAUSED, str(tmp_path / "wish.json")) == "pauses 3\n"


def test_without_the_variable_no_thread_runs_and_nothing_heavy_is_imported() -> None:
    script = LOADED + "import threading\nheavy = {'numpy', 'torch', 'vllm', 'psutil', 'pydantic'}\n"
    script += "print(threading.active_count(), *(heavy & set(sys.modules)))"
    assert run(script, environment={}) == "1\n"


@pytest.mark.parametrize(
    ("child", "threads"), [(True, "2"), (False, "1")], ids=["in an engine's child", "in the API server"]
)
def test_with_the_variable_only_child_processes_are_watched(tmp_path: Path, child: bool, threads: str) -> None:  # noqa: FBT001 - a case
    script = f"import multiprocessing; multiprocessing.parent_process = lambda: {'object()' if child else 'None'}\n"
    script += LOADED + "import threading; print(threading.active_count())"
    assert run(script, environment={"FLEETWARDEN_GC_STALL_FILE": str(tmp_path / "none")}).strip() == threads


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pause_s": 1}', '{"pause_s": "long", "every_s": 3}'])
def test_a_file_that_cannot_be_understood_asks_for_nothing_and_is_named(
    tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "wish.json"
    path.write_text(text)
    assert read_wish(path) is None
    assert str(path) in capsys.readouterr().err


def test_wishes_are_bounded(tmp_path: Path) -> None:
    path = tmp_path / "wish.json"
    assert read_wish(path) is None
    path.write_text('{"pause_s": 1e9, "every_s": 0}')
    assert read_wish(path) == Wish(5.0, 0.1)
