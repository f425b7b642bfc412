"""The trace receiver: what it takes in, what it hands on, and what it refuses."""

import base64
import gzip
import math
import socket
from collections.abc import Iterator
from typing import Any

import orjson
import pytest
import requests
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from stand_ins import fleet

from serving.fleet.entity import Entity
from serving.telemetry.otlp import DROPPED, STARTUP, UNKNOWN_SENDER, OtlpSource
from serving.telemetry.reading import Reading
from serving.telemetry.spans import Span, SpanError, decode_json, decode_protobuf, request_span

TOPOLOGY = fleet(tiny_0="http://h", tiny_1="http://h", tiny_2="http://h")
JSON = {"Content-Type": "application/json"}
PROTOBUF = {"Content-Type": "application/x-protobuf"}
LATENCY = "gen_ai.latency."


@pytest.fixture
def source() -> Iterator[OtlpSource]:
    running = OtlpSource("127.0.0.1", 0, names={"vllm-pod-7": "tiny-1"})
    yield running
    running.close()


def read(source: OtlpSource, now: float = 1.0) -> Reading:
    return source.read(TOPOLOGY, now, 5.0)


def export(
    *, service: str = "tiny-0", name: str = "llm_request", number: int = 1, hexadecimal: bool = True, **attributes: Any
) -> dict[str, Any]:
    """A JSON export of one span."""
    kinds = {str: "stringValue", int: "intValue", float: "doubleValue", bool: "boolValue"}
    trace, span = number.to_bytes(16, "big"), number.to_bytes(8, "big")
    pairs = [{"key": key.replace("__", "."), "value": {kinds[type(value)]: value}} for key, value in attributes.items()]
    return {
        "resourceSpans": [
            {
                "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": service}}]},
                "scopeSpans": [
                    {
                        "spans": [
                            {
                                "traceId": trace.hex() if hexadecimal else base64.b64encode(trace).decode(),
                                "spanId": span.hex() if hexadecimal else base64.b64encode(span).decode(),
                                "name": name,
                                "startTimeUnixNano": "1000000000",
                                "endTimeUnixNano": "2500000000",
                                "attributes": pairs,
                            }
                        ]
                    }
                ],
            }
        ]
    }


def send(source: OtlpSource, body: bytes, **headers: str) -> requests.Response:
    return requests.post(source.endpoint, data=body, headers={**JSON, **headers}, timeout=5)


def test_a_finished_request_is_handed_on_once_with_the_stages_that_its_span_tells(source: OtlpSource) -> None:
    body = export(
        gen_ai__latency__time_in_queue=0.25,
        gen_ai__latency__time_in_model_prefill=0.5,
        gen_ai__usage__prompt_tokens="77",
        gen_ai__usage__completion_tokens=13,
    )
    attributes = body["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["attributes"]
    attributes[2]["value"] = {"intValue": "77"}  # 64-bit numbers come as text in JSON
    assert send(source, orjson.dumps(body)).content == b"{}"
    [span] = read(source).spans
    assert (span.engine, span.start, span.end) == ("tiny-0", 1.0, 2.5)
    assert (span.queue, span.prefill, span.decode, span.transfer) == (0.25, 0.5, None, None)
    assert (span.prompt_tokens, span.completion_tokens) == (77, 13)
    assert read(source).spans == ()


def test_spans_arrive_from_the_official_exporter_in_protobuf_and_gzip(source: OtlpSource) -> None:
    sdk = pytest.importorskip("opentelemetry.sdk.trace", reason="the SDK comes with vLLM, not with the warden")
    resources = pytest.importorskip("opentelemetry.sdk.resources")
    export_of = pytest.importorskip("opentelemetry.sdk.trace.export")
    http = pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    exporter = pytest.importorskip("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    for compression in (http.Compression.NoCompression, http.Compression.Gzip):
        provider = sdk.TracerProvider(resource=resources.Resource.create({"service.name": "tiny-2"}), shutdown_on_exit=False)
        sending = exporter.OTLPSpanExporter(source.endpoint, compression=compression)
        provider.add_span_processor(export_of.SimpleSpanProcessor(sending))
        with provider.get_tracer("t").start_as_current_span("llm_request", attributes={LATENCY + "time_in_queue": 0.125}):
            pass
        provider.shutdown()
        [span] = read(source).spans
        assert (span.engine, span.queue) == ("tiny-2", 0.125)


def test_every_recorded_export_is_read_and_its_times_are_sane(source: OtlpSource, recordings: Any) -> None:
    with gzip.open(recordings / "vllm-0.32-a" / "spans.jsonl.gz") as file:
        lines = file.read().splitlines()
    for line in lines[:300]:
        assert send(source, line).status_code == 200
    reading = read(source)
    spans = [span for line in lines for span in decode_json(line)]
    assert sum(span.name == "llm_request" for span in spans) == 5061
    assert len(reading.spans) > 200
    assert {span.engine for span in reading.spans} <= {"tiny-0", "tiny-1", "tiny-2"}
    assert all(span.queue is not None and 0 <= span.queue <= span.end - span.start + 1 for span in reading.spans)
    startup = [event for event in reading.events if event.kind == STARTUP]
    assert any("Overall Loading took 71.4" in event.text for event in startup)
    assert all(event.entity in TOPOLOGY for event in startup)


@pytest.mark.parametrize("hexadecimal", [True, False])
def test_ids_are_read_in_hex_and_in_base64_and_a_span_sent_again_counts_once(
    source: OtlpSource, *, hexadecimal: bool
) -> None:
    for number in (1, 2, 1):
        send(source, orjson.dumps(export(number=number, hexadecimal=hexadecimal)))
    send(source, orjson.dumps(export(number=2, hexadecimal=not hexadecimal)))
    assert len(read(source).spans) == 2


@pytest.mark.parametrize("queue", [-0.5, math.nan, "soon", True])
def test_a_queue_time_that_cannot_be_is_missing_and_not_zero(queue: Any) -> None:
    span = Span(b"", "llm_request", 1.0, 2.0, {LATENCY + "time_in_queue": queue, LATENCY + "time_in_model_decode": 0.5}, {})
    assert request_span(span, "a").queue is None
    assert request_span(span, "a").decode == 0.5


def test_an_engine_is_found_by_service_name_or_by_the_names_given(source: OtlpSource) -> None:
    for number, service in enumerate(["tiny-2", "vllm-pod-7"]):
        send(source, orjson.dumps(export(service=service, number=number)))
    assert [span.engine for span in read(source).spans] == ["tiny-2", "tiny-1"]


def test_a_stranger_that_sends_spans_is_told_once_and_its_spans_are_let_go(source: OtlpSource) -> None:
    for number in range(3):
        send(source, orjson.dumps(export(service="unknown_service", number=number)))
    reading = read(source)
    assert reading.spans == ()
    [event] = reading.events
    assert (event.kind, "OTEL_SERVICE_NAME" in event.text) == (UNKNOWN_SENDER, True)
    send(source, orjson.dumps(export(service="unknown_service", number=9)))
    assert read(source).events == ()


def test_only_vllms_own_startup_spans_become_events(source: OtlpSource) -> None:
    send(source, orjson.dumps(export(name="Load model", number=1, code__namespace="vllm.v1.worker")))
    send(source, orjson.dumps(export(name="GET /", number=2)))
    [event] = read(source).events
    assert (event.kind, event.entity, event.at) == (STARTUP, Entity.engine("tiny-0"), 2.5)
    assert event.text == "Load model took 1.500 s"


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"", JSON, 400),
        (b"not json", JSON, 400),
        (b"[]", JSON, 400),
        (b'{"resourceSpans": 5}', JSON, 400),
        (b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"name": "llm_request"}]}]}]}', JSON, 400),
        (b"\xff\xff\xff", PROTOBUF, 400),
        (b"not gzip", {**JSON, "Content-Encoding": "gzip"}, 400),
        (b"x", {"Content-Type": "text/plain"}, 415),
        (gzip.compress(b" " * 40_000_000), {**JSON, "Content-Encoding": "gzip"}, 413),
    ],
)
def test_a_body_that_is_no_export_is_refused_and_the_receiver_goes_on(
    source: OtlpSource, body: bytes, headers: dict[str, str], status: int
) -> None:
    assert requests.post(source.endpoint, data=body, headers=headers, timeout=10).status_code == status
    assert send(source, orjson.dumps(export())).status_code == 200
    assert len(read(source).spans) == 1


def test_other_paths_and_methods_are_not_served(source: OtlpSource) -> None:
    assert requests.get(source.endpoint, timeout=5).status_code == 405
    assert requests.post(source.endpoint.replace("traces", "logs"), timeout=5).status_code == 404


def test_spans_that_come_faster_than_they_are_read_are_dropped_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serving.telemetry.otlp._SPANS_WAITING", 5)
    source = OtlpSource("127.0.0.1", 0)
    for number in range(8):
        send(source, orjson.dumps(export(number=number)))
    reading = read(source)
    source.close()
    assert len(reading.spans) == 5
    [event] = reading.events
    assert event.kind == DROPPED
    assert event.text.startswith("3 spans")


def test_a_port_in_use_is_an_error_of_the_reading_until_it_is_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        source = OtlpSource("127.0.0.1", taken.getsockname()[1])
        assert "cannot listen for traces" in read(source).error
    assert read(source).error == ""
    assert send(source, orjson.dumps(export())).status_code == 200
    source.close()


@given(st.binary(max_size=100))
def test_any_bytes_are_decoded_or_refused_and_nothing_else(body: bytes) -> None:
    for decode in (decode_json, decode_protobuf):
        try:
            spans = decode(body)
        except SpanError:
            spans = []
        assert all(isinstance(span, Span) for span in spans)


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-9, 9), st.text(max_size=4)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2),
        st.dictionaries(
            st.sampled_from(["resourceSpans", "resource", "attributes", "scopeSpans", "spans", "key", "value", "name"]),
            inner,
        ),
    ),
    max_leaves=12,
)


@given(json_values)
def test_any_json_is_decoded_or_refused_and_nothing_else(value: Any) -> None:
    try:
        spans = decode_json(orjson.dumps(value))
    except SpanError:
        spans = []
    assert all(isinstance(span, Span) for span in spans)


@given(st.text(max_size=8), st.floats(0, 100), st.integers(0, 2**62))
def test_json_and_protobuf_tell_the_same(name: str, queue: float, number: int) -> None:
    body = export(name=name, number=number % 2**60, gen_ai__latency__time_in_queue=queue)
    message = ExportTraceServiceRequest()
    resource = message.resource_spans.add()
    resource.resource.attributes.add(key="service.name").value.string_value = "tiny-0"
    span = resource.scope_spans.add().spans.add()
    span.trace_id, span.span_id = (number % 2**60).to_bytes(16, "big"), (number % 2**60).to_bytes(8, "big")
    span.name, span.start_time_unix_nano, span.end_time_unix_nano = name, 1_000_000_000, 2_500_000_000
    span.attributes.add(key=LATENCY + "time_in_queue").value.double_value = queue
    assert decode_json(orjson.dumps(body)) == decode_protobuf(message.SerializeToString())
