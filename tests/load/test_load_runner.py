"""The load over the wire, against a small server with changeable manners."""

import asyncio
import io
import json
import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from aiohttp import web

from serving.clock import FakeClock
from serving.load.__main__ import main, parser
from serving.load.arrivals import LoadPlan
from serving.load.patterns import PATTERNS
from serving.load.runner import run_load
from serving.load.tally import Tally

DEADLINE_S = 20.0


class Server:
    """Streams a few events for each completion, in the manner a test asks for."""

    def __init__(self) -> None:
        self.manner = "ok"
        self.bodies: list[dict[str, object]] = []
        self.left: Counter[str] = Counter()
        self.url = ""

    async def complete(self, request: web.Request) -> web.StreamResponse:
        self.bodies.append(await request.json())
        try:
            return await self._answer(request)
        except (asyncio.CancelledError, ConnectionResetError):
            # The second where the client left before the first byte was written: which one is a race.
            self.left[self.manner] += 1
            raise

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if self.manner == "refuse":
            return web.json_response({"error": {}}, status=503)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "X-Served-By": "sim-7"})
        await response.prepare(request)
        if self.manner == "silent":
            await asyncio.Event().wait()
        await response.write(b'data: {"choices": [{"text": "a"}]}\n\n')
        match self.manner:
            case "stall":
                await asyncio.Event().wait()
            case "error":
                await response.write(b'data: {"error": {"code": 500}}\n\n')
            case "truncate" if request.transport is not None:
                request.transport.close()
            case "polite truncate":
                return response
        await response.write(b"data: [DONE]\n\n")
        return response


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    made, app = Server(), web.Application()
    app.router.add_post("/v1/completions", made.complete)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield made
    await runner.cleanup()


def plan(url: str, pattern: str = "steady", **more: object) -> LoadPlan:
    fields: dict[str, object] = {"rps": 200.0, "seconds": 0.2, **more}
    return LoadPlan(PATTERNS[pattern], url, "m", **fields)  # type: ignore[arg-type]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110 - what is waited for happens in another process or deep inside
            await asyncio.sleep(0.005)


async def test_every_arrival_is_sent_and_counted(server: Server) -> None:
    tally = await run_load(plan(server.url, prompt_tokens=5, output_tokens=3))
    assert tally.sent == tally.ok == len(server.bodies) > 10
    assert tally.in_flight == 0
    assert tally.by_engine == {"sim-7": tally.sent}
    assert tally.ttft.count == tally.e2e.count == tally.sent
    body = server.bodies[0]
    assert (len(body["prompt"]), body["max_tokens"], body["stream"], body["ignore_eos"]) == (5, 3, True, True)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("manner", "outcome"),
    [
        ("refuse", "http_503"),
        ("error", "http_500"),
        ("truncate", "connection"),
        ("polite truncate", "connection"),
        ("silent", "timeout"),
        ("stall", "timeout"),
    ],
)
async def test_an_answer_that_is_not_whole_is_not_ok(server: Server, manner: str, outcome: str) -> None:
    server.manner = manner
    tally = await run_load(plan(server.url, max_requests=3, request_timeout_s=0.3))
    assert tally.outcomes == {outcome: 3}
    assert tally.failed == 3


async def test_an_open_loop_does_not_wait_for_answers(server: Server) -> None:
    server.manner = "stall"
    tally = Tally()
    running = asyncio.create_task(run_load(plan(server.url), tally))
    await until(lambda: tally.in_flight > 10)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert tally.in_flight == 0
    assert tally.outcomes == {"client_closed": tally.sent}
    assert tally.ttft.count > 0
    await until(lambda: server.left["stall"] == len(server.bodies))


async def test_impatient_clients_leave_and_the_server_sees_it(server: Server) -> None:
    server.manner = "silent"
    tally = await run_load(plan(server.url, "impatient-clients", max_requests=5))
    assert tally.outcomes == {"client_closed": 5}
    assert tally.failed == 0
    await until(lambda: server.left["silent"] == 5)


async def test_a_mass_cancel_fills_and_then_everyone_leaves_at_once(server: Server) -> None:
    server.manner = "stall"
    tally = Tally()
    running = asyncio.create_task(run_load(plan(server.url, "mass-cancel", rps=200, seconds=0.3), tally))
    await until(lambda: tally.in_flight > 20)
    assert not tally.outcomes
    await running
    assert tally.outcomes == {"client_closed": tally.sent}
    await until(lambda: server.left["stall"] == len(server.bodies))


async def test_arrivals_over_the_limit_in_flight_are_counted_as_not_sent(server: Server) -> None:
    server.manner = "stall"
    tally = await run_load(plan(server.url, max_in_flight=4, request_timeout_s=0.3))
    assert tally.sent == 4 == tally.outcomes["timeout"]
    assert tally.not_sent > 5


async def test_a_log_has_one_line_for_each_request(server: Server) -> None:
    log = io.BytesIO()
    tally = await run_load(plan(server.url), log=log, clock=FakeClock(1_800_000_000.0))
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    assert len(lines) == tally.sent
    keys = {"t", "pattern", "prompt_tokens", "output_tokens", "outcome", "ttft", "e2e", "served_by"}
    assert all(set(line) == keys and line["t"] == 1_800_000_000.0 for line in lines)


async def test_nobody_listening_is_a_connection_failure() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        tally = await run_load(plan(f"http://127.0.0.1:{taken.getsockname()[1]}", max_requests=3))
    assert tally.outcomes == {"connection": 3}


def run(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "serving.load", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ)


async def test_the_command_ends_cleanly_on_a_signal_and_says_what_was_done(server: Server, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    with run("--url", server.url, "--model", "m", "--seconds", "600", "--rps", "50", "--json", "--log", str(log)) as load:
        await until(lambda: len(server.bodies) > 5)
        load.send_signal(signal.SIGTERM)
        out, error = await asyncio.to_thread(load.communicate, None, DEADLINE_S)
    summary = json.loads(out)
    assert load.returncode == 0
    assert error.startswith("steady: 50 requests/s for 600 s")
    assert set(summary) == {
        *("pattern", "url", "model", "seed", "sent", "not_sent", "ok", "failed", "outcomes", "by_engine", "ttft_s", "e2e_s")
    }
    assert summary["sent"] == len(log.read_text().splitlines()) == sum(summary["outcomes"].values())


def test_when_nothing_is_answered_the_command_says_so_by_its_status(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        assert main(["--url", url, "--model", "m", "--rps", "50", "--seconds", "0.2"]) == 1
    assert "connection" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--url", "http://example.com", "--model", "m"), "--allow-remote"),
        (("--url", "http://127.0.0.1:1", "--model", "m", "--rps", "0"), "rps is 0"),
        (("--url", "http://127.0.0.1:1", "--model", "m", "--log", "/nowhere/log"), "--log /nowhere/log"),
    ],
)
def test_bad_usage_is_said_with_what_to_do(
    arguments: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert says in capsys.readouterr().err


def test_every_pattern_is_listed_with_its_meaning(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(["--help"])
    shown = capsys.readouterr().out
    assert all(name in shown and pattern.summary in shown for name, pattern in PATTERNS.items())


def test_whole_numbers_may_be_written_as_floats() -> None:
    chosen = parser().parse_args(["--url", "u", "--model", "m", "--prompt-tokens", "1.5e+03"])
    assert chosen.prompt_tokens == 1500
    with pytest.raises(SystemExit):
        parser().parse_args(["--url", "u", "--model", "m", "--prompt-tokens", "1.5"])


async def test_no_request_carries_a_seed_since_some_engines_die_of_one(server: Server) -> None:
    await run_load(LoadPlan(PATTERNS["steady"], server.url, "m", rps=20.0, seconds=0.5, prompt_tokens=5, output_tokens=2))
    assert server.bodies
    assert all("seed" not in body for body in server.bodies)
