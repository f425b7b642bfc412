"""One try: send a request to one engine, and pass its answer on byte by byte.

Until the first byte of the answer's body is there, nothing is sent to the client and the try may be made again elsewhere
(vLLM sends the headers of a stream before the first token exists). After it, what breaks is seen by the client.
"""

import asyncio
import contextlib
from collections.abc import Awaitable
from dataclasses import dataclass

import aiohttp
import orjson
from aiohttp import web
from multidict import CIMultiDictProxy
from yarl import URL

from serving.gateway.ejection import Failure
from serving.gateway.errors import upstream_broken
from serving.gateway.headers import downstream_headers, upstream_headers
from serving.gateway.pool import Pool, Try

_ERROR_EVENT = b'data: {"error"'
OK = "ok"
SERVER_ERROR = 500
UNAVAILABLE = 503


@dataclass(frozen=True, slots=True)
class Incoming:
    """A client's request, read whole. Times are in the event loop's seconds; `deadline` ends the whole request."""

    request: web.Request
    body: bytes
    identity: str
    trace: str
    streamed: bool
    arrived: float
    deadline: float


@dataclass(frozen=True, slots=True)
class Failed:
    """A try of which the client has seen nothing. `failure` is None where the engine is not to blame (it is full).

    `status`, `body` and `headers` are the engine's own answer, when it gave one.
    """

    result: str
    failure: Failure | None
    detail: str
    status: int = 0
    body: bytes = b""
    headers: CIMultiDictProxy[str] | None = None


class ClientGoneError(Exception):
    """The client closed its connection while its answer was being written."""


class _UnusableAnswerError(Exception):
    """The engine answered, but with an error of its own before anything else."""

    def __init__(self, failed: Failed) -> None:
        super().__init__(failed.detail)
        self.failed = failed


class Relay:
    """Sends tries over one connection pool, and tells the engine pool when an answer begins."""

    def __init__(self, session: aiohttp.ClientSession, pool: Pool, first_byte_s: float) -> None:
        self._session = session
        self._pool = pool
        self._first_byte_s = first_byte_s

    async def attempt(self, incoming: Incoming, one: Try) -> web.StreamResponse | Failed:
        """Try one engine. Sets `one.result`. Raises ClientGoneError, or CancelledError when the client leaves meanwhile."""
        sent = _now()
        with contextlib.ExitStack() as closing:
            opened = await self._open(incoming, one, sent, closing)
            if isinstance(opened, Failed):
                one.result = opened.result
                return opened
            upstream, first = opened
            self._pool.answered(one.seat)
            if incoming.streamed and upstream.ok:
                one.first_byte_at = _now()
                one.seat.tally.first_byte.observe(one.first_byte_at - sent)
            response, result = await self._pass_on(incoming, one, upstream, first)
            one.result = result
            if result == OK:
                one.seat.tally.whole.observe(_now() - sent)
            return response

    async def _open(
        self, incoming: Incoming, one: Try, sent: float, closing: contextlib.ExitStack
    ) -> tuple[aiohttp.ClientResponse, bytes] | Failed:
        """Send the request and wait for the first byte of the answer's body, or for its end where it has none."""
        name = one.seat.facts.name
        limit = min(incoming.deadline, sent + self._first_byte_s) if incoming.streamed else incoming.deadline
        try:
            async with asyncio.timeout_at(limit):
                upstream = await self._send(incoming, one)
                # After the end of the answer this does nothing; before it, it aborts the request at the engine.
                closing.callback(upstream.close)
                return upstream, await _first_bytes(upstream, name, streamed=incoming.streamed)
        except _UnusableAnswerError as error:
            return error.failed
        except aiohttp.ServerTimeoutError:
            return Failed("connection", Failure.CONNECTION, f"engine {name} did not accept a connection in time")
        except TimeoutError:
            detail = f"engine {name} sent no byte of its answer within {_now() - sent:.1f} s"
            return Failed("timeout", Failure.TIMEOUT, detail)
        except (aiohttp.ClientError, OSError) as error:
            return Failed("connection", Failure.CONNECTION, f"engine {name}: {str(error) or type(error).__name__}")

    async def _send(self, incoming: Incoming, one: Try) -> aiohttp.ClientResponse:
        request = incoming.request
        return await self._session.request(
            request.method,
            URL(one.seat.facts.url + request.rel_url.raw_path_qs, encoded=True),
            headers=upstream_headers(request.headers, incoming.identity, incoming.trace),
            data=incoming.body or None,
            allow_redirects=False,
        )

    async def _pass_on(
        self, incoming: Incoming, one: Try, upstream: aiohttp.ClientResponse, chunk: bytes
    ) -> tuple[web.StreamResponse, str]:
        """Stream the answer through. The client's own pace holds the engine back: a full buffer stops reading upstream."""
        headers = downstream_headers(upstream.headers, incoming.identity, one.seat.facts.name)
        response = web.StreamResponse(status=upstream.status, reason=upstream.reason, headers=headers)
        result = OK if upstream.ok else f"http_{upstream.status}"
        try:
            async with asyncio.timeout_at(incoming.deadline):
                await _written(response.prepare(incoming.request))
                while chunk:
                    code = error_code(chunk) if incoming.streamed else None
                    result = result if code is None else f"http_{code}"
                    await _written(response.write(chunk))
                    chunk = await upstream.content.readany()
                await _written(response.write_eof())
        except TimeoutError:
            await _break_off(incoming.request, response, "the request ran into the front door's time limit")
            return response, "timeout"
        except (aiohttp.ClientError, OSError):
            await _break_off(incoming.request, response, f"the answer of engine {one.seat.facts.name} broke off")
            return response, "connection"
        return response, result


def _now() -> float:
    return asyncio.get_running_loop().time()


async def _first_bytes(upstream: aiohttp.ClientResponse, name: str, *, streamed: bool) -> bytes:
    if upstream.status >= SERVER_ERROR:
        body = await upstream.read()
        blame = None if upstream.status == UNAVAILABLE else Failure.SERVER_ERROR
        detail = f"engine {name} answered {upstream.status}"
        failed = Failed(f"http_{upstream.status}", blame, detail, upstream.status, body, upstream.headers)
        raise _UnusableAnswerError(failed)
    first = await upstream.content.readany()
    code = error_code(first) if streamed and first.startswith(_ERROR_EVENT) else None
    if code is not None and code >= SERVER_ERROR:
        blame = None if code == UNAVAILABLE else Failure.SERVER_ERROR
        raise _UnusableAnswerError(Failed(f"http_{code}", blame, f"engine {name} failed with {code} before its first token"))
    return first


async def _written(writing: Awaitable[object]) -> None:
    """Wait for a write to the client. Its connection errors are the client's, not the engine's."""
    try:
        await writing
    except ConnectionError as error:
        raise ClientGoneError(str(error)) from error


async def _break_off(request: web.Request, response: web.StreamResponse, reason: str) -> None:
    """End a half-sent answer so that the client sees it is not whole: an error event in a stream, then no proper end."""
    with contextlib.suppress(ClientGoneError, TimeoutError):
        if response.content_type == "text/event-stream":
            async with asyncio.timeout(1.0):
                await _written(response.write(b"data: " + upstream_broken(reason).body + b"\n\n"))
    if request.transport is not None:
        request.transport.close()


def error_code(chunk: bytes) -> int | None:
    """The status inside an error event of a stream, which vLLM sends behind a 200 when it fails after the headers."""
    start = 0 if chunk.startswith(_ERROR_EVENT) else chunk.find(b"\n" + _ERROR_EVENT) + 1
    if start == 0 and not chunk.startswith(_ERROR_EVENT):
        return None
    line = chunk[start + len(b"data: ") :].split(b"\n", 1)[0]
    try:
        code = orjson.loads(line)["error"]["code"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return SERVER_ERROR
    return code if code in range(400, 600) else SERVER_ERROR
