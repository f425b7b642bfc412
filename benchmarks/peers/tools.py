"""The tools: each from PyPI in a virtual environment of its own, asked as its documentation says, and the cost of a call."""

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

VERSIONS = {"vllm-doctor": "0.6.0", "inference-aiops": "0.12.0", "inferpilot": "0.1.0"}
PATIENCE_S = 120.0

# What inference-aiops offers for judging a replica, asked as its MCP server asks it: the health check, and the root-cause
# analysis that its documentation says to call first when inference is slow.
ASK_AIOPS = """
import json, sys
from inference_aiops.connection import ConnectionManager
from inference_aiops.config import load_config
from inference_aiops.ops.engine import engine_health
from inference_aiops.ops.metrics import diagnose_latency_spike
conn = ConnectionManager.from_config(load_config()).connect(sys.argv[1])
print(json.dumps({"health": engine_health(conn), "latency": diagnose_latency_spike(conn)}))
"""


class ToolMissingError(Exception):
    """A tool cannot be had; the message says why."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What one call gave: its output, exit code, wall and CPU seconds."""

    out: str
    err: str
    code: int
    seconds: float
    cpu_seconds: float

    @property
    def json(self) -> Any:
        """The output as JSON; None when it is not."""
        try:
            return json.loads(self.out)
        except ValueError:
            return None


@dataclass(frozen=True, slots=True)
class Tool:
    """One installed tool, or why it is not installed."""

    name: str
    version: str
    bin: Path | None
    missing: str = ""


def install(name: str, cache: Path) -> Tool:
    """The tool `name` in its own environment under `cache`, made on first use with uv. Never raises: it may be missing."""
    version, place = VERSIONS[name], cache / f"{name}-{VERSIONS[name]}"
    if not (place / "bin" / name).exists():
        uv = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
        if uv is None:
            return Tool(name, version, None, "uv is not installed here (`make setup` installs it)")
        made = (
            [uv, "venv", "--quiet", "--clear", "--python", f"{sys.version_info.major}.{sys.version_info.minor}", str(place)],
            [uv, "pip", "install", "--quiet", "--python", str(place / "bin" / "python"), f"{name}=={version}"],
        )
        for command in made:
            done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own command
            if done.returncode:
                return Tool(
                    name, version, None, done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "uv failed"
                )
    return Tool(name, version, place / "bin")


def ask(command: list[str], environment: Mapping[str, str] | None = None, patience: float = PATIENCE_S) -> Answer:
    """Run `command` to its end (or kill it after `patience` seconds) and measure it."""
    began = time.perf_counter()
    program = subprocess.Popen(  # noqa: S603 - the commands are in this folder
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "NO_COLOR": "1", **(environment or {})},
    )
    late = threading.Timer(patience, program.kill)
    late.start()
    with ThreadPoolExecutor(2) as threads:
        out, err = (threads.submit(_whole, pipe) for pipe in (program.stdout, program.stderr))
    _, status, usage = os.wait4(program.pid, 0)
    late.cancel()
    program.returncode = os.waitstatus_to_exitcode(status)
    seconds, cpu_seconds = time.perf_counter() - began, usage.ru_utime + usage.ru_stime
    return Answer(out.result(), err.result(), program.returncode, seconds, cpu_seconds)


def _whole(pipe: IO[str] | None) -> str:
    if pipe is None:
        return ""
    with pipe:
        return pipe.read()


@dataclass(frozen=True, slots=True)
class Asked:
    """How each tool is asked. `engines` are base URLs by name; `home` is where tools may keep files of their own."""

    engines: Mapping[str, str]
    home: Path
    tools: Mapping[str, Tool] = field(default_factory=dict)

    def vllm_doctor(self, prometheus: str) -> Answer:
        """Prometheus mode over the last minute, as JSON, with its per-replica numbers."""
        command = ["diagnose", prometheus, "--since", "1m", "--output", "json", "--verbose"]
        return ask([str(self._bin("vllm-doctor") / "vllm-doctor"), *command], {"HOME": str(self.home)})

    def inference_aiops(self, engine: str, home: Path) -> Answer:
        """One replica; `home` holds the configuration written by `configure_aiops`."""
        python = self._bin("inference-aiops") / "python"
        return ask([str(python), "-c", ASK_AIOPS, engine], {"INFERENCE_AIOPS_HOME": str(home), "HOME": str(home)})

    def inferpilot(self, engine: str, interval: float) -> Answer:
        """One replica, two looks `interval` seconds apart (its own default is 45)."""
        url = self.engines[engine]
        command = ["doctor", "--url", url, "--interval", str(interval), "--json"]
        return ask([str(self._bin("inferpilot") / "inferpilot"), *command], {"HOME": str(self.home)})

    def _bin(self, name: str) -> Path:
        tool = self.tools[name]
        if tool.bin is None:
            raise ToolMissingError(f"{name} {tool.version} is not installed: {tool.missing}")
        return tool.bin


def configure_aiops(home: Path, engines: Mapping[str, str]) -> None:
    """Write the configuration of inference-aiops: one target a replica."""
    home.mkdir(parents=True, exist_ok=True)
    targets = [
        {
            "name": name,
            "host": url.split("://")[1].rpartition(":")[0],
            "engine": "vllm",
            "vllm_port": int(url.rpartition(":")[2]),
        }
        for name, url in engines.items()
    ]
    home.joinpath("config.yaml").write_text(json.dumps({"targets": targets}))


def ask_ours(*words: str) -> Answer:
    """The product's own command, measured in the same way."""
    return ask([sys.executable, "-m", "agent.cli", *words])
