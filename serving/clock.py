"""The only module that reads the clock. Every stage of the loop receives `now` as a value instead.

ruff's banned-api rule refuses `time.time`, `time.monotonic` and `datetime.now` everywhere else.
"""

import time
from typing import Protocol


class Clock(Protocol):
    """Where time comes from. Unix seconds for records, a monotonic reading for deadlines."""

    def now(self) -> float:
        """Unix seconds. May jump when the machine's clock is set."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back; only differences mean anything."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait; a fake clock only moves its own hands."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(max(0.0, seconds))


class FakeClock:
    """A clock whose hands are moved by its owner: for tests, replays and the fleet in virtual time."""

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self._now = now
        self._monotonic = 0.0

    def now(self) -> float:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    def sleep(self, seconds: float) -> None:
        self.advance(max(0.0, seconds))

    def advance(self, seconds: float) -> None:
        """Move both hands forward by `seconds` (>= 0)."""
        if seconds < 0:
            raise ValueError(f"a clock cannot be advanced by {seconds} s; use jump() to set the wall clock back")
        self._now += seconds
        self._monotonic += seconds

    def jump(self, seconds: float) -> None:
        """Set the wall clock by `seconds` (may be negative) while the monotonic hand stays."""
        self._now += seconds
