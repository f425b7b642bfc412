"""Puts a simulated engine behind a port: the application, and the process around it."""

import asyncio
import logging
import signal
import socket

from aiohttp import web
from aiohttp.typedefs import Handler
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)

from serving.clock import Clock, SystemClock
from serving.simulator.batching import BatchingEngine
from serving.simulator.dev_routes import DevRoutes, PlainRoutes
from serving.simulator.driver import EngineDriver
from serving.simulator.exposition import EngineExposition
from serving.simulator.faults import FaultBoard
from serving.simulator.frontend import Finished, Frontend
from serving.simulator.http_measures import HttpMeasures
from serving.simulator.openai_routes import OpenAiRoutes
from serving.simulator.protocol import ApiError, error_body, json_response
from serving.simulator.settings import SimulatorSettings
from serving.simulator.sim_routes import SimRoutes
from serving.simulator.spans import Caller, SpanExporter

log = logging.getLogger(__name__)

SHUTDOWN_SECONDS = 0.3
BODY_BYTES = 64 * 2**20
CLIENT_CLOSED = 400
"""vLLM answers a client that has left with 400; nobody reads it, but it is counted."""


class SimulatedEngine:
    """One engine with its application. Made on the event loop that will serve it."""

    def __init__(self, settings: SimulatorSettings, clock: Clock) -> None:
        self.settings = settings
        self.clock = clock
        self._callers: dict[str, Caller] = {}
        self._streaming: set[int] = set()
        self.spans = (
            SpanExporter(settings.otlp_endpoint, settings.name, settings.otlp_interval) if settings.otlp_endpoint else None
        )
        frontend = Frontend(
            settings.max_model_len,
            max_num_queued_reqs=settings.max_num_queued_reqs,
            max_num_queued_tokens=settings.max_num_queued_tokens,
        )
        self.driver = EngineDriver(
            BatchingEngine(settings.shape(), settings.timing(), seed=settings.seed),
            frontend,
            clock,
            count_client_aborts=settings.count_client_aborts,
            on_finished=self._finished if self.spans else None,
            experts=settings.experts(),
        )
        # Not the library's global registry: whatever else is imported into this process may put metrics of its own there.
        self._process = CollectorRegistry()
        for collector in (GCCollector, PlatformCollector, ProcessCollector):  # in the order of vLLM's exposition
            collector(registry=self._process)
        self._http = HttpMeasures(clock.now())
        self._exposition = EngineExposition(
            frontend.measures,
            model=settings.model,
            cache=settings.cache_labels(),
            created_at=clock.now(),
            experts=self.driver.experts,
        )

    def application(self) -> web.Application:
        """The HTTP application with all routes."""
        app = web.Application(middlewares=[self._gate, self._count], client_max_size=BODY_BYTES)
        app.on_response_prepare.append(self._prepare)
        openai = OpenAiRoutes(self.settings, self.driver, self._callers)
        app.add_routes(openai.routes())
        app.add_routes(PlainRoutes(self.settings, self.driver, openai).routes())
        app.add_routes(SimRoutes(self.settings, FaultBoard(self.driver)).routes())
        app.add_routes([web.get("/metrics", self.metrics)])
        if self.settings.dev_mode:
            app.add_routes(DevRoutes(self.driver).routes())
        return app

    async def metrics(self, _request: web.Request) -> web.Response:
        """The exposition: the process, the engine, HTTP."""
        parts = (generate_latest(self._process), self._exposition.text().encode(), self._http.text().encode())
        return web.Response(body=b"".join(parts), headers={"Content-Type": CONTENT_TYPE_LATEST})

    def _finished(self, finished: Finished) -> None:
        caller = self._callers.get(finished.id)
        if self.spans is not None and caller is not None:
            self.spans.finished(finished, caller)

    async def _prepare(self, request: web.Request, response: web.StreamResponse) -> None:
        given = request.headers.get("X-Request-Id")
        if given is not None:
            response.headers["X-Request-Id"] = given
        if response.content_type == "text/event-stream":
            self._streaming.add(id(request))

    @web.middleware
    async def _gate(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """While the API side stands still, nothing is answered but the control routes."""
        if not request.path.startswith("/sim/"):
            await self.driver.answering.wait()
        return await handler(request)

    @web.middleware
    async def _count(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path.startswith("/sim/"):
            return await handler(request)
        began = self.clock.monotonic()
        status, sent = CLIENT_CLOSED, 0
        try:
            response = await _answer(request, handler)
            status, sent = response.status, response.content_length or 0
        except (asyncio.CancelledError, ConnectionError):
            status = 200 if id(request) in self._streaming else CLIENT_CLOSED
            raise
        finally:
            self._streaming.discard(id(request))
            resource = request.match_info.route.resource
            self._http.count(
                handler=resource.canonical if resource is not None else "none",
                method=request.method,
                status=status,
                seconds=self.clock.monotonic() - began,
                received=request.content_length or 0,
                sent=sent,
                at=self.clock.now(),
            )
        return response


async def _answer(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except ApiError as error:
        return error.response()
    except web.HTTPException as error:
        body = error_body(error.reason, status=error.status, kind=error.reason)
        return json_response(body, status=error.status)


def listen_later(host: str, port: int) -> socket.socket:
    """Take the port without listening on it yet: connections are refused until the engine is loaded, as with vLLM."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    taken = socket.socket(family, socket.SOCK_STREAM)
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        taken.bind((host, port))
    except OSError:
        taken.close()
        raise
    return taken


async def serve(settings: SimulatorSettings, taken: socket.socket) -> None:
    """Load, then serve on the port that was taken, until SIGTERM or SIGINT."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    clock = SystemClock()
    began = clock.now()
    log.info("loading %s as %s for %g s", settings.model, settings.name, settings.startup_seconds)
    if await _happens(stop, settings.startup_seconds):
        return
    engine = SimulatedEngine(settings, clock)
    # A client that leaves cancels its handler, which aborts its request.
    runner = web.AppRunner(
        engine.application(), handler_cancellation=True, access_log=None, shutdown_timeout=SHUTDOWN_SECONDS
    )
    await runner.setup()
    await web.SockSite(runner, taken, backlog=2048).start()
    if engine.spans is not None:
        engine.spans.start(began, clock.now())
    log.info("application startup complete: http://%s:%s", settings.host, taken.getsockname()[1])
    await stop.wait()
    log.info("shutting down")
    engine.driver.close()
    await runner.cleanup()
    if engine.spans is not None:
        await engine.spans.close()


async def _happens(event: asyncio.Event, seconds: float) -> bool:
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except TimeoutError:
        return False
    return True
