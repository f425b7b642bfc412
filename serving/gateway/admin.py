"""The admin routes: orders to the door, each under an operation key, and what the door holds of each engine.

Orders are stored before they are answered. They listen on a port of their own, apart from users' traffic.
"""

import asyncio
import hmac
from collections.abc import Awaitable, Callable
from typing import Annotated, TypeVar

import orjson
from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from serving.gateway.order_book import OrderBook
from serving.gateway.orders import WARDEN, Operation, Order, OrderVerb, Refusal
from serving.gateway.pool import Pool, Seat
from serving.gateway.state_file import StateFileError

Key = Annotated[str, Field(min_length=1, max_length=200)]
Who = Annotated[str, Field(min_length=1, max_length=100)]


class DrainBody(BaseModel):
    """Body of drain and undrain."""

    model_config = ConfigDict(extra="forbid")
    key: Key
    by: Who = WARDEN


class WeightBody(DrainBody):
    """Body of a change of weight."""

    weight: Annotated[float, Field(allow_inf_nan=False)]


Body = TypeVar("Body", bound=DrainBody)


def admin_app(pool: Pool, book: OrderBook, token: str | None) -> web.Application:
    """The admin routes over one door. `token`: the bearer token that every request must bear, if any."""
    routes = _Routes(pool, book)
    app = web.Application(middlewares=[_authenticated(token)] if token else [], client_max_size=1 << 16)
    app.router.add_get("/admin/engines", routes.engines)
    app.router.add_put("/admin/engines/{name}/drain", routes.drain)
    app.router.add_put("/admin/engines/{name}/undrain", routes.undrain)
    app.router.add_put("/admin/engines/{name}/weight", routes.weight)
    app.router.add_get("/admin/operations/{key:.+}", routes.operation)
    return app


class _Routes:
    def __init__(self, pool: Pool, book: OrderBook) -> None:
        self._pool = pool
        self._book = book

    async def engines(self, _request: web.Request) -> web.Response:
        """Every engine as the door holds it."""
        now = asyncio.get_running_loop().time()
        return _json(200, [self._engine(seat, now) for seat in self._pool.seats])

    async def drain(self, request: web.Request) -> web.Response:
        """Send the engine nothing new."""
        body = await _body(request, DrainBody)
        return await self._order(Order(body.key, OrderVerb.DRAIN, request.match_info["name"], body.by))

    async def undrain(self, request: web.Request) -> web.Response:
        """Send the engine requests again."""
        body = await _body(request, DrainBody)
        return await self._order(Order(body.key, OrderVerb.UNDRAIN, request.match_info["name"], body.by))

    async def weight(self, request: web.Request) -> web.Response:
        """Change the engine's share."""
        body = await _body(request, WeightBody)
        return await self._order(Order(body.key, OrderVerb.SET_WEIGHT, request.match_info["name"], body.by, body.weight))

    async def operation(self, request: web.Request) -> web.Response:
        """What became of an operation, by its key."""
        operation = self._pool.orders.operations.get(request.match_info["key"])
        if operation is None:
            return _error(404, f"no operation with key {request.match_info['key']!r}")
        return _json(200, _shown(operation))

    async def _order(self, order: Order) -> web.Response:
        seat = self._pool.seat(order.engine)
        if seat is None:
            known = ", ".join(other.facts.name for other in self._pool.seats) or "none"
            return _error(404, f"no engine {order.engine!r} here; known engines: {known}")
        try:
            done = self._book.carry_out(order)
        except StateFileError as error:
            return _error(500, f"the order was not carried out: {error}")
        if isinstance(done, Refusal):
            return _error(409, done.says)
        return _json(200, {**_shown(done), "state": self._engine(seat, asyncio.get_running_loop().time())})

    def _engine(self, seat: Seat, now: float) -> dict[str, object]:
        standing = self._pool.standing(seat)
        return {
            "name": seat.facts.name,
            "url": seat.facts.url,
            "model": seat.facts.model,
            "weight": standing.weight,
            "drained": standing.drained_by is not None,
            "drained_by": standing.drained_by,
            "ejected": seat.health.ejected(now),
            "in_flight": seat.tally.in_flight,
        }


def _shown(operation: Operation) -> dict[str, object]:
    return {
        "key": operation.key,
        "verb": operation.verb.value,
        "engine": operation.engine,
        "by": operation.by,
        "at": operation.at,
        "before": {"drained_by": operation.before.drained_by, "weight": operation.before.weight},
        "after": {"drained_by": operation.after.drained_by, "weight": operation.after.weight},
    }


async def _body(request: web.Request, shape: type[Body]) -> Body:
    try:
        return shape.model_validate_json(await request.read())
    except ValidationError as error:
        says = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'body'}: {e['msg']}" for e in error.errors())
        raise web.HTTPBadRequest(text=orjson.dumps({"error": says}).decode(), content_type="application/json") from error


def _authenticated(token: str) -> Callable[..., Awaitable[web.StreamResponse]]:
    wanted = f"Bearer {token}".encode()

    @web.middleware
    async def check(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        given = request.headers.get("Authorization", "").encode()
        if not hmac.compare_digest(given, wanted):
            return _error(401, "this door's admin routes need its bearer token", {"WWW-Authenticate": "Bearer"})
        return await handler(request)

    return check


def _json(status: int, content: object, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(status=status, body=orjson.dumps(content), content_type="application/json", headers=headers)


def _error(status: int, says: str, headers: dict[str, str] | None = None) -> web.Response:
    return _json(status, {"error": says}, headers)
