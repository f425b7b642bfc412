"""Bytes and errors between the client and the connections below it."""

from collections.abc import Iterator
from contextlib import contextmanager

import orjson
import urllib3
from urllib3 import exceptions

from serving.kubernetes.cluster_error import ClusterError, refusal

CHUNK = 1 << 16


def refused(response: urllib3.BaseHTTPResponse, raw: bytes) -> ClusterError:
    """The error for an answer with a status of 400 or more."""
    content = decoded(raw)
    return refusal(
        response.status,
        raw[:500].decode(errors="replace") if content is None else content,
        response.headers.get("Retry-After"),
    )


def decoded(raw: bytes) -> object:
    """The JSON of `raw`, or None when it is none."""
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        return None


@contextmanager
def mapped(what: str, *, sent: bool = False) -> Iterator[None]:
    """Every error of urllib3 and of the sockets below it as a ClusterError. `sent`: the request is out already."""
    try:
        yield
    except (
        exceptions.NewConnectionError,
        exceptions.ConnectTimeoutError,
        exceptions.SSLError,
        exceptions.ProxyError,
    ) as error:
        raise ClusterError(0, "Unreachable", f"{what}: {error}", reached=sent) from error
    except (exceptions.ReadTimeoutError, TimeoutError) as error:
        raise ClusterError(0, "Timeout", f"{what}: no answer in time") from error
    except (exceptions.HTTPError, OSError, ValueError) as error:
        raise ClusterError(0, "Broken", f"{what}: the connection broke: {error}") from error
