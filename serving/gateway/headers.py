"""Headers on their way through the door: what is passed on, what is not, and the two ids every request bears."""

import re
import secrets
from collections.abc import Iterable, Mapping

from multidict import CIMultiDict, CIMultiDictProxy

REQUEST_ID = "X-Request-Id"
TRACEPARENT = "traceparent"
SERVED_BY = "X-Served-By"

# RFC 9110 section 7.6.1: these belong to one connection. Host and Content-Length are set anew by the client library.
_HOP_BY_HOP = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "expect",
    }
)
_REQUEST_ID = re.compile(r"[\x21-\x7e]{1,128}")
# W3C Trace Context level 1: version, trace id, parent id, flags; all-zero ids are invalid.
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")


def request_id(headers: Mapping[str, str]) -> str:
    """The client's request id where it is usable (printable, at most 128 characters), or a new one."""
    given = headers.get(REQUEST_ID, "")
    return given if _REQUEST_ID.fullmatch(given) else secrets.token_hex(16)


def traceparent(headers: Mapping[str, str]) -> str:
    """The client's traceparent where it is valid, or a new sampled one: engines trace only what is sampled."""
    given = headers.get(TRACEPARENT, "")
    return given if _TRACEPARENT.fullmatch(given) else f"00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-01"


def upstream_headers(headers: CIMultiDictProxy[str], identity: str, trace: str) -> CIMultiDict[str]:
    """What the engine is sent."""
    passed = _passed(headers, ("host", "content-length"))
    passed[REQUEST_ID] = identity
    passed[TRACEPARENT] = trace
    return passed


def downstream_headers(headers: CIMultiDictProxy[str], identity: str, engine: str) -> CIMultiDict[str]:
    """What the client is sent."""
    passed = _passed(headers, ())
    passed[REQUEST_ID] = identity
    passed[SERVED_BY] = engine
    return passed


def _passed(headers: CIMultiDictProxy[str], dropped: Iterable[str]) -> CIMultiDict[str]:
    named = {name.strip().lower() for name in headers.get("Connection", "").split(",")}
    out = _HOP_BY_HOP.union(named, dropped)
    return CIMultiDict((name, value) for name, value in headers.items() if name.lower() not in out)
