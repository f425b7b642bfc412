"""The warden's own HTTP listener, in a thread of its own: /metrics, /healthz and /readyz. It takes no commands.

Healthy means that steps come to their end, not that the fleet is well: a warden that hangs must be seen to hang.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from threading import Lock, Thread

from aiohttp import web

from agent.election.mandate import Standing
from agent.own_metrics import OwnMetrics
from serving.clock import Clock

STEPS_MISSED = 3  # intervals without a finished step before the warden calls itself unhealthy
MARGIN = 5.0  # seconds on top, for a slow machine
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Health:
    """Whether the loop is alive, judged by when a step last came to its end. Safe to use from several threads."""

    def __init__(self, interval: float, clock: Clock) -> None:
        self.limit = STEPS_MISSED * interval + MARGIN
        self._clock = clock
        self._lock = Lock()
        self._since = clock.monotonic()
        self._stepped = False
        self._error = ""

    def stepped(self) -> None:
        """A step came to its end."""
        with self._lock:
            self._since, self._stepped, self._error = self._clock.monotonic(), True, ""

    def failed(self, says: str) -> None:
        """A step ended in an error, said without secrets. Only a finished step makes the warden healthy again."""
        with self._lock:
            self._error = says

    def report(self) -> dict[str, object]:
        """`healthy`, `ready`, `age_seconds` of the last finished step (or of the start), `limit_seconds`, `reason`."""
        with self._lock:
            age, stepped, error = self._clock.monotonic() - self._since, self._stepped, self._error
        healthy = age <= self.limit
        what = "the last step ended" if stepped else "the warden started, and no step has ended"
        reason = (
            ""
            if healthy
            else f"{what} {age:.1f} s ago; the limit is {self.limit:g} s{f'; last error: {error}' if error else ''}"
        )
        ready = healthy and stepped
        waiting = "" if stepped else "no step has ended yet"
        return {
            "healthy": healthy,
            "ready": ready,
            "age_seconds": round(age, 3),
            "limit_seconds": self.limit,
            "reason": reason or waiting,
        }


class OwnHttpError(Exception):
    """The listener cannot be opened; the message says where and why."""


class OwnHttp:
    """The listener. `start` returns the port, which is a free one where `port` is 0.

    `standing` tells /readyz whether this warden leads or follows.
    """

    def __init__(
        self, metrics: OwnMetrics, health: Health, host: str, port: int, standing: Callable[[], Standing] | None = None
    ) -> None:
        self._standing = standing
        self._metrics = metrics
        self._health = health
        self._host = host
        self._port = port
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: Thread | None = None

    def start(self) -> int:
        """Listen. Raises OwnHttpError when the address cannot be had."""
        bound: Future[int] = Future()
        self._thread = Thread(target=self._run, args=(bound,), name="own-http", daemon=True)
        self._thread.start()
        try:
            return bound.result()
        except OSError as refused:
            self._thread.join()
            why = refused.strerror or type(refused).__name__
            raise OwnHttpError(f"cannot listen on {self._host}:{self._port}: {why}; choose another http.port") from None

    def stop(self) -> None:
        """Stop listening; returns when the thread has ended."""
        if self._loop is not None and self._thread is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(timeout=10)
            self._loop = None

    def _run(self, bound: "Future[int]") -> None:
        try:
            asyncio.run(self._serve(bound))
        except BaseException as error:  # whoever waits in start() must hear of it
            if bound.done():
                raise
            bound.set_exception(error)

    async def _serve(self, bound: "Future[int]") -> None:
        self._stop = asyncio.Event()
        app = web.Application()
        app.router.add_get("/metrics", self._get_metrics)
        app.router.add_get("/healthz", self._get_health)
        app.router.add_get("/readyz", self._get_ready)
        runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=1)
        await runner.setup()
        try:
            await web.TCPSite(runner, self._host, self._port).start()
            self._loop = asyncio.get_running_loop()
            bound.set_result(int(runner.addresses[0][1]))
            await self._stop.wait()
        finally:
            await runner.cleanup()

    async def _get_metrics(self, _request: web.Request) -> web.Response:
        return web.Response(body=self._metrics.exposition(), headers={"Content-Type": CONTENT_TYPE})

    async def _get_health(self, _request: web.Request) -> web.Response:
        report = self._health.report()
        return web.json_response(report, status=200 if report["healthy"] else 503)

    async def _get_ready(self, _request: web.Request) -> web.Response:
        report = self._health.report()
        return web.json_response(report | self._role(), status=200 if report["ready"] else 503)

    def _role(self) -> dict[str, object]:
        """A follower is ready, too: it is the one that takes over."""
        if self._standing is None:
            return {}
        told = self._standing()
        role = "leader" if told.leading else "follower"
        return {"role": role, "leader": told.leader, "term": told.term, "trouble": told.trouble}
