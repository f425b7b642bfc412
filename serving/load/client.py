"""One client: asks for a streamed completion, reads it to the end or leaves early, and says what it saw."""

import asyncio
import contextlib

import aiohttp
import orjson

from serving.load.arrivals import Arrival, LoadPlan
from serving.load.tally import Finished

CONNECT_S = 5.0
OK = 200
_ERROR = b'data: {"error"'
_SERVED_BY = "X-Served-By"
_TAIL = 32


def session() -> aiohttp.ClientSession:
    """A session in which each request has its own connection, as each user has."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, force_close=True),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S),
        trust_env=False,
    )


class Client:
    """One client and what it has seen so far, which stays readable when it is cut short."""

    def __init__(self, http: aiohttp.ClientSession, plan: LoadPlan, arrival: Arrival) -> None:
        self._http = http
        self._plan = plan
        self._arrival = arrival
        self._start = _now()
        self._first_at: float | None = None
        self._served_by: str | None = None

    async def ask(self) -> str:
        """Send the request and read its answer; gives the outcome, as in Finished. Raises CancelledError only."""
        patience = self._plan.pattern.give_up_s
        limit = self._plan.request_timeout_s if patience is None else min(patience, self._plan.request_timeout_s)
        try:
            async with asyncio.timeout(limit):
                return await self._answered()
        except TimeoutError:
            return "client_closed" if limit == patience else "timeout"
        except (aiohttp.ClientError, OSError):
            return "connection"

    def finished(self, outcome: str) -> Finished:
        """What this client saw, ending now."""
        first = None if self._first_at is None else self._first_at - self._start
        return Finished(outcome, _now() - self._start, first, self._served_by)

    async def _answered(self) -> str:
        # No `seed` of its own: vLLM 0.32.0 on CPUs ends the engine when the prompt of a seeded request is read in chunks.
        body = {
            "model": self._plan.model,
            "prompt": self._arrival.prompt,
            "max_tokens": self._arrival.max_tokens,
            "stream": True,
            "ignore_eos": True,  # the length asked for is the length generated
        }
        url, headers = f"{self._plan.url.rstrip('/')}/v1/completions", {"Content-Type": "application/json"}
        response = await self._http.post(url, data=orjson.dumps(body), headers=headers)
        with contextlib.closing(response):
            self._served_by = response.headers.get(_SERVED_BY)
            if response.status != OK:
                return f"http_{response.status}"
            return await self._stream(response)

    async def _stream(self, response: aiohttp.ClientResponse) -> str:
        failed, tail = False, b""
        while chunk := await response.content.readany():
            if self._first_at is None:
                self._first_at = _now()
            failed = failed or _ERROR in chunk
            tail = (tail + chunk)[-_TAIL:]
        if failed:
            return "http_500"
        # A stream that was not closed by its last event was cut short, even if the connection ended politely.
        return "ok" if b"[DONE]" in tail else "connection"


def _now() -> float:
    return asyncio.get_running_loop().time()
