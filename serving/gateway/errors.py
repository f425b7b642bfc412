"""Errors in the shape that OpenAI clients understand."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import orjson
from aiohttp import web


@dataclass(frozen=True, slots=True)
class ErrorReply:
    """One error answer. `kind` is OpenAI's `type`; `code` the machine-readable reason."""

    status: int
    message: str
    kind: str
    code: str
    headers: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def body(self) -> bytes:
        """The JSON body."""
        return orjson.dumps({"error": {"message": self.message, "type": self.kind, "param": None, "code": self.code}})

    def response(self, headers: Mapping[str, str]) -> web.Response:
        """As an HTTP answer, with `headers` beside its own."""
        merged = {**headers, **self.headers}
        return web.Response(status=self.status, body=self.body, content_type="application/json", headers=merged)


def bad_request(message: str) -> ErrorReply:
    """The client's mistake."""
    return ErrorReply(400, message, "invalid_request_error", "bad_request")


def too_large(limit: int) -> ErrorReply:
    """The body is over the door's limit."""
    return ErrorReply(413, f"the request body is over {limit} bytes", "invalid_request_error", "request_too_large")


def unknown_route(path: str) -> ErrorReply:
    """The door does not pass this path on."""
    return ErrorReply(404, f"the front door does not serve {path}", "invalid_request_error", "unknown_route")


def unknown_model(model: str, models: str) -> ErrorReply:
    """No engine serves this model."""
    return ErrorReply(
        404, f"the model {model!r} does not exist; this door serves {models}", "invalid_request_error", "model_not_found"
    )


def no_engine(model: str, retry_after_s: int) -> ErrorReply:
    """Every engine of the model is drained."""
    return ErrorReply(
        503,
        f"no engine of model {model!r} is in rotation; try again in {retry_after_s} s",
        "service_unavailable",
        "no_engine",
        {"Retry-After": str(retry_after_s)},
    )


def upstream_timeout(detail: str) -> ErrorReply:
    """The engine did not answer in time."""
    return ErrorReply(504, detail, "timeout", "engine_timeout")


def upstream_broken(detail: str) -> ErrorReply:
    """The engine could not be reached, or its answer broke off before the first byte."""
    return ErrorReply(502, detail, "server_error", "engine_unreachable")
