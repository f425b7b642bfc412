"""Simulated engines behind real ports."""

import socket
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from served_engine import Served, Start

from serving.clock import SystemClock
from serving.simulator.server import SimulatedEngine
from serving.simulator.settings import SimulatorSettings


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Starts engines; they are stopped when the test ends. The defaults are quick: short steps, no loading."""
    running = []

    async def begin(**settings: Any) -> Served:
        chosen = {"name": "sim-0", "port": 0, "step_base_ms": 2, "step_prefill_token_ms": 0.01, "otlp_interval": 0.05}
        engine = SimulatedEngine(SimulatorSettings(**(chosen | settings)), SystemClock())
        runner = web.AppRunner(engine.application(), handler_cancellation=True, access_log=None, shutdown_timeout=0.05)
        await runner.setup()
        listener = socket.create_server(("127.0.0.1", 0))
        await web.SockSite(runner, listener).start()
        session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30))
        running.append((engine, runner, session))
        return Served(engine, session, f"http://127.0.0.1:{listener.getsockname()[1]}")

    yield begin
    for engine, runner, session in running:
        await session.close()
        engine.driver.close()
        await runner.cleanup()
        if engine.spans is not None:
            await engine.spans.close()


@pytest.fixture
async def served(start: Start) -> Served:
    """An engine with the quick defaults."""
    return await start()
