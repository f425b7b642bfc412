"""Polling with a deadline: the only way in which anything here waits."""

from collections.abc import Callable

from serving.clock import Clock, SystemClock

POLL_S = 0.05


class TooLateError(AssertionError):
    """A condition did not become true in time; the message names it."""


def until(
    true: Callable[[], object],
    seconds: float,
    what: str | Callable[[], str],
    clock: Clock | None = None,
    poll_s: float = POLL_S,
) -> None:
    """Ask `true` until it says something truthy. Raises TooLateError with `what`, worked out then if it is a function."""
    clock = clock or SystemClock()
    end = clock.monotonic() + seconds
    while not true():
        if clock.monotonic() > end:
            raise TooLateError(f"not within {seconds:.0f} s: {what if isinstance(what, str) else what()}")
        clock.sleep(poll_s)
