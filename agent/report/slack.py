"""Slack by incoming webhook: one message an incident.

An incident is told when it needs a person (approval asked, recommendation, escalation), when it is over, or when it has
been open for `patience` seconds, whichever comes first. After that a short line follows only when it comes out differently
from what was said: repaired, over by itself, given up after more attempts, or approval asked anew. The rule is in
agent.report.outlook; that the warden is still working is never worth a second line.
"""

import logging
from http.client import HTTPException, HTTPResponse
from typing import Any
from urllib.error import URLError
from urllib.request import HTTPRedirectHandler, HTTPSHandler, ProxyHandler, Request, build_opener

from pydantic import SecretStr
from slack_sdk.webhook import WebhookClient, WebhookResponse

from agent.report.notice import Delivery, Manner, Notice, NoticeKind
from agent.report.posting import Answer, Unreachable, post, retry_after
from agent.report.slack_blocks import follow_up, message
from serving.clock import Clock

ANSWER_LIMIT = 65_536

# slack_sdk writes the webhook's URL, which is a secret, to its logger: this one says nothing, whatever is configured.
_SILENT = logging.Logger("slack-webhook", level=logging.CRITICAL + 1)  # noqa: LOG001 - kept out of the tree of loggers


class SlackSink:
    """Stories into the channel that the webhook was made for."""

    name = "slack"
    manner = Manner.STORIES

    def __init__(self, url: SecretStr, cell: str, clock: Clock, patience: float = 120.0, timeout: float = 10.0) -> None:
        self.patience = patience
        self._url = url
        self._cell = cell
        self._clock = clock
        self._timeout = timeout

    def deliver(self, notice: Notice) -> Delivery:
        if notice.story is None:
            raise ValueError(f"notice {notice.id} carries no story")
        render = follow_up if notice.kind is NoticeKind.FOLLOW_UP else message
        payload = render(notice.story, self._cell)
        return post(lambda timeout: self._send(payload, timeout), self._timeout, self._clock)

    def close(self) -> None:
        """Nothing is kept open between messages."""

    def _send(self, payload: dict[str, Any], timeout: float) -> Answer:
        client = _Client(self._url.get_secret_value(), logger=_SILENT, retry_handlers=[], default_headers={})
        client.seconds = timeout
        try:
            response = client.send_dict(payload)
        except (URLError, OSError) as error:
            reason = error.reason if isinstance(error, URLError) else error
            raise Unreachable(f"no answer from Slack: {type(reason).__name__}") from None
        except (HTTPException, ValueError, LookupError) as error:
            raise Unreachable(f"an unreadable answer from Slack: {type(error).__name__}") from None
        headers = {name.lower(): value for name, value in response.headers.items()}
        return Answer(response.status_code, retry_after(headers.get("retry-after")))


class _NoRedirect(HTTPRedirectHandler):
    """Lets a redirect be the answer. urllib would follow it and take the other page's 200 for a delivery."""

    def redirect_request(self, *_: Any) -> None:
        return None


class _Client(WebhookClient):
    """slack_sdk's client with a timeout in fractions of seconds, no redirects, and answers of bounded size."""

    seconds: float = 10.0

    def _perform_http_request_internal(self, url: str, req: Request) -> WebhookResponse:
        handlers: list[Any] = [_NoRedirect(), HTTPSHandler(context=self.ssl)]
        if self.proxy is not None:
            handlers.append(ProxyHandler({"http": self.proxy, "https": self.proxy}))
        answer: HTTPResponse = build_opener(*handlers).open(req, timeout=self.seconds)
        with answer:
            body = answer.read(ANSWER_LIMIT).decode("utf-8", errors="replace")
            return WebhookResponse(url=url, status_code=answer.status, body=body, headers=dict(answer.headers.items()))
