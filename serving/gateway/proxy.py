"""The request path: read, route by model, choose an engine, try, and try another while the client has seen nothing."""

import asyncio
from dataclasses import dataclass

from aiohttp import web

from serving.gateway import errors
from serving.gateway.asked import Asked, passes, read_asked
from serving.gateway.ejection import Failure
from serving.gateway.errors import ErrorReply
from serving.gateway.headers import REQUEST_ID, SERVED_BY, downstream_headers, request_id, traceparent
from serving.gateway.metrics import UserTally
from serving.gateway.pool import CLIENT_CLOSED, Pool, Seat
from serving.gateway.relay import ClientGoneError, Failed, Incoming, Relay
from serving.gateway.retry_budget import RetryBudget

RETRY_AFTER_S = 5


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds and counts that bound a request."""

    first_byte_s: float = 30.0
    request_s: float = 600.0
    tries: int = 3
    body_bytes: int = 64 << 20


class Proxy:
    """Answers users' requests from the pool's engines."""

    def __init__(self, pool: Pool, relay: Relay, limits: Limits, budget: RetryBudget) -> None:
        self._pool = pool
        self._relay = relay
        self._limits = limits
        self._budget = budget
        self._users: dict[str, UserTally] = {}

    @property
    def users(self) -> list[UserTally]:
        """The counts by model; every model of the pool has one."""
        return [self._user(model) for model in dict.fromkeys((*self._pool.models, *self._users))]

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer one request. Raises CancelledError when the client leaves before its answer is whole."""
        arrived = _now()
        identity = request_id(request.headers)
        if not passes(request.path):
            return errors.unknown_route(request.path).response({REQUEST_ID: identity})
        try:
            body = await request.read()
        except web.HTTPRequestEntityTooLarge:
            return errors.too_large(self._limits.body_bytes).response({REQUEST_ID: identity})
        asked = read_asked(body, request.content_type, self._pool.models)
        if isinstance(asked, ErrorReply):
            return asked.response({REQUEST_ID: identity})
        deadline = arrived + self._limits.request_s
        trace = traceparent(request.headers)
        incoming = Incoming(request, body, identity, trace, asked.streamed, arrived, deadline)
        return await self._serve(incoming, asked)

    async def _serve(self, incoming: Incoming, asked: Asked) -> web.StreamResponse:
        """Try engines until one answers, and count how it ended for the user."""
        self._budget = self._budget.after_request()
        result, user = CLIENT_CLOSED, self._user(asked.model or "")
        try:
            response, result = await self._tries(incoming, asked, user)
        except ClientGoneError:
            # Nobody is there to read it; aiohttp only needs something to drop.
            return web.Response(status=499, reason="Client Closed Request")
        finally:
            user.finished[result] += 1
        return response

    async def _tries(self, incoming: Incoming, asked: Asked, user: UserTally) -> tuple[web.StreamResponse, str]:
        seat = self._pool.pick(asked.model, _now())
        if seat is None:
            reply = errors.no_engine(asked.model or "any", RETRY_AFTER_S)
            return reply.response({REQUEST_ID: incoming.identity}), f"http_{reply.status}"
        tried: list[str] = []
        while True:
            tried.append(seat.facts.name)
            answer, result = await self._try(incoming, seat, user)
            if not isinstance(answer, Failed):
                return answer, result
            other = self._another(asked, tried, incoming.deadline)
            if other is None:
                return _last_answer(answer, incoming.identity, seat.facts.name), result
            seat.tally.retries += 1
            seat = other

    async def _try(self, incoming: Incoming, seat: Seat, user: UserTally) -> tuple[web.StreamResponse | Failed, str]:
        """One try, with what it teaches about the engine."""
        with self._pool.sending(seat) as one:
            try:
                answer = await self._relay.attempt(incoming, one)
            finally:
                if one.first_byte_at is not None:
                    user.first_byte.observe(one.first_byte_at - incoming.arrived)
        if isinstance(answer, Failed):
            if answer.failure is not None:
                self._pool.failed(seat, answer.failure, _now())
        elif one.result == "connection" or one.result.startswith("http_5"):
            self._pool.failed(seat, Failure.SERVER_ERROR, _now())
        return answer, one.result

    def _another(self, asked: Asked, tried: list[str], deadline: float) -> Seat | None:
        """The engine for one more try, or None when tries, time, engines or the retry budget are used up."""
        now = _now()
        if len(tried) >= self._limits.tries or now >= deadline:
            return None
        seat = self._pool.pick(asked.model, now, tried)
        left = self._budget.spend()
        if seat is None or left is None:
            return None
        self._budget = left
        return seat

    def _user(self, model: str) -> UserTally:
        return self._users.setdefault(model, UserTally(model))


def _now() -> float:
    return asyncio.get_running_loop().time()


def _last_answer(failed: Failed, identity: str, engine: str) -> web.Response:
    """What the client is told when no try is left: the engine's own error where it gave one."""
    if failed.headers is not None:
        headers = downstream_headers(failed.headers, identity, engine)
        return web.Response(status=failed.status, body=failed.body, headers=headers)
    ids = {REQUEST_ID: identity, SERVED_BY: engine}
    if failed.result == "timeout":
        return errors.upstream_timeout(failed.detail).response(ids)
    return errors.upstream_broken(failed.detail).response(ids)
