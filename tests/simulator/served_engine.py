"""A simulated engine that serves on the test's own event loop, and what is needed to talk to it."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from serving.simulator.server import SimulatedEngine

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

    async def crawl(self) -> None:
        """Let every step take so long that a test can look at a request in the middle of its life."""
        assert (await self.inject(fault="slow-worker", factor=100))[0] == 200

    async def hurry(self) -> None:
        """Undo `crawl`."""
        assert (await self.clear("slow-worker"))[0] == 200

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
"""Starts an engine with settings of one's own."""
