"""Targets to act on, real and fake, each in an event loop of its own thread: actuators are plain blocking code."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web

from actuators.action import Action
from serving.fleet.entity import Entity
from serving.gateway.orders import Operation, Order, Orders, OrderVerb, Refusal, Standing, carry_out

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[str]:
    """Serve every path with `handler`; gives the base URL."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def answering_raw(answer: bytes) -> AsyncIterator[str]:
    """A socket that answers every connection with the same bytes and closes."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(answer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@dataclass
class FakeDoor:
    """The admin routes over orders in memory, with faults on cue. Written apart from the real door's routes."""

    orders: Orders = field(default_factory=Orders)
    engines: tuple[str, ...] = ("sim-0", "sim-1", "sim-2")
    lose_answers: bool = False
    lose_requests: bool = False
    hang_reads: bool = False
    puts: int = 0

    async def handle(self, request: web.Request) -> web.StreamResponse:
        parts = request.path.strip("/").split("/")
        if request.method == "GET" and self.hang_reads:
            await asyncio.Event().wait()
        match request.method, *parts:
            case "GET", "admin", "engines":
                return web.json_response([self._row(name) for name in self.engines])
            case "GET", "admin", "operations", *key:
                operation = self.orders.operations.get("/".join(key))
                return web.json_response({"error": "none"}, status=404) if operation is None else self._shown(operation)
            case "PUT", "admin", "engines", name, what:
                return await self._put(name, what, await request.json())
        return web.json_response({"error": "no such route"}, status=404)

    async def _put(self, name: str, what: str, body: Mapping[str, object]) -> web.StreamResponse:
        self.puts += 1
        if self.lose_requests:
            await asyncio.Event().wait()
        verbs = {"drain": OrderVerb.DRAIN, "undrain": OrderVerb.UNDRAIN, "weight": OrderVerb.SET_WEIGHT}
        order = Order(str(body["key"]), verbs[what], name, str(body["by"]), float(str(body.get("weight", 1.0))))
        result = carry_out(self.orders, order, 0.0)
        if isinstance(result, Refusal):
            return web.json_response({"error": result.says}, status=409)
        self.orders, operation = result
        if self.lose_answers:
            await asyncio.Event().wait()
        return self._shown(operation)

    def _row(self, name: str) -> dict[str, object]:
        standing = self.orders.standing(name)
        drained = standing.drained_by is not None
        return {"name": name, "drained": drained, "drained_by": standing.drained_by, "weight": standing.weight}

    @staticmethod
    def _shown(operation: Operation) -> web.Response:
        def state(standing: Standing) -> dict[str, object]:
            return {"drained_by": standing.drained_by, "weight": standing.weight}

        fields = {"key": operation.key, "verb": operation.verb.value, "engine": operation.engine}
        return web.json_response(fields | {"before": state(operation.before), "after": state(operation.after)})


@dataclass
class FakeEngine:
    """An engine's API in memory: completions, and the pause routes where development mode is on."""

    paused: bool = False
    development: bool = True
    status: int = 200
    hang: bool = False
    hang_switch: bool = False
    completions: list[Mapping[str, object]] = field(default_factory=list)
    switches: int = 0

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if request.path == "/v1/completions":
            return await self._complete(request)
        if not self.development:
            return web.json_response({"detail": "Not Found"}, status=404)
        if request.path == "/is_paused":
            return web.json_response({"is_paused": self.paused})
        self.switches += 1
        self.paused = request.path == "/pause"
        if self.hang_switch:
            await asyncio.Event().wait()
        return web.json_response({"status": "paused" if self.paused else "resumed"})

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        self.completions.append(await request.json())
        if self.hang:
            await asyncio.Event().wait()
        if self.status != 200:
            return web.json_response({"error": "out of order"}, status=self.status)
        return web.json_response({"choices": [{"text": "a", "finish_reason": "length"}]})


DOOR_TARGETS = tuple(Entity.engine(name) for name in ("sim-0", "sim-1", "sim-2"))


def door_actions() -> tuple[Action, ...]:
    """Every order on every engine of the test doors, and one on an engine they do not know."""
    made = [Action(verb, target) for target in DOOR_TARGETS for verb in ("door.drain", "door.undrain")]
    made += [Action("door.set_weight", target, {"weight": w}) for target in DOOR_TARGETS for w in (0.5, 1, 2.0, 0)]
    return (*made, Action("door.drain", Entity.engine("nobody")))
