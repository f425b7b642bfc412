"""The door as two listeners in one event loop: users' routes, and the admin routes on a port of their own."""

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import aiohttp
import orjson
from aiohttp import web

from serving.clock import Clock, SystemClock
from serving.fleet.topology import Topology
from serving.gateway.admin import admin_app
from serving.gateway.ejection import EjectionPolicy
from serving.gateway.metrics import CONTENT_TYPE, DoorMetrics, EngineView
from serving.gateway.order_book import OrderBook
from serving.gateway.orders import Orders
from serving.gateway.pool import Pool
from serving.gateway.proxy import Limits, Proxy
from serving.gateway.relay import Relay
from serving.gateway.retry_budget import RetryBudget
from serving.gateway.state_file import load_orders

CONNECT_S = 2.0
# uvicorn, which serves vLLM, closes idle connections after 5 s; a door that keeps them longer writes into closed ones.
KEEPALIVE_S = 4.0


@dataclass(frozen=True, slots=True)
class DoorSettings:
    """Where the door listens, what it keeps, and its limits. Port 0 takes a free one."""

    host: str = "127.0.0.1"
    port: int = 0
    admin_host: str = "127.0.0.1"
    admin_port: int = 0
    state: Path | None = None
    admin_token: str | None = field(default=None, repr=False)
    limits: Limits = field(default_factory=Limits)
    ejection: EjectionPolicy = field(default_factory=EjectionPolicy)
    retries: RetryBudget = field(default_factory=RetryBudget)
    seed: int = 0
    grace_s: float = 10.0


class Door:
    """A running front door. `url` and `admin_url` are where it listens."""

    def __init__(self, pool: Pool, proxy: Proxy, url: str, admin_url: str) -> None:
        self.pool = pool
        self.proxy = proxy
        self.url = url
        self.admin_url = admin_url

    def replace_engines(self, topology: Topology, unready: Collection[str] = ()) -> None:
        """Take a changed map, and who on it does not serve now."""
        self.pool.replace_engines(topology, unready)


@asynccontextmanager
async def running_door(topology: Topology, settings: DoorSettings, clock: Clock | None = None) -> AsyncIterator[Door]:
    """Serve until the block ends; then stop accepting and give requests in flight `grace_s` to end.

    Raises StateFileError when the state file cannot be understood, OSError when a port is taken.
    """
    orders = load_orders(settings.state) if settings.state is not None else Orders()
    pool = Pool(topology, orders, settings.ejection, Random(settings.seed))
    book = OrderBook(pool, settings.state, clock or SystemClock())
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(_upstream_session())
        proxy = Proxy(pool, Relay(session, pool, settings.limits.first_byte_s), settings.limits, settings.retries)
        admin = admin_app(pool, book, settings.admin_token)
        admin_url = await _listen(stack, admin, settings.admin_host, settings.admin_port, grace_s=1.0)
        url = await _listen(stack, _data_app(pool, proxy, settings), settings.host, settings.port, settings.grace_s)
        yield Door(pool, proxy, url, admin_url)


def _upstream_session() -> aiohttp.ClientSession:
    """The connections to engines: unbounded in number (the engine queues), bytes as they come, no headers added."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEPALIVE_S),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S),
        auto_decompress=False,
        cookie_jar=aiohttp.DummyCookieJar(),
        skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
    )


def _data_app(pool: Pool, proxy: Proxy, settings: DoorSettings) -> web.Application:
    metrics = DoorMetrics()

    async def health(_request: web.Request) -> web.Response:
        return _health(pool)

    async def exposition(_request: web.Request) -> web.Response:
        body = metrics.exposition(_views(pool), proxy.users)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE})

    async def models(_request: web.Request) -> web.Response:
        return _models(pool)

    app = web.Application(client_max_size=settings.limits.body_bytes)
    app.router.add_get("/health", health)
    app.router.add_get("/metrics", exposition)
    app.router.add_get("/v1/models", models)
    app.router.add_route("*", "/{path:.*}", proxy.handle)
    return app


def _health(pool: Pool) -> web.Response:
    """200 while some engine is in rotation. Says by model how many are."""
    counts = dict.fromkeys(pool.models, 0)
    for seat in pool.seats:
        counts[seat.facts.model] += pool.standing(seat).drained_by is None
    serving = any(counts.values())
    body = {"status": "ok" if serving else "no engine in rotation", "engines_in_rotation": counts}
    return web.Response(status=200 if serving else 503, body=orjson.dumps(body), content_type="application/json")


def _models(pool: Pool) -> web.Response:
    """The models of the map, answered without asking an engine: it must not wait for a hung one."""
    data = [{"id": model, "object": "model", "owned_by": "fleetwarden", "created": 0} for model in pool.models]
    return web.Response(body=orjson.dumps({"object": "list", "data": data}), content_type="application/json")


def _views(pool: Pool) -> list[EngineView]:
    now = asyncio.get_running_loop().time()
    return [
        EngineView(seat.tally, standing.drained_by is not None, seat.health.ejected(now), standing.weight)
        for seat, standing in ((seat, pool.standing(seat)) for seat in pool.seats)
    ]


async def _listen(stack: AsyncExitStack, app: web.Application, host: str, port: int, grace_s: float) -> str:
    """Listen, and say where. A client that leaves cancels its handler, and with it the request at the engine."""
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=grace_s)
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    site = web.TCPSite(runner, host, port)
    await site.start()
    bound = runner.addresses[0][1]
    return f"http://{f'[{host}]' if ':' in host else host}:{bound}"
