"""One target of a direct scrape: ask, read a bounded answer, and name what went wrong in a sentence."""

import asyncio
import errno
from dataclasses import dataclass

import aiohttp

from serving.clock import Clock
from serving.telemetry.exposition import ExpositionError, ExpositionParser, Samples, decode
from serving.telemetry.reading import FailureKind, TargetFailure

_CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class Answer:
    """What one target answered: its wanted samples (none after a failure), when, and how long it took."""

    samples: Samples
    at: float
    seconds: float
    failure: TargetFailure | None = None


class _RefusedError(Exception):
    """The target's answer is of no use, for the reason it carries."""

    def __init__(self, kind: FailureKind, detail: str) -> None:
        super().__init__(detail)
        self.failure = TargetFailure(kind, detail)


@dataclass(frozen=True, slots=True)
class Target:
    """One /metrics to ask. A fresh front door may have no series yet (`may_be_empty`); an engine that has none is wrong."""

    url: str
    parser: ExpositionParser
    largest: int
    may_be_empty: bool = False


async def fetch(session: aiohttp.ClientSession, target: Target, clock: Clock, seconds: float) -> Answer:
    """Scrape `target` within `seconds`. Never raises for what a target or the network does: see `Answer.failure`."""
    loop = asyncio.get_running_loop()
    begun = loop.time()
    url = target.url
    samples: Samples = {}
    failure: TargetFailure | None = None
    try:
        async with asyncio.timeout(seconds):
            text, open_metrics = await _text(session, target)
        samples = target.parser.parse(text, open_metrics=open_metrics)
        if not samples and not target.may_be_empty:
            failure = TargetFailure(
                FailureKind.GARBAGE,
                f"{url} answers metrics, but none that an engine has: does the fleet file name the right port?",
            )
    except _RefusedError as refused:
        failure = refused.failure
    except ExpositionError as unreadable:
        failure = TargetFailure(FailureKind.GARBAGE, f"{url}: {unreadable}")
    except TimeoutError:
        failure = TargetFailure(
            FailureKind.TIMEOUT, f"{url} gave no whole answer in {seconds:.1f} s; something may still live there"
        )
    except (aiohttp.ClientError, OSError, ValueError) as broken:
        failure = _of_connection(url, broken)
    return Answer(samples if failure is None else {}, clock.now(), loop.time() - begun, failure)


async def _text(session: aiohttp.ClientSession, target: Target) -> tuple[str, bool]:
    async with session.get(target.url, allow_redirects=False) as response:
        _check_status(target.url, response)
        raw = bytearray()
        async for chunk in response.content.iter_chunked(_CHUNK):
            raw += chunk
            if len(raw) > target.largest:
                response.close()  # the rest is not read, so the connection cannot be kept
                what = f"{target.url} answers more than {target.largest / 1e6:g} MB; it was not read on"
                raise _RefusedError(FailureKind.TOO_LARGE, what)
        return decode(bytes(raw)), "openmetrics" in response.headers.get("Content-Type", "")


def _check_status(url: str, response: aiohttp.ClientResponse) -> None:
    status = response.status
    if status == 200:  # noqa: PLR2004 - OK
        return
    if 300 <= status < 400:  # noqa: PLR2004 - redirects
        where = response.headers.get("Location", "nowhere")
        what = f"points to {where}, which is not followed; if that is right, put it into the fleet file"
    elif status in (401, 403):
        what = "wants credentials; vLLM's /metrics needs none, so name the engine's own address, not a proxy's"
    elif status == 404:  # noqa: PLR2004 - Not Found
        what = "knows no /metrics; name the base URL of an engine's API server"
    elif status == 503:  # noqa: PLR2004 - Service Unavailable
        what = "says it is unavailable; an engine does so while it scales its expert parallelism or shuts down"
    else:
        what = "cannot give its metrics"
    raise _RefusedError(FailureKind.STATUS, f"{url} answers {status}: it {what}")


def _of_connection(url: str, broken: Exception) -> TargetFailure:
    """The failure behind what aiohttp raised. Its DNS errors are connector errors too, so they are looked at first."""
    kind = FailureKind.OTHER
    match broken:
        case aiohttp.ClientConnectorDNSError():
            what = "its host name is not known; check the fleet file and the resolver"
        case OSError() if _errno(broken) == errno.ECONNREFUSED:
            kind, what = FailureKind.REFUSED, "connection refused; nothing listens there, the process is gone or not up yet"
        case aiohttp.ClientPayloadError():
            kind, what = FailureKind.GARBAGE, "the answer broke off before its end"
        case aiohttp.ServerDisconnectedError() | ConnectionResetError():
            what = "closed the connection without an answer"
        case aiohttp.ClientResponseError():
            kind, what = FailureKind.GARBAGE, f"does not speak HTTP: {broken.message}"
        case aiohttp.InvalidURL() | ValueError():
            what = "is not a URL that can be asked; correct the fleet file"
        case _:
            what = str(broken) or type(broken).__name__
    return TargetFailure(kind, f"{url}: {what}")


def _errno(broken: OSError) -> int | None:
    inner = broken.os_error if isinstance(broken, aiohttp.ClientConnectorError) else broken
    return inner.errno
