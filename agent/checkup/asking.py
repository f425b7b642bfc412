"""One bounded GET, and every way in which no usable answer may come, as a sentence and what to do about it."""

import asyncio
import errno
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp
from pydantic import SecretStr

from serving.clock import Clock
from serving.telemetry.reading import FailureKind

LARGEST = 20_000_000  # bytes of one answer; the /metrics of a large engine has about 0.3 million
_CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class Heard:
    """An answer of any status, read whole. `seconds` is how long it took, `at` the middle of that time on our clock."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    seconds: float
    at: float


@dataclass(frozen=True, slots=True)
class Unheard:
    """No answer that could be read: `says` goes on where a sentence about the URL begins."""

    kind: FailureKind
    says: str
    todo: str


@asynccontextmanager
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    """A session without cookies, proxies and limits of its own; each question brings its time limit."""
    async with aiohttp.ClientSession(
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={"Accept-Encoding": "identity", "User-Agent": "fleetwarden"},
        timeout=aiohttp.ClientTimeout(total=None),
    ) as one:
        yield one


async def get(
    asks: aiohttp.ClientSession,
    url: str,
    clock: Clock,
    seconds: float,
    *,
    token: SecretStr | None = None,
    params: Mapping[str, str] | None = None,
) -> Heard | Unheard:
    """GET `url` within `seconds`; redirects are answers. Never raises for what the other side or the network does."""
    begun, began_at = clock.monotonic(), clock.now()
    headers = {} if token is None else {"Authorization": f"Bearer {token.get_secret_value()}"}
    response: aiohttp.ClientResponse | None = None
    try:
        async with asyncio.timeout(seconds):
            async with asks.get(url, headers=headers, params=params, allow_redirects=False) as response:
                body = await _body(response)
    except TimeoutError:
        return _silent(seconds, connected=response is not None)
    except _TooLargeError:
        return Unheard(
            FailureKind.TOO_LARGE,
            f"answers more than {LARGEST / 1e6:g} MB and was not read on",
            "the metrics of one engine are far smaller: name one engine's own /metrics, or a Prometheus",
        )
    except (aiohttp.ClientError, OSError, ValueError, UnicodeError) as broken:
        return _of_connection(broken)
    took = clock.monotonic() - begun
    named = {name.lower(): value for name, value in response.headers.items()}
    return Heard(response.status, named, body, took, began_at + took / 2)


class _TooLargeError(Exception):
    """The body goes on beyond LARGEST."""


async def _body(response: aiohttp.ClientResponse) -> bytes:
    raw = bytearray()
    async for chunk in response.content.iter_chunked(_CHUNK):
        raw += chunk
        if len(raw) > LARGEST:
            response.close()
            raise _TooLargeError
    return bytes(raw)


def _silent(seconds: float, *, connected: bool) -> Unheard:
    if connected:
        says = f"began to answer and did not end within {seconds:g} s"
        return Unheard(FailureKind.TIMEOUT, says, "the process or the network is overloaded; try again, or look at its log")
    return Unheard(
        FailureKind.TIMEOUT,
        f"takes no notice: no answer within {seconds:g} s",
        "if it is an engine that is not starting just now, its API process hangs: look at its log and its CPU; "
        "else a firewall swallows the packets",
    )


def _of_connection(broken: Exception) -> Unheard:  # noqa: PLR0911 - one sentence a case
    """What is said about an exception of aiohttp. Its DNS errors are connector errors too, so they are looked at first."""
    match broken:
        case aiohttp.ClientConnectorDNSError():
            return Unheard(FailureKind.OTHER, "has a host name that is not known", "check the name and the resolver")
        case aiohttp.ClientConnectorCertificateError() | ssl.SSLError() | aiohttp.ClientSSLError():
            return Unheard(
                FailureKind.OTHER,
                "speaks no TLS that is accepted here",
                "write http:// if it is a plain port, or trust its certificate on this machine",
            )
        case OSError() if _errno(broken) == errno.ECONNREFUSED:
            return Unheard(
                FailureKind.REFUSED,
                "refuses connections: nothing listens there",
                "check host and port; if they are right, the process is gone or not up yet",
            )
        case aiohttp.ServerDisconnectedError() | ConnectionResetError():
            return Unheard(FailureKind.OTHER, "closed the connection without an answer", _WRONG_PORT)
        case aiohttp.ClientPayloadError():
            return Unheard(FailureKind.GARBAGE, "broke off in the middle of its answer", "try again, or look at its log")
        case aiohttp.ClientResponseError():
            return Unheard(FailureKind.GARBAGE, "does not speak HTTP", _WRONG_PORT)
        case aiohttp.InvalidURL() | ValueError():
            return Unheard(
                FailureKind.OTHER, "is not a URL that can be asked", "write it as in http://10.0.0.7:8000/metrics"
            )
        case OSError() if getattr(broken, "strerror", None):
            return Unheard(FailureKind.OTHER, f"cannot be reached: {broken.strerror}", "check the address and the network")
        case _:
            return Unheard(FailureKind.OTHER, f"cannot be reached: {type(broken).__name__}", "check the address")


_WRONG_PORT = "check the port: something else than an HTTP server may listen there, or one that wants https://"


def _errno(broken: OSError) -> int | None:
    inner = broken.os_error if isinstance(broken, aiohttp.ClientConnectorError) else broken
    return inner.errno
