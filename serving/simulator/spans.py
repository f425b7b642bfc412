"""Trace spans as vLLM exports them: one `llm_request` span per finished request, and the spans of the start-up.

Spans go out over OTLP/HTTP as protobuf, in batches. A collector that does not answer costs spans, never requests.
"""

import asyncio
import logging
import os
import re
import uuid
from collections import deque
from collections.abc import MutableSequence
from dataclasses import dataclass

import aiohttp
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from serving.simulator.frontend import Finished

log = logging.getLogger(__name__)

QUEUED_SPANS = 2048
TIMEOUT = 5.0
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")

# Span, function and parent of the start-up, each with the share of it in which it runs; as vLLM's own tracing shows it.
_API, _CORE, _WORKER = "vllm.llm_engine", "vllm.engine_core", "vllm.worker"
_STARTUP: tuple[tuple[str, str, str, str, str | None, float, float], ...] = (
    (_API, "vllm.v1.engine.core_client", "Overall Loading", "EngineCoreClient.make_async_mp_client", None, 0.0, 1.0),
    (_API, "vllm.v1.engine.core_client", "AsyncMPClient init", "AsyncMPClient.__init__", "Overall Loading", 0.01, 1.0),
    (_CORE, "vllm.v1.engine.core", "EngineCoreProc init", "EngineCoreProc.__init__", "AsyncMPClient init", 0.4, 0.99),
    (_CORE, "vllm.v1.executor.abstract", "Executor init", "Executor.__init__", "EngineCoreProc init", 0.41, 0.96),
    (_CORE, "vllm.v1.engine.core", "Prepare model", "EngineCore._initialize_kv_caches", "EngineCoreProc init", 0.96, 0.98),
    (_WORKER, "vllm.v1.executor.multiproc_executor", "Worker init", "WorkerProc.__init__", "Executor init", 0.85, 0.96),
    (_WORKER, "vllm.v1.worker.cpu_model_runner", "Loading (CPU)", "CPUModelRunner.load_model", "Worker init", 0.9, 0.95),
    (
        *(_WORKER, "vllm.model_executor.model_loader.base_loader", "Load model", "BaseModelLoader.load_model"),
        *("Loading (CPU)", 0.9, 0.95),
    ),
    (
        _WORKER,
        "vllm.v1.worker.gpu_worker",
        "Allocate KV cache",
        "Worker.initialize_from_config",
        "Executor init",
        0.96,
        0.97,
    ),
)


@dataclass(frozen=True, slots=True)
class Caller:
    """What a span says of a request besides its times. `arrival` is Unix seconds, `traceparent` the W3C header."""

    arrival: float
    traceparent: str | None = None
    top_p: float | None = None
    temperature: float | None = None


class SpanExporter:
    """Collects spans and sends them. `name` is the service name, `interval` the seconds between two exports."""

    def __init__(self, endpoint: str, name: str, interval: float) -> None:
        self._endpoint = endpoint
        self._name = name
        self._interval = interval
        self._queue: deque[tuple[Finished, Caller]] = deque(maxlen=QUEUED_SPANS)
        self._instance = str(uuid.uuid4())
        self._session: aiohttp.ClientSession | None = None
        self._task: asyncio.Task[None] | None = None
        self._failing = False

    def start(self, began: float, ready: float) -> None:
        """Begin to export, the start-up (Unix seconds) first. Called on the event loop."""
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT))
        self._task = asyncio.get_running_loop().create_task(self._run(began, ready))

    def finished(self, finished: Finished, caller: Caller) -> None:
        """Take the span of a finished request; when too many wait, the oldest goes."""
        self._queue.append((finished, caller))

    async def close(self, seconds: float = 0.3) -> None:
        """Send what is left, for `seconds` at most, and stop."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._session is not None:
            try:
                await asyncio.wait_for(self._flush(), seconds)
            except TimeoutError:
                log.warning("the last spans were not taken by %s in time", self._endpoint)
            await self._session.close()

    async def _run(self, began: float, ready: float) -> None:
        for export in startup_exports(self._name, began, ready):
            await self._send(export)
        while True:
            await asyncio.sleep(self._interval)
            await self._flush()

    async def _flush(self) -> None:
        if not self._queue:
            return
        batch = list(self._queue)
        self._queue.clear()
        await self._send(request_export(self._name, self._instance, batch))

    async def _send(self, export: ExportTraceServiceRequest) -> None:
        if self._session is None:
            return
        headers = {"Content-Type": "application/x-protobuf"}
        try:
            async with self._session.post(self._endpoint, data=export.SerializeToString(), headers=headers) as answer:
                answer.raise_for_status()
            self._failing = False
        except (aiohttp.ClientError, TimeoutError) as error:
            if not self._failing:
                log.warning(
                    "%s takes no spans (%s: %s); they are lost until it does", self._endpoint, type(error).__name__, error
                )
            self._failing = True


def request_export(name: str, instance: str, batch: list[tuple[Finished, Caller]]) -> ExportTraceServiceRequest:
    """The spans of finished requests as one export."""
    export = ExportTraceServiceRequest()
    group = export.resource_spans.add()
    _describe(group.resource, name, instance, _API)
    scope = group.scope_spans.add()
    scope.scope.name = "vllm.tracing.otel"
    for finished, caller in batch:
        _fill_request(scope.spans.add(), finished, caller)
    return export


def startup_exports(name: str, began: float, ready: float) -> list[ExportTraceServiceRequest]:
    """The start-up from `began` to `ready` (Unix seconds), one export for each process that vLLM would have."""
    trace = os.urandom(16)
    ids = {span: os.urandom(8) for _, _, span, *_ in _STARTUP}
    exports = []
    for module in (_API, _CORE, _WORKER):
        export = ExportTraceServiceRequest()
        group = export.resource_spans.add()
        _describe(group.resource, name, str(uuid.uuid4()), module)
        for process, namespace, span_name, function, parent, start, end in _STARTUP:
            if process != module:
                continue
            scope = group.scope_spans.add()
            scope.scope.name = namespace
            span = scope.spans.add(name=span_name, trace_id=trace, span_id=ids[span_name], kind=Span.SPAN_KIND_INTERNAL)
            if parent is not None:
                span.parent_span_id = ids[parent]
            span.start_time_unix_nano = _nanoseconds(began + (ready - began) * start)
            span.end_time_unix_nano = _nanoseconds(began + (ready - began) * end)
            _put(span.attributes, "code.function", function)
            _put(span.attributes, "code.namespace", namespace)
        exports.append(export)
    return exports


def _fill_request(span: Span, finished: Finished, caller: Caller) -> None:
    span.name = "llm_request"
    span.kind = Span.SPAN_KIND_SERVER
    parent = _TRACEPARENT.fullmatch(caller.traceparent.strip().lower()) if caller.traceparent else None
    span.trace_id = bytes.fromhex(parent[1]) if parent else os.urandom(16)
    if parent:
        span.parent_span_id = bytes.fromhex(parent[2])
    span.span_id = os.urandom(8)
    span.start_time_unix_nano = _nanoseconds(caller.arrival)
    span.end_time_unix_nano = _nanoseconds(caller.arrival + finished.e2e)
    for key, value in (
        ("gen_ai.latency.time_to_first_token", finished.first_token),
        ("gen_ai.latency.e2e", finished.e2e),
        ("gen_ai.latency.time_in_queue", finished.queue),
        ("gen_ai.usage.prompt_tokens", finished.prompt_tokens),
        ("gen_ai.usage.completion_tokens", finished.generated),
        ("gen_ai.latency.time_in_model_prefill", finished.prefill),
        ("gen_ai.latency.time_in_model_decode", finished.decode),
        ("gen_ai.latency.time_in_model_inference", finished.inference),
        ("gen_ai.request.id", finished.id),
        ("gen_ai.request.top_p", 1.0 if caller.top_p is None else caller.top_p),
        ("gen_ai.request.max_tokens", finished.max_tokens),
        ("gen_ai.request.temperature", 1.0 if caller.temperature is None else caller.temperature),
        ("gen_ai.request.n", 1),
    ):
        _put(span.attributes, key, value)


def _describe(resource: Resource, name: str, instance: str, module: str) -> None:
    attributes = {
        "telemetry.sdk.language": "python",
        "telemetry.sdk.name": "opentelemetry",
        "telemetry.sdk.version": "1.45.2",
        "service.instance.id": instance,
        "service.name": name,
        "vllm.instrumenting_module_name": module,
        "vllm.process_id": str(os.getpid()),
    }
    if module == _CORE:
        attributes |= {"vllm.process_kind": "engine_core", "vllm.process_name": "EngineCore"}
    if module == _WORKER:
        attributes |= {"vllm.process_kind": "worker", "vllm.process_name": "Worker_0"}
    for key, value in attributes.items():
        _put(resource.attributes, key, value)


def _put(attributes: MutableSequence[KeyValue], key: str, value: float | str) -> None:
    attribute = KeyValue(key=key)
    if isinstance(value, str):
        attribute.value.string_value = value
    elif isinstance(value, int):
        attribute.value.int_value = value
    else:
        attribute.value.double_value = value
    attributes.append(attribute)


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1e9)
