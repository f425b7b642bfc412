"""A simulated engine behind a real port, on the test's own event loop, and what is needed to talk to it."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from prometheus_client.parser import text_string_to_metric_families

from serving.clock import SystemClock
from serving.simulator.server import SimulatedEngine
from serving.simulator.settings import SimulatorSettings

DEADLINE = 20.0


async def eventually(condition: Callable[[], Awaitable[bool]], what: str) -> None:
    """Poll until `condition` holds; fail with `what` after a deadline that only a broken engine misses."""
    loop = asyncio.get_running_loop()
    end = loop.time() + DEADLINE
    while not await condition():
        assert loop.time() < end, f"waited in vain until {what}"
        await asyncio.sleep(0.01)


@dataclass
class Served:
    """A running engine and a session to talk to it."""

    engine: SimulatedEngine
    session: aiohttp.ClientSession
    url: str

    async def complete(self, **body: Any) -> tuple[int, Any]:
        """POST /v1/completions; status and JSON."""
        return await self.post("/v1/completions", {"model": "sim", "prompt": "hello", "max_tokens": 4, **body})

    async def post(self, path: str, body: object = None, **options: Any) -> tuple[int, Any]:
        async with self.session.post(self.url + path, json=body, **options) as answer:
            return answer.status, await answer.json()

    async def get(self, path: str) -> tuple[int, Any]:
        async with self.session.get(self.url + path) as answer:
            return answer.status, await answer.json(content_type=None)

    async def inject(self, **fault: object) -> tuple[int, Any]:
        return await self.post("/sim/faults", fault)

    async def clear(self, name: str) -> tuple[int, Any]:
        async with self.session.delete(f"{self.url}/sim/faults/{name}") as answer:
            return answer.status, await answer.json()

    async def exposition(self) -> str:
        async with self.session.get(self.url + "/metrics") as answer:
            assert answer.status == 200
            return await answer.text()

    async def samples(self) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        """All samples by (name, labels without engine and model)."""
        found = {}
        for family in text_string_to_metric_families(await self.exposition()):
            for sample in family.samples:
                labels = {key: text for key, text in sample.labels.items() if key not in ("engine", "model_name")}
                found[sample.name, frozenset(labels.items())] = sample.value
        return found

    async def value(self, name: str, **labels: str) -> float:
        return (await self.samples())[name, frozenset(labels.items())]

    async def reads(self, name: str, expected: float, **labels: str) -> None:
        """Wait until a sample has a value."""

        async def there() -> bool:
            return await self.value(name, **labels) == expected

        await eventually(there, f"{name} {labels} reads {expected}")


Start = Callable[..., Awaitable[Served]]


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
