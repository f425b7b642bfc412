"""The trace spans of a simulated engine, taken in by a small OTLP receiver."""

import gzip
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from pydantic import ValidationError
from served_engine import Served, Start, eventually

from serving.simulator.settings import SimulatorSettings
from serving.simulator.spans import startup_exports

RECORDED = Path(__file__).parents[1] / "recordings" / "vllm-0.32-a" / "spans.jsonl.gz"
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@dataclass
class Receiver:
    """Takes OTLP/HTTP exports; refuses them while `refusing`."""

    url: str = ""
    refusing: bool = False
    exports: list[ExportTraceServiceRequest] = field(default_factory=list)

    async def take(self, request: web.Request) -> web.Response:
        assert request.content_type == "application/x-protobuf"
        if self.refusing:
            return web.Response(status=503)
        self.exports.append(ExportTraceServiceRequest.FromString(await request.read()))
        return web.Response(content_type="application/x-protobuf")

    def spans(self, name: str) -> list[tuple[Span, dict[str, Any], dict[str, Any]]]:
        """Spans of that name with their attributes and those of their resource."""
        return [
            (span, attributes(span), attributes(group.resource))
            for export in self.exports
            for group in export.resource_spans
            for scope in group.scope_spans
            for span in scope.spans
            if span.name == name
        ]

    async def has(self, name: str, count: int = 1) -> list[tuple[Span, dict[str, Any], dict[str, Any]]]:
        async def there() -> bool:
            return len(self.spans(name)) >= count

        await eventually(there, f"{count} spans {name} have come")
        return self.spans(name)


def attributes(owner: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in owner.attributes}


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    taking = Receiver()
    app = web.Application()
    app.router.add_post("/v1/traces", taking.take)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    taking.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1/traces"
    yield taking
    await runner.cleanup()


async def started(start: Start, receiver: Receiver) -> Served:
    served = await start(name="sim-7", otlp_endpoint=receiver.url)
    served.engine.spans.start(1000.0, 1003.0)
    return served


def recorded_keys(name: str) -> tuple[set[str], set[str], str]:
    """The attribute keys, resource keys and kind of the first recorded span of that name."""
    with gzip.open(RECORDED, "rt") as lines:
        for line in lines:
            for group in json.loads(line)["resourceSpans"]:
                for scope in group["scopeSpans"]:
                    for span in scope["spans"]:
                        if span["name"] == name:
                            keys = ({each["key"] for each in owner["attributes"]} for owner in (span, group["resource"]))
                            return (*keys, span["kind"])  # type: ignore[return-value]
    raise AssertionError(f"no span {name} was recorded")


async def test_a_finished_request_is_a_span_with_vllms_attributes(start: Start, receiver: Receiver) -> None:
    served = await started(start, receiver)
    before = time.time_ns()
    _, answer = await served.complete(prompt="one two", max_tokens=9, temperature=0.5)
    (span, said, resource), *more = await receiver.has("llm_request")
    assert not more
    keys, resource_keys, kind = recorded_keys("llm_request")
    assert (set(said), set(resource), Span.SpanKind.Name(span.kind)) == (keys, resource_keys, kind)
    assert resource["service.name"] == "sim-7"
    assert said["gen_ai.request.id"] == answer["id"] + "-0"
    assert (said["gen_ai.usage.prompt_tokens"], said["gen_ai.usage.completion_tokens"]) == (2, 9)
    assert (said["gen_ai.request.max_tokens"], said["gen_ai.request.temperature"]) == (9, 0.5)
    parts = ("time_in_model_prefill", "time_in_model_decode")
    assert said["gen_ai.latency.time_in_model_inference"] == pytest.approx(
        sum(said[f"gen_ai.latency.{each}"] for each in parts)
    )
    assert said["gen_ai.latency.e2e"] >= said["gen_ai.latency.time_to_first_token"] > 0
    assert before <= span.start_time_unix_nano <= span.end_time_unix_nano
    assert (len(span.trace_id), len(span.span_id), span.parent_span_id) == (16, 8, b"")


async def test_a_traceparent_is_honoured(start: Start, receiver: Receiver) -> None:
    served = await started(start, receiver)
    for header in (f"00-{TRACE}-{PARENT}-01", "nonsense"):
        await served.post("/v1/completions", {"prompt": "hi", "max_tokens": 2}, headers={"traceparent": header})
    (first, *_), (second, *_) = await receiver.has("llm_request", 2)
    assert (first.trace_id.hex(), first.parent_span_id.hex()) == (TRACE, PARENT)
    assert second.parent_span_id == b""
    assert second.trace_id.hex() != TRACE


async def test_a_hung_engine_sends_no_spans(start: Start, receiver: Receiver) -> None:
    served = await started(start, receiver)
    await receiver.has("Overall Loading")
    await served.inject(fault="engine-hang")
    body = {"model": "sim", "prompt": "hi", "stream": True}
    answer = await served.session.post(served.url + "/v1/completions", json=body)
    answer.close()
    await served.clear("engine-hang")
    await served.complete(request_id="later")
    ((_, said, _),) = await receiver.has("llm_request")
    assert said["gen_ai.request.id"] == "cmpl-later-0"


async def test_the_start_up_is_one_trace_of_three_processes(start: Start, receiver: Receiver) -> None:
    await started(start, receiver)
    await receiver.has("Allocate KV cache")
    (whole, *_), *_ = receiver.spans("Overall Loading")
    assert (whole.start_time_unix_nano, whole.end_time_unix_nano) == (1000 * 10**9, 1003 * 10**9)
    for name in ("AsyncMPClient init", "EngineCoreProc init", "Executor init", "Load model", "Worker init"):
        ((span, said, resource),) = receiver.spans(name)
        keys, resource_keys, kind = recorded_keys(name)
        assert set(said) <= keys
        assert (set(resource), Span.SpanKind.Name(span.kind)) == (resource_keys, kind)
        assert span.trace_id == whole.trace_id
        assert whole.start_time_unix_nano <= span.start_time_unix_nano <= span.end_time_unix_nano <= whole.end_time_unix_nano


def test_every_start_up_span_but_the_first_begins_after_its_parent() -> None:
    spans = {
        span.span_id: span
        for export in startup_exports("sim", 10.0, 13.0)
        for group in export.resource_spans
        for scope in group.scope_spans
        for span in scope.spans
    }
    roots = [span for span in spans.values() if not span.parent_span_id]
    assert [span.name for span in roots] == ["Overall Loading"]
    for span in spans.values():
        if span.parent_span_id:
            assert spans[span.parent_span_id].start_time_unix_nano <= span.start_time_unix_nano


async def test_a_receiver_that_refuses_costs_spans_and_no_requests(start: Start, receiver: Receiver) -> None:
    receiver.refusing = True
    served = await started(start, receiver)
    assert (await served.complete(request_id="lost"))[0] == 200

    async def failing() -> bool:
        return served.engine.spans._failing

    await eventually(failing, "an export was refused")
    receiver.refusing = False
    assert (await served.complete(request_id="kept"))[0] == 200

    async def kept() -> bool:
        return any(said["gen_ai.request.id"] == "cmpl-kept-0" for _, said, _ in receiver.spans("llm_request"))

    await eventually(kept, "spans arrive again")


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"),
        ("http://127.0.0.1:4318/", "http://127.0.0.1:4318/v1/traces"),
        ("http://host/otlp/v1/traces", "http://host/otlp/v1/traces"),
    ],
)
def test_an_endpoint_without_a_path_gets_the_usual_one(given: str, kept: str) -> None:
    assert SimulatorSettings(name="sim", port=0, otlp_endpoint=given).otlp_endpoint == kept


@pytest.mark.parametrize("endpoint", ["127.0.0.1:4317", "grpc://127.0.0.1:4317", "http://"])
def test_an_endpoint_that_is_not_http_is_refused(endpoint: str) -> None:
    with pytest.raises(ValidationError, match="spans go out over HTTP"):
        SimulatorSettings(name="sim", port=0, otlp_endpoint=endpoint)
