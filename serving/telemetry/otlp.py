"""A receiver for traces: engines send their spans here (OTLP over HTTP), and each reading hands on what came since the last.

vLLM sends with `--otlp-traces-endpoint http://HOST:PORT/v1/traces` and OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=http/protobuf.
Finished requests become RequestSpans, the spans of a start-up become events. Anything else is accepted and let go.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Iterable, Mapping

import numpy as np
from aiohttp import web
from aiohttp.http_exceptions import ContentEncodingError

from serving.fleet.entity import Entity, EntityKind
from serving.fleet.topology import Topology
from serving.telemetry.loop_thread import LoopThread
from serving.telemetry.reading import Reading, RequestSpan
from serving.telemetry.spans import REQUEST, Span, SpanError, decode_json, decode_protobuf, request_span
from serving.telemetry.window import Event

STARTUP = "engine.startup"
DROPPED = "telemetry.dropped"
UNKNOWN_SENDER = "telemetry.unknown_sender"

_LARGEST = 32_000_000
_SPANS_WAITING = 100_000
_IDENTITIES_KEPT = 100_000
_SENDERS_KEPT = 1_000
_BODY_SECONDS = 30.0
_START_SECONDS = 5.0
_NO_NAMES: Mapping[str, str] = {}


class OtlpSource:
    """Listens on `host`:`port` (0: any free port) for POST /v1/traces, protobuf or JSON, plain or gzip.

    An engine is known by its span's service.name, else by its pod, instance or host name; `names` maps any of these to
    the engine's name on the map.
    """

    def __init__(
        self, host: str = "127.0.0.1", port: int = 4318, *, names: Mapping[str, str] = _NO_NAMES, name: str = "otlp"
    ) -> None:
        self._entity = Entity(EntityKind.TELEMETRY, name)
        self._host = host
        self._port = port
        self._names = names
        self._inbox = _Inbox()
        self._strangers: set[str] = set()
        self._runner: web.AppRunner | None = None
        self._thread = LoopThread(f"{name}-receiver")
        self._trouble = self._listen()

    @property
    def entity(self) -> Entity:
        return self._entity

    @property
    def endpoint(self) -> str:
        """The URL that engines send to. With port 0 the port is known once the receiver listens."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._port}/v1/traces"

    def read(self, topology: Topology, now: float, deadline: float) -> Reading:
        nothing = np.full(len(topology.engines), np.nan)
        if self._thread.closed:
            return Reading(self._entity, now, nothing, error="this source was closed")
        if self._trouble:
            self._trouble = self._listen(min(deadline, _START_SECONDS))
        if self._trouble:
            return Reading(self._entity, now, nothing, error=self._trouble)
        received, dropped = self._inbox.emptied()
        spans: list[RequestSpan] = []
        events: list[Event] = []
        for span in received:
            engine = self._engine(span, topology)
            if engine is None:
                events.extend(self._stranger(span, now))
            elif span.name == REQUEST:
                spans.append(request_span(span, engine))
            else:
                text = f"{span.name} took {span.end - span.start:.3f} s"
                events.append(Event(span.end, STARTUP, Entity.engine(engine), text))
        if dropped:
            text = f"{dropped} spans came faster than they were read and were dropped, the oldest first"
            events.append(Event(now, DROPPED, self._entity, text))
        return Reading(self._entity, now, nothing, spans=tuple(spans), events=tuple(events))

    def close(self) -> None:
        self._thread.close(self._stop())

    def _listen(self, seconds: float = _START_SECONDS) -> str:
        """Begin to listen; what hinders it, or nothing."""
        try:
            self._port = self._thread.run(self._start(), seconds)
        except (OSError, OverflowError) as refused:
            why = getattr(refused, "strerror", None) or str(refused) or type(refused).__name__
            return f"cannot listen for traces on {self._host}:{self._port}: {why}; free the port or name another"
        return ""

    async def _start(self) -> int:
        application = web.Application(client_max_size=_LARGEST)
        application.router.add_post("/v1/traces", self._receive)
        runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        try:
            await web.TCPSite(runner, self._host, self._port).start()
        except BaseException:
            await runner.cleanup()
            raise
        self._runner = runner
        return int(runner.addresses[0][1])

    async def _stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _receive(self, request: web.Request) -> web.Response:
        decode = {"application/x-protobuf": decode_protobuf, "application/json": decode_json}.get(request.content_type)
        if decode is None:
            raise web.HTTPUnsupportedMediaType(text="send application/x-protobuf or application/json\n")
        try:
            async with asyncio.timeout(_BODY_SECONDS):
                body = await request.read()
            spans = decode(body)
        except TimeoutError:
            raise web.HTTPRequestTimeout(text="the body did not arrive in time\n") from None
        except (ContentEncodingError, web.RequestPayloadError):
            raise web.HTTPBadRequest(text="the body cannot be decompressed or broke off\n") from None
        except SpanError as wrong:
            raise web.HTTPBadRequest(text=f"{wrong}\n") from None
        self._inbox.put(span for span in spans if span.name == REQUEST or span.is_startup)
        return web.Response(body=b"{}" if decode is decode_json else b"", content_type=request.content_type)

    def _engine(self, span: Span, topology: Topology) -> str | None:
        for sender in span.senders:
            if sender in topology.row_of:
                return sender
            mapped = self._names.get(sender)
            if mapped in topology.row_of:
                return mapped
        return None

    def _stranger(self, span: Span, now: float) -> list[Event]:
        """Tell once of each process that sends spans and is no engine of the map."""
        sender = next(iter(span.senders), "a process without a service.name")
        if sender in self._strangers or len(self._strangers) >= _SENDERS_KEPT:
            return []
        self._strangers.add(sender)
        text = f"{sender} sends spans and is no engine of the fleet; set OTEL_SERVICE_NAME to the engine's name"
        return [Event(now, UNKNOWN_SENDER, self._entity, text)]


class _Inbox:
    """Spans between the receiver's thread and the reader's, each span once however often an exporter sends it again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spans: deque[Span] = deque(maxlen=_SPANS_WAITING)
        self._dropped = 0
        self._known: dict[bytes, None] = {}

    def put(self, spans: Iterable[Span]) -> None:
        with self._lock:
            for span in spans:
                if span.identity in self._known and span.identity:
                    continue
                self._known[span.identity] = None
                self._dropped += len(self._spans) == self._spans.maxlen
                self._spans.append(span)
            while len(self._known) > _IDENTITIES_KEPT:
                del self._known[next(iter(self._known))]

    def emptied(self) -> tuple[list[Span], int]:
        """What came since the last call, and how many were dropped for lack of room."""
        with self._lock:
            spans, dropped = list(self._spans), self._dropped
            self._spans.clear()
            self._dropped = 0
        return spans, dropped
