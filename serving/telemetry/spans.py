"""Trace exports taken apart: OTLP's protobuf and JSON into spans, and vLLM's spans into what the fleet wants of them.

JSON is walked here rather than by protobuf's json_format, which is 13 times slower and refuses what is seen in the
field: ids in base64 (its own convention) as well as in hex (OTLP's).
"""

import base64
import binascii
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import orjson
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue

from serving.telemetry.reading import RequestSpan

Value = str | int | float | bool
Attributes = Mapping[str, Value]

REQUEST = "llm_request"

_STAGES = {
    "queue": "gen_ai.latency.time_in_queue",
    "prefill": "gen_ai.latency.time_in_model_prefill",
    "decode": "gen_ai.latency.time_in_model_decode",
}
_SENDERS = ("service.name", "k8s.pod.name", "service.instance.id", "host.name")
_HEX_LENGTHS = (32, 16)  # of a trace id and of a span id


class SpanError(ValueError):
    """A body that is no trace export. The message says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Span:
    """One span as exported. Times in Unix seconds; `resource` describes the process that made it."""

    identity: bytes
    name: str
    start: float
    end: float
    attributes: Attributes
    resource: Attributes

    @property
    def senders(self) -> tuple[str, ...]:
        """What the process may be known by, the likeliest first."""
        return tuple(str(self.resource[key]) for key in _SENDERS if key in self.resource)

    @property
    def is_startup(self) -> bool:
        """Whether it is one of the spans around a function of vLLM's own that it makes while starting."""
        return self.name != REQUEST and str(self.attributes.get("code.namespace", "")).startswith("vllm")


def decode_protobuf(body: bytes) -> list[Span]:
    """The spans of a protobuf trace export. Raises SpanError."""
    try:
        export = ExportTraceServiceRequest.FromString(body)
    except DecodeError:
        raise SpanError("the body is not a protobuf ExportTraceServiceRequest") from None
    return [
        Span(
            identity=span.trace_id + span.span_id,
            name=span.name,
            start=span.start_time_unix_nano / 1e9,
            end=span.end_time_unix_nano / 1e9,
            attributes=_protobuf_attributes(span.attributes),
            resource=resource,
        )
        for group in export.resource_spans
        for resource in [_protobuf_attributes(group.resource.attributes)]
        for scope in group.scope_spans
        for span in scope.spans
    ]


def decode_json(body: bytes) -> list[Span]:
    """The spans of a JSON trace export. Raises SpanError."""
    try:
        export = orjson.loads(body)
    except orjson.JSONDecodeError as wrong:
        raise SpanError(f"the body is not JSON: {wrong.msg} at character {wrong.pos}") from None
    if not isinstance(export, dict):
        raise SpanError("the body is not a JSON object")
    try:
        return list(_json_spans(export))
    except (AttributeError, KeyError, TypeError, ValueError, binascii.Error) as wrong:
        raise SpanError(f"the body is not an OTLP trace export: {type(wrong).__name__}: {wrong}") from None


def request_span(span: Span, engine: str) -> RequestSpan:
    """The finished request of `engine` that a `llm_request` span tells of.

    A negative time is a known mistake of vLLM (queue times of streaming sessions) and counts as not said. vLLM's spans do
    not tell the time of KV transfers, so `transfer` is never said.
    """
    said = span.attributes
    return RequestSpan(
        engine=engine,
        start=span.start,
        end=span.end,
        queue=_seconds(said.get(_STAGES["queue"])),
        prefill=_seconds(said.get(_STAGES["prefill"])),
        decode=_seconds(said.get(_STAGES["decode"])),
        transfer=None,
        prompt_tokens=_count(said.get("gen_ai.usage.prompt_tokens")),
        completion_tokens=_count(said.get("gen_ai.usage.completion_tokens")),
    )


def _seconds(value: Value | None) -> float | None:
    if isinstance(value, bool | str) or value is None:
        return None
    return float(value) if math.isfinite(value) and value >= 0 else None


def _count(value: Value | None) -> int:
    return int(value) if isinstance(value, int | float) and math.isfinite(value) and value > 0 else 0


def _protobuf_attributes(pairs: Iterable[KeyValue]) -> Attributes:
    found: dict[str, Value] = {}
    for pair in pairs:
        kind = pair.value.WhichOneof("value")
        if kind in ("string_value", "int_value", "double_value", "bool_value"):
            found[pair.key] = getattr(pair.value, kind)
    return MappingProxyType(found)


def _json_spans(export: Mapping[str, Any]) -> Iterator[Span]:
    for group in export.get("resourceSpans", ()):
        resource = _json_attributes(group.get("resource", {}).get("attributes", ()))
        for scope in group.get("scopeSpans", ()):
            for span in scope.get("spans", ()):
                yield Span(
                    identity=_identity(span["traceId"]) + _identity(span["spanId"]),
                    name=str(span["name"]),
                    start=int(span["startTimeUnixNano"]) / 1e9,
                    end=int(span["endTimeUnixNano"]) / 1e9,
                    attributes=_json_attributes(span.get("attributes", ())),
                    resource=resource,
                )


def _json_attributes(pairs: Iterable[Mapping[str, Any]]) -> Attributes:
    found: dict[str, Value] = {}
    for pair in pairs:
        for kind, value in pair["value"].items():
            match kind:
                case "stringValue":
                    found[pair["key"]] = str(value)
                case "intValue":
                    found[pair["key"]] = int(value)  # 64-bit numbers come as text
                case "doubleValue":
                    found[pair["key"]] = float(value)
                case "boolValue":
                    found[pair["key"]] = bool(value)
    return MappingProxyType(found)


def _identity(text: str) -> bytes:
    if len(text) in _HEX_LENGTHS:
        return bytes.fromhex(text)
    return base64.b64decode(text, validate=True)
