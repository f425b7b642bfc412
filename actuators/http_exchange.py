"""One HTTP request of an actuator, with the one thing an actuator must know: whether it can have reached the target.

`exchange` does not raise. What it returns is an Answer, NotSent (the target never saw it) or NoAnswer (it may have).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import httpx

_NO_HEADERS: Mapping[str, str] = MappingProxyType({})
# Idle connections are not kept: one that the target has closed meanwhile would turn a plain request into an unknown outcome.
_LIMITS = httpx.Limits(max_keepalive_connections=0)
_SHOWN = 200


@dataclass(frozen=True, slots=True)
class Answer:
    """The target answered. `content` is the parsed JSON, or None where the body is something else. `seconds`: how long."""

    status: int
    content: object
    seconds: float
    text: str

    @property
    def fields(self) -> Mapping[str, object]:
        """The JSON object of the body; empty where it is none."""
        return self.content if isinstance(self.content, dict) else {}

    @property
    def says(self) -> str:
        """The answer in a few words, for a person."""
        error = self.fields.get("error")
        return f"{self.status}: {error if isinstance(error, str) else self.text[:_SHOWN]}"


@dataclass(frozen=True, slots=True)
class NotSent:
    """The request never reached the target."""

    says: str


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """The request may have reached the target, but no whole answer came."""

    says: str


Exchange = Answer | NotSent | NoAnswer


class HttpClient:
    """Makes exchanges. `timeout_s` bounds the connecting and each wait for bytes; the environment's proxies are not used."""

    def __init__(self, timeout_s: float, headers: Mapping[str, str] = _NO_HEADERS) -> None:
        self._timeout_s = timeout_s
        self._client = httpx.Client(headers=dict(headers), timeout=timeout_s, limits=_LIMITS, trust_env=False)

    def exchange(
        self,
        method: str,
        url: str,
        *,
        body: Mapping[str, object] | None = None,
        timeout_s: float | None = None,
        headers: Mapping[str, str] = _NO_HEADERS,
    ) -> Exchange:
        """Send one request and read its answer whole."""
        limit = timeout_s or self._timeout_s
        try:
            response = self._client.request(method, url, json=body, timeout=limit, headers=dict(headers))
            return Answer(response.status_code, _content(response), response.elapsed.total_seconds(), response.text)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            return NotSent(f"{url} cannot be reached: {_words(error)}")
        except (httpx.InvalidURL, httpx.UnsupportedProtocol, httpx.LocalProtocolError, UnicodeError) as error:
            return NotSent(f"{url} cannot be asked: {_words(error)}")
        except httpx.TimeoutException:
            return NoAnswer(f"{url} did not answer within {limit:g} s")
        except httpx.HTTPError as error:
            return NoAnswer(f"{url} broke off: {_words(error)}")


def _content(response: httpx.Response) -> object:
    try:
        return response.json()
    except ValueError:
        return None


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__
