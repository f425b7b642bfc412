"""Asking a PromQL-compatible store: queries within a deadline, and every way to fail as one sentence.

The queries go through prometheus-api-client on a session of this module's own: a time limit on every request, bodies
bounded and decoded by orjson, no redirects, no retries (the next tick is the retry), and warnings are not dropped.
"""

import gc
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import orjson
import requests
from prometheus_api_client import PrometheusConnect
from pydantic import SecretStr
from requests.auth import AuthBase
from urllib3.util.retry import Retry

from serving.clock import Clock

Series = tuple[Mapping[str, str], float]
Past = tuple[Mapping[str, str], list[tuple[float, float]]]
"""A series over time: its labels, and (Unix seconds, value) at each step at which it has one."""

_LARGEST = 512_000_000
_CHUNK = 1 << 18
_SHOWN = 200


class PromqlError(Exception):
    """A query without a usable answer. The message is a sentence that names the URL and says what to do."""


class PromqlClient:
    """Queries to one store. `url` is its base URL, without /api/v1. One client serves one thread."""

    def __init__(self, clock: Clock, url: str, bearer_token: SecretStr | None = None) -> None:
        self._url = url.rstrip("/")
        self.shown_url = without_credentials(self._url)
        self._session = _Session(clock)
        if bearer_token is not None:
            self._session.auth = _Bearer(bearer_token)
        self._store = PrometheusConnect(
            url=self._url, session=self._session, retry=Retry(0, read=False), auth=self._session.auth, timeout=None
        )

    def ask(self, query: str, seconds: float) -> list[Series]:
        """The instant vector of `query` at the store's own now: labels and value of each series. Raises PromqlError."""
        return _vector(self._asked(lambda: self._store.custom_query(query, timeout=seconds), seconds), self.shown_url)

    def ask_past(self, query: str, start: float, end: float, step: float, seconds: float) -> list[Past]:
        """`query` at each `step` seconds from `start` to `end` (Unix seconds, taken to whole ones). Raises PromqlError."""
        first, last = (datetime.fromtimestamp(round(moment), UTC) for moment in (start, end))

        def ask() -> Any:
            return self._store.custom_query_range(query, first, last, f"{step:g}", timeout=seconds)

        return _matrix(self._asked(ask, seconds), self.shown_url)

    def _asked(self, ask: Callable[[], Any], seconds: float) -> Any:
        """The result of `ask`; whatever hinders it becomes a PromqlError."""
        if seconds <= 0:
            raise PromqlError(f"{self.shown_url} answers too slowly: no time is left for all queries of one reading")
        self._session.warnings.clear()
        try:
            result = ask()
        except _UselessError as useless:
            raise PromqlError(f"{self.shown_url} {useless}") from None
        except requests.Timeout:
            raise PromqlError(
                f"{self.shown_url} gave no answer in {seconds:.1f} s; it is overloaded or cannot be reached"
            ) from None
        except requests.ConnectionError as broken:
            raise PromqlError(f"{self.shown_url} cannot be reached: {_why(broken)}") from None
        except requests.RequestException as broken:
            raise PromqlError(f"{self.shown_url} cannot be asked: {type(broken).__name__}") from None
        except (KeyError, TypeError):
            raise PromqlError(f"{self.shown_url} answers JSON that no Prometheus API would; check the base URL") from None
        if self._session.warnings:
            said = "; ".join(self._session.warnings)[:_SHOWN]
            raise PromqlError(f"{self.shown_url} answers with warnings, so parts may be missing: {said}")
        return result

    def close(self) -> None:
        """Give back the connections."""
        self._session.close()


def without_credentials(url: str) -> str:
    """`url` as it may be shown."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "", ""))


def _vector(result: Any, url: str) -> list[Series]:
    try:
        return [(item["metric"], float(item["value"][1])) for item in result if "value" in item]
    except (KeyError, TypeError, ValueError, IndexError):
        raise PromqlError(f"{url} answers something else than an instant vector") from None


def _matrix(result: Any, url: str) -> list[Past]:
    try:
        return [(item["metric"], [(float(at), float(value)) for at, value in item["values"]]) for item in result]
    except (KeyError, TypeError, ValueError):
        raise PromqlError(f"{url} answers something else than series over time") from None


class _UselessError(Exception):
    """An answer that arrived and cannot be used. The message goes on where a sentence about the URL begins."""


class _Bearer(AuthBase):
    """A bearer token as an auth object, which a .netrc on the machine cannot override."""

    def __init__(self, token: SecretStr) -> None:
        self._token = token

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = f"Bearer {self._token.get_secret_value()}"
        return request


class _Session(requests.Session):
    """A session whose answers are read whole within the request's time limit."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self.warnings: list[str] = []

    def request(self, *args: Any, **kwargs: Any) -> requests.Response:
        seconds = kwargs["timeout"]
        ends = self._clock.monotonic() + seconds
        response = super().request(*args, **{**kwargs, "stream": True, "allow_redirects": False})
        try:
            body = bytearray()
            for chunk in response.iter_content(_CHUNK):
                body += chunk
                if len(body) > _LARGEST:
                    raise _UselessError(
                        f"answers more than {_LARGEST / 1e6:g} MB; narrow the queries by telemetry.prometheus.match"
                    )
                if self._clock.monotonic() > ends:
                    raise requests.ReadTimeout
        finally:
            response.close()
        answer = _Answer(response, bytes(body), self.warnings)
        if answer.status_code != requests.codes.ok:
            raise _UselessError(answer.refusal())
        return answer


class _Answer(requests.Response):
    """A response with its body in memory, decoded by orjson."""

    def __init__(self, response: requests.Response, body: bytes, warnings: list[str]) -> None:
        super().__init__()
        self.__dict__.update(response.__dict__)
        self._content = body
        self._warnings = warnings

    def json(self, **_: Any) -> Any:
        decoded = self._decoded()
        if decoded is None:
            kind = "an HTML page" if self.content.lstrip()[:1] == b"<" else "no JSON"
            raise _UselessError(f"answers {kind}; the base URL of a Prometheus API is wanted, or a login stands before it")
        if isinstance(decoded, dict) and decoded.get("warnings"):
            self._warnings.extend(map(str, decoded["warnings"]))
        return decoded

    def refusal(self) -> str:
        """What is said about a status other than 200."""
        status = self.status_code
        if status in (401, 403):
            return f"answers {status}: it wants credentials; give or renew telemetry.prometheus.bearer_token_file"
        if 300 <= status < 400:  # noqa: PLR2004 - redirects
            where = without_credentials(self.headers.get("Location", "")) or "nowhere"
            return f"answers {status}: it points to {where}, which is not followed; name the right base URL"
        if status == requests.codes.not_found:
            return "answers 404: it has no /api/v1/query; the base URL of a Prometheus API is wanted"
        decoded = self._decoded()
        said = str(decoded.get("error", "")) if isinstance(decoded, dict) else ""
        return f"answers {status}: {said[:_SHOWN] or 'no reason given'}"

    def _decoded(self) -> Any:
        """The body as JSON, None where it is none. The collector pauses: it would walk a million fresh dicts in vain."""
        collecting = gc.isenabled()
        gc.disable()
        try:
            return orjson.loads(self.content)
        except orjson.JSONDecodeError:
            return None
        finally:
            if collecting:
                gc.enable()


def _why(broken: requests.ConnectionError) -> str:
    text = str(broken)
    if "refused" in text:
        return "connection refused; nothing listens there"
    if "resolve" in text or "Name or service" in text or "NameResolution" in text:
        return "its host name is not known"
    if isinstance(broken, requests.exceptions.SSLError):
        return "its certificate is not accepted"
    return "the connection broke off"
