"""Generic webhooks: each transition as a CloudEvent 1.0 (structured JSON), signed, posted to one URL.

The event's `id` is the same each time the same transition is sent, so a receiver can drop repeats. The signature header
`X-Fleetwarden-Signature: t=UNIX_SECONDS,v1=HEX` is the HMAC-SHA256 of `UNIX_SECONDS.BODY` under the shared secret; `verify`
is what a receiver does with it. Documented in docs/settings.md.
"""

import hashlib
import hmac
import logging
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import httpx
import orjson
from pydantic import SecretStr

from agent.report.notice import Delivery, Manner, Notice
from agent.report.posting import Answer, Unreachable, post, retry_after
from serving.clock import Clock
from serving.fleet.entity import Entity

SIGNATURE = "X-Fleetwarden-Signature"
TYPE_PREFIX = "io.fleetwarden."
TOLERANCE = 300.0  # seconds that a signed request may be old: an intercepted one cannot be sent again for long


class WebhookSink:
    """Every transition to one HTTP receiver. `timeout` bounds all tries of one event, in seconds; no `secret`: unsigned."""

    manner = Manner.TRANSITIONS
    patience = math.inf

    def __init__(
        self, name: str, url: SecretStr, cell: str, clock: Clock, *, secret: SecretStr | None, timeout: float
    ) -> None:
        self.name = f"webhook:{name}"
        self._url = url
        self._cell = cell
        self._clock = clock
        self._secret = secret
        self._timeout = timeout
        _quieten_httpx()
        self._client = httpx.Client(follow_redirects=False)

    def deliver(self, notice: Notice) -> Delivery:
        body = orjson.dumps(cloud_event(notice, self._cell))
        return post(lambda timeout: self._send(body, timeout), self._timeout, self._clock)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _send(self, body: bytes, timeout: float) -> Answer:
        headers = {"Content-Type": "application/cloudevents+json; charset=utf-8"}
        if self._secret is not None:
            headers[SIGNATURE] = signature(self._secret, body, self._clock.now())
        try:
            request = self._client.stream(
                "POST", self._url.get_secret_value(), content=body, headers=headers, timeout=httpx.Timeout(timeout)
            )
            with request as response:  # the status is enough: a body of any size stays unread
                return Answer(response.status_code, retry_after(response.headers.get("retry-after")))
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise Unreachable(f"no answer: {type(error).__name__}") from None


def cloud_event(notice: Notice, cell: str) -> dict[str, Any]:
    """`notice` as a CloudEvent in structured JSON, ready for orjson."""
    incident = notice.incident
    about = "incident" if incident is not None else "warden"
    event: dict[str, Any] = {
        "specversion": "1.0",
        "id": notice.id,
        "source": f"/fleetwarden/{quote(cell, safe='')}",
        "type": f"{TYPE_PREFIX}{about}.{notice.kind}",
        "time": datetime.fromtimestamp(notice.at, UTC).isoformat().replace("+00:00", "Z"),
        "datacontenttype": "application/json",
        "data": {"seq": notice.seq, "kind": notice.kind, "headline": notice.headline, "event": plain_data(notice.event)},
    }
    if incident is not None:
        event["subject"] = incident.id
        event["data"]["incident"] = {
            "id": incident.id,
            "cause": incident.cause,
            "entity": str(incident.entity),
            "state": incident.state,
            "ending": incident.ending,
            "opened_at": incident.opened_at,
            "ended_at": incident.ended_at,
            "attempt": incident.attempt,
            "runbook": incident.runbook,
        }
        event["data"]["story"] = plain_data(notice.story)
    return event


def plain_data(value: Any) -> Any:
    """Dataclasses, mappings and tuples as what JSON knows; an entity is `kind/name`, NaN is null."""
    if isinstance(value, Entity):
        return str(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain_data(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain_data(item) for key, item in value.items()}
    if isinstance(value, tuple | list | frozenset):
        return [plain_data(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def signature(secret: SecretStr, body: bytes, now: float) -> str:
    """The value of the signature header for `body` sent at `now` (Unix seconds)."""
    stamp = str(int(now))
    digest = hmac.new(secret.get_secret_value().encode(), f"{stamp}.".encode() + body, hashlib.sha256)
    return f"t={stamp},v1={digest.hexdigest()}"


def verify(secret: SecretStr, header: str, body: bytes, now: float) -> bool:
    """Whether `header` signs `body` under `secret` and was made within TOLERANCE seconds of `now`."""
    parts = dict(part.partition("=")[::2] for part in header.split(","))
    stamp = parts.get("t", "")
    if not stamp.isdecimal() or not stamp.isascii() or abs(now - int(stamp)) > TOLERANCE:
        return False
    return hmac.compare_digest(signature(secret, body, int(stamp)).encode(), f"t={stamp},v1={parts.get('v1', '')}".encode())


def _quieten_httpx() -> None:
    """Keep URLs out of httpx's log line of each request: path and query may hold a secret."""
    logger = logging.getLogger("httpx")
    if _hide_path not in logger.filters:
        logger.addFilter(_hide_path)


def _hide_path(record: logging.LogRecord) -> bool:
    if isinstance(record.args, tuple):
        record.args = tuple(f"{arg.scheme}://{arg.host}/..." if isinstance(arg, httpx.URL) else arg for arg in record.args)
    return True
