"""Small engines to put behind the door, and a door over them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import orjson
from aiohttp import web

from serving.fleet.topology import EngineFacts, Topology
from serving.gateway.ejection import EjectionPolicy
from serving.gateway.proxy import Limits
from serving.gateway.retry_budget import RetryBudget
from serving.gateway.server import Door, DoorSettings, running_door

DEADLINE_S = 20.0
CHUNKS = (*(f'data: {{"choices": [{{"text": "t{n}"}}]}}\n\n'.encode() for n in range(3)), b"data: [DONE]\n\n")


async def until(condition: Callable[[], bool | Awaitable[bool]]) -> None:
    """Wait until `condition` holds."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            held = condition()
            if held is True or (not isinstance(held, bool) and await held):
                return
            await asyncio.sleep(0.005)


@dataclass
class Upstream:
    """An engine whose manners a test may change while it runs."""

    name: str
    model: str = "m"
    status: int = 200
    hang_before_headers: bool = False
    hang_before_first_byte: bool = False
    hang_after_first_byte: bool = False
    break_before_first_byte: bool = False
    break_after_first_byte: bool = False
    error_event_first: int | None = None
    error_event_last: int | None = None
    chunks: tuple[bytes, ...] = CHUNKS
    url: str = ""
    seen: list[web.Request] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    left: int = 0
    written: int = 0
    release: asyncio.Event = field(default_factory=asyncio.Event)
    runner: web.AppRunner | None = None

    async def start(self, port: int = 0) -> None:
        app = web.Application(client_max_size=1 << 30)
        app.router.add_route("*", "/{path:.*}", self.answer)
        self.runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0)
        await self.runner.setup()
        await web.TCPSite(self.runner, "127.0.0.1", port).start()
        self.url = f"http://127.0.0.1:{self.runner.addresses[0][1]}"

    async def stop(self) -> None:
        if self.runner is not None:
            await self.runner.cleanup()
            self.runner = None

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.seen.append(request)
        self.bodies.append(await request.read())
        try:
            return await self._answer(request)
        except (asyncio.CancelledError, ConnectionError):
            self.left += 1
            raise

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if self.hang_before_headers:
            await self.release.wait()
        if self.break_before_first_byte and request.transport is not None:
            request.transport.abort()
        if self.status != 200:
            body = orjson.dumps({"error": {"message": f"from {self.name}", "code": self.status}})
            return web.Response(status=self.status, body=body, content_type="application/json", headers={"Retry-After": "7"})
        if not orjson.loads(self.bodies[-1] or b"{}").get("stream"):
            return web.json_response({"engine": self.name}, headers={"X-Engine-Says": "hello"})
        return await self._stream(request)

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        if self.hang_before_first_byte:
            await self.release.wait()
        if self.error_event_first is not None:
            await response.write(b'data: {"error": {"message": "dead", "code": %d}}\n\n' % self.error_event_first)
        for number, chunk in enumerate(self.chunks):
            if number == 1 and self.hang_after_first_byte:
                await self.release.wait()
            if number == 1 and self.break_after_first_byte and request.transport is not None:
                request.transport.close()
            await response.write(chunk)
            self.written += len(chunk)
        if self.error_event_last is not None:
            await response.write(b'data: {"error": {"message": "dead", "code": %d}}\n\n' % self.error_event_last)
        return response


@dataclass
class Ring:
    """A door, its upstreams, and a client session."""

    door: Door
    upstreams: dict[str, Upstream]
    client: aiohttp.ClientSession

    async def complete(self, *, stream: bool = False, model: str = "m", **more: object) -> tuple[int, bytes]:
        """One completion through the door: its status and body."""
        body = {"model": model, "prompt": "hi", "stream": stream}
        async with self.client.post(f"{self.door.url}/v1/completions", json=body, **more) as response:  # type: ignore[arg-type]
            return response.status, await response.read()

    async def order(self, path: str, **body: object) -> tuple[int, dict[str, object]]:
        """One order to the door."""
        async with self.client.put(f"{self.door.admin_url}/admin/engines/{path}", json=body) as response:
            return response.status, await response.json()

    async def metrics(self) -> dict[str, float]:
        """The door's series, by name with labels."""
        async with self.client.get(f"{self.door.url}/metrics") as response:
            lines = (await response.text()).splitlines()
        return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if line and line[0] != "#"}

    async def metric(self, name: str, replica: str, result: str | None = None, model: str = "m") -> float:
        """One per-engine series."""
        more = "" if result is None else f',result="{result}"'
        return (await self.metrics())[f'{name}{{model="{model}",replica="{replica}"{more}}}']


MakeRing = Callable[..., Awaitable[Ring]]


@asynccontextmanager
async def ring_of(*upstreams: Upstream, state: Path | None = None, **settings: object) -> AsyncIterator[Ring]:
    """A door over `upstreams`; limits and policies by keyword."""
    chosen = DoorSettings(
        state=state,
        limits=Limits(**{k: settings.pop(k) for k in ("first_byte_s", "request_s", "tries", "body_bytes") if k in settings}),  # type: ignore[arg-type]
        ejection=settings.pop("ejection", EjectionPolicy()),  # type: ignore[arg-type]
        retries=settings.pop("retries", RetryBudget()),  # type: ignore[arg-type]
        grace_s=0.0,
        **settings,  # type: ignore[arg-type]
    )
    async with AsyncExitStack() as stack:
        for upstream in upstreams:
            if upstream.runner is None:
                await upstream.start()
            stack.push_async_callback(upstream.stop)
        topology = Topology([EngineFacts(u.name, u.url, u.model) for u in upstreams])
        door = await stack.enter_async_context(running_door(topology, chosen))
        client = await stack.enter_async_context(aiohttp.ClientSession())
        yield Ring(door, {u.name: u for u in upstreams}, client)
