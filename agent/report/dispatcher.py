"""Dispatcher: one courier for each sink, each in a thread of its own, so that a slow sink delays nobody else.

`dispatch` does the same in the caller's thread, for one-off commands and tests.
"""

from collections.abc import Callable, Sequence
from threading import Event, Thread

import structlog

from agent.report.courier import Advise, Counted, Courier
from agent.report.notice import EventLog, Sink
from serving.clock import Clock

INTERVAL = 1.0  # seconds between two looks into the journal
LAST_WORDS = 5.0  # seconds each sink has to take what is left when the warden stops


def _uncounted(_sink: str, _result: str) -> None:
    """Count nothing."""


def _no_advice(_incident: object) -> str:
    """Give none."""
    return ""


def _always() -> bool:
    """Nobody else tells anything."""
    return True


class Dispatcher:
    """Tells all `sinks` what `log` holds.

    `counted(sink, result)` is called for each notice: delivered, failed, retry_later or stale, and journal_unreadable.
    `advise(incident)` is what the incident's runbook says to a person who has to take over. Only while `leads()` anything is
    told by the threads: of several wardens one tells.
    """

    def __init__(
        self,
        log: EventLog,
        sinks: Sequence[Sink],
        clock: Clock,
        counted: Counted = _uncounted,
        advise: Advise = _no_advice,
        leads: Callable[[], bool] = _always,
    ) -> None:
        names = [sink.name for sink in sinks]
        if len(set(names)) < len(names):
            raise ValueError(f"two sinks have the same name: {', '.join(names)}")
        self._clock = clock
        self._leads = leads
        self._couriers = [Courier(log, sink, clock, counted, advise) for sink in sinks]
        self._stopping = Event()
        self._threads: list[Thread] = []
        self._logger = structlog.get_logger("fleetwarden.report")

    def dispatch(self, now: float, budget: float) -> int:
        """Tell every sink what is due at `now`, sharing `budget` seconds. Returns how many notices were taken."""
        until = self._clock.monotonic() + budget
        taken = 0
        for index, courier in enumerate(self._couriers):
            share = max(0.0, until - self._clock.monotonic()) / (len(self._couriers) - index)
            taken += courier.run(now, share)
        return taken

    def start(self) -> None:
        """Start the threads."""
        if self._threads:
            raise RuntimeError("the dispatcher runs already")
        self._threads = [
            Thread(target=self._carry, args=(courier,), name=f"report-{courier.sink.name}", daemon=True)
            for courier in self._couriers
        ]
        for thread in self._threads:
            thread.start()

    def stop(self, timeout: float = 2 * LAST_WORDS) -> None:
        """Let each sink take what is left, for a moment; then stop the threads and close the sinks. What remains waits."""
        self._stopping.set()
        until = self._clock.monotonic() + timeout
        for thread in self._threads:
            thread.join(max(0.0, until - self._clock.monotonic()))
        for courier in self._couriers:
            courier.sink.close()

    def _carry(self, courier: Courier) -> None:
        while not self._stopping.wait(INTERVAL):
            self._run(courier, 10 * INTERVAL)
        self._run(courier, LAST_WORDS)

    def _run(self, courier: Courier, budget: float) -> None:
        try:
            if self._leads():
                courier.run(self._clock.now(), budget)
            else:
                courier.rest()
        except Exception:  # the thread must live on: the next look may find the journal whole again
            self._logger.exception("report.courier_broke", sink=courier.sink.name)
