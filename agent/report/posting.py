"""Posting with retries inside a bounded time, the same for every sink that speaks HTTP.

An answer is judged by its status: 2xx has it; 408, 425, 429 and 5xx may have it later; everything else never will.
Redirects are not followed: where a message goes is said in the settings, not by whoever answers.
"""

from collections.abc import Callable
from dataclasses import dataclass

import stamina

from agent.report.notice import Delivery, DeliveryStatus
from serving.clock import Clock

ATTEMPTS = 4
FIRST_WAIT = 0.2  # seconds; doubles up to LONGEST_WAIT, with a little jitter
LONGEST_WAIT = 2.0
LONGEST_RETRY_AFTER = 3_600.0
_LATER = frozenset({408, 425, 429})
_TOO_MANY = 429


@dataclass(frozen=True, slots=True)
class Answer:
    """What the receiver answered. `retry_after` is its Retry-After header in seconds, where it has a readable one."""

    status: int
    retry_after: float | None = None


class Unreachable(Exception):  # noqa: N818 - it says what is the case; the text must hold no secret
    """No answer came: refused, broken, or too slow."""


class _Later(Exception):  # noqa: N818 - a signal to the retry, never seen outside
    def __init__(self, delivery: Delivery) -> None:
        super().__init__(delivery.says)
        self.delivery = delivery


def post(send: Callable[[float], Answer], total: float, clock: Clock) -> Delivery:
    """Call `send(timeout)` until it answers for good, at most ATTEMPTS times and for about `total` seconds.

    `send` raises Unreachable when no answer came. Being told to wait (429) ends the tries at once.
    """
    deadline = clock.monotonic() + total

    said = "no answer"

    def once() -> Delivery:
        nonlocal said
        left = deadline - clock.monotonic()
        if left <= 0:
            return Delivery(DeliveryStatus.RETRY_LATER, f"nothing better than {said} within {total:g} s")
        delivery = _asked(send, left)
        said = delivery.says
        if delivery.status is DeliveryStatus.RETRY_LATER and delivery.retry_after is None:
            raise _Later(delivery)
        return delivery

    try:
        for attempt in stamina.retry_context(
            on=_Later,
            attempts=ATTEMPTS,
            timeout=total,
            wait_initial=FIRST_WAIT,
            wait_max=LONGEST_WAIT,
            wait_jitter=FIRST_WAIT,
        ):
            with attempt:
                return once()
    except _Later as last:
        return last.delivery
    raise AssertionError("stamina ends with a result or an error")


def _asked(send: Callable[[float], Answer], timeout: float) -> Delivery:
    try:
        return judged(send(timeout))
    except Unreachable as why:
        return Delivery(DeliveryStatus.RETRY_LATER, str(why))


def judged(answer: Answer) -> Delivery:
    """What an answer means for the message."""
    status = answer.status
    if 200 <= status < 300:  # noqa: PLR2004 - success, RFC 9110 section 15.3
        return Delivery(DeliveryStatus.DELIVERED, f"HTTP {status}")
    if status in _LATER or status >= 500:  # noqa: PLR2004 - server error, RFC 9110 section 15.6
        wait = answer.retry_after
        if status == _TOO_MANY and wait is None:
            wait = 1.0
        return Delivery(DeliveryStatus.RETRY_LATER, f"HTTP {status}", wait)
    if 300 <= status < 400:  # noqa: PLR2004 - redirection, RFC 9110 section 15.4
        return Delivery(
            DeliveryStatus.FAILED, f"HTTP {status}: redirects are not followed; put the final URL into the settings"
        )
    return Delivery(DeliveryStatus.FAILED, f"HTTP {status}: the receiver refuses it; check the URL and the secret")


def retry_after(header: str | None) -> float | None:
    """The seconds of a Retry-After header; None when it is missing or a date, which nobody sends here."""
    try:
        seconds = float(header or "")
    except ValueError:
        return None
    return min(seconds, LONGEST_RETRY_AFTER) if seconds >= 0 else None
