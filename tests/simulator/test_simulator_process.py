"""The simulated engine as a process of its own: how it starts, stops, dies and refuses bad options."""

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from served_engine import DEADLINE, eventually

from serving.simulator.__main__ import main
from serving.simulator.settings import SimulatorSettings

ROOT = Path(__file__).parents[2]


@dataclass
class EngineProcess:
    """A running process and what it serves on."""

    process: asyncio.subprocess.Process
    session: aiohttp.ClientSession
    url: str

    async def answers(self, path: str, seconds: float = 5.0) -> bool:
        try:
            async with self.session.get(self.url + path, timeout=aiohttp.ClientTimeout(total=seconds)) as answer:
                return answer.status == 200
        except (aiohttp.ClientError, TimeoutError):
            return False

    async def post(self, path: str, body: object) -> tuple[int, Any]:
        async with self.session.post(self.url + path, json=body) as answer:
            return answer.status, await answer.json()


Launch = Callable[..., Awaitable[EngineProcess]]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]


async def begin(*options: str) -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    command = (sys.executable, "-m", "serving.simulator", *options)
    return await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=pipe, stderr=pipe)


async def run(*options: str) -> tuple[int | None, str]:
    """Run to its end; exit code and all it said."""
    process = await begin(*options)
    said, complained = await asyncio.wait_for(process.communicate(), DEADLINE)
    return process.returncode, (said + complained).decode()


@pytest.fixture
async def launch() -> AsyncIterator[Launch]:
    """Starts engine processes and waits until they serve, unless told not to."""
    running: list[EngineProcess] = []

    async def start(*options: str, wait: bool = True) -> EngineProcess:
        port = free_port()
        process = await begin("--name", "sim-0", "--port", str(port), "--startup-seconds", "0.2", *options)
        engine = EngineProcess(process, aiohttp.ClientSession(), f"http://127.0.0.1:{port}")
        running.append(engine)
        if wait:
            await eventually(lambda: engine.answers("/health"), "the engine serves")
        return engine

    yield start
    for engine in running:
        with contextlib.suppress(ProcessLookupError):
            engine.process.kill()
        await engine.process.communicate()
        await engine.session.close()


async def test_it_serves_its_model_and_stops_cleanly_when_told_to(launch: Launch) -> None:
    engine = await launch("--model", "tiny", "--seed", "5")
    status, answer = await engine.post("/v1/completions", {"model": "tiny", "prompt": "hi", "max_tokens": 3})
    assert (status, answer["usage"]["completion_tokens"]) == (200, 3)
    engine.process.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(engine.process.wait(), DEADLINE) == 0


async def test_it_stops_in_the_middle_of_a_stream(launch: Launch) -> None:
    engine = await launch()
    body = {"model": "sim", "prompt": "hi", "max_tokens": 4000, "stream": True}
    async with engine.session.post(engine.url + "/v1/completions", json=body) as answer:
        await answer.content.readline()
        engine.process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(engine.process.wait(), DEADLINE) == 0


async def test_its_port_is_closed_until_the_model_is_loaded(launch: Launch) -> None:
    engine = await launch("--startup-seconds", "60", wait=False)
    line = await asyncio.wait_for(engine.process.stderr.readline(), DEADLINE)
    assert b"loading sim" in line
    with pytest.raises(aiohttp.ClientConnectorError):
        await engine.session.get(engine.url + "/health")
    engine.process.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(engine.process.wait(), DEADLINE) == 0


@pytest.mark.parametrize("fault", ["engine-kill", "worker-kill"])
async def test_when_the_engine_dies_requests_fail_and_the_process_follows(launch: Launch, fault: str) -> None:
    engine = await launch()
    asking = asyncio.create_task(engine.post("/v1/completions", {"prompt": "hi", "max_tokens": 4000}))
    await asyncio.sleep(0.05)
    status, said = await engine.post("/sim/faults", {"fault": fault, "after_s": 1.0})
    assert (status, said["fault"]) == (200, fault)
    status, answer = await asking
    assert (status, answer["error"]["type"]) == (500, "InternalServerError")
    async with engine.session.get(engine.url + "/health") as health:
        assert health.status == 503
    async with engine.session.delete(f"{engine.url}/sim/faults/{fault}") as undo:
        assert undo.status == 409
        assert "start the engine anew" in (await undo.json())["error"]
    assert await asyncio.wait_for(engine.process.wait(), DEADLINE) == 1


async def test_a_killed_api_process_is_gone_without_a_word(launch: Launch) -> None:
    engine = await launch()
    assert (await engine.post("/sim/faults", {"fault": "api-kill", "after_s": 0}))[0] == 200
    assert await asyncio.wait_for(engine.process.wait(), DEADLINE) == -signal.SIGKILL


async def test_a_stopped_process_goes_on_where_it_stood(launch: Launch) -> None:
    engine = await launch()
    body = {"prompt": "hi", "max_tokens": 100, "stream": True}
    async with engine.session.post(engine.url + "/v1/completions", json=body) as answer:
        await answer.content.readline()
        os.kill(engine.process.pid, signal.SIGSTOP)
        assert not await engine.answers("/health", seconds=0.5)
        os.kill(engine.process.pid, signal.SIGCONT)
        assert (await answer.content.read()).count(b'"choices"') == 99
    async with engine.session.get(engine.url + "/metrics") as answer:
        lines = (await answer.text()).splitlines()
    bucket = next(line for line in lines if "inter_token_latency_seconds_bucket" in line and 'le="0.3"' in line)
    # The time it stood still shows as a long gap, not as many tokens at once when it goes on.
    assert 50 < float(bucket.rsplit(" ", 1)[1]) < 99


async def test_the_port_of_another_is_refused_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        code, said = await run("--name", "sim-0", "--port", port)
    assert code == 2
    assert f"cannot serve on 127.0.0.1:{port}: Address already in use; choose another --host or --port" in said


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--port", "0"], "required: --name"),
        (["--name", "x", "--port", "70000"], "--port: Input should be less than or equal to 65535 (given: 70000)"),
        (["--name", "x", "--port", "0", "--speed", "fast"], "--speed: Input should be a valid number"),
        (["--name", "x", "--port", "0", "--num-gpu-blocks", "8"], "raise num_gpu_blocks to at least 33"),
        (["--name", "x", "--port", "0", "--max-num-batched-tokens", "8"], "must be at least max_num_seqs (16)"),
        (["--name", "x", "--port", "0", "--otlp-endpoint", "nowhere"], "--otlp-endpoint: spans go out over HTTP"),
        (["--name", "x", "--port", "0", "--gpus", "8"], "unrecognized arguments: --gpus 8"),
        (["--name", "x", "--port", "0", "--scheduling-policy", "best"], "--scheduling-policy: Input should be 'fcfs'"),
    ],
)
def test_bad_options_are_explained(options: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code: object = main(options)
    except SystemExit as refused:
        code = refused.code
    assert code == 2
    assert words in capsys.readouterr().err


def test_help_explains_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    said = capsys.readouterr().out
    for name, field in SimulatorSettings.model_fields.items():
        assert f"--{name.replace('_', '-')}" in said
        assert field.description
