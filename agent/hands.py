"""Hands: actions are carried out beside the loop, so that a slow one does not keep the loop from looking.

A canary that a hung engine never answers takes its whole deadline, a process that will not end some seconds. The loop waits
a moment for each action, which is enough for most, and goes on; what became of the others is taken in at a later step. What
is under way is told apart from what a dead warden left behind: only the latter is looked up.
"""

from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from typing import Protocol

from agent.act import Executor
from agent.decision.decision import Decision
from agent.incident import Incident, IncidentEvent

MOMENT_S = 0.5  # an order to the front door takes milliseconds; longer waiting would make the loop late
AT_ONCE = 8  # repairs at once are few by policy; probes may be some more

Written = tuple[IncidentEvent, ...]


class Performs(Protocol):
    """What the loop hands its decisions to: Hands, or what plays their part where nothing may be done."""

    def perform(self, incident: Incident, decision: Decision, *, attempt: int, runbook: str, now: float) -> Written:
        """Begin the action; the events that were written, none while it is under way."""
        ...

    def finished(self) -> Written:
        """The events of actions that came to their end since the last call."""
        ...

    def busy(self, incident: str) -> bool:
        """Whether an action of this incident is under way."""
        ...

    def recover(self, now: float) -> Written:
        """Look up what a warden before this one left without outcome."""
        ...


class Hands:
    """Performs decisions through an Executor, one at a time for each incident."""

    def __init__(self, executor: Executor, moment: float = MOMENT_S) -> None:
        self._executor = executor
        self._moment = moment
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="hand")
        self._under_way: dict[str, Future[Written]] = {}

    def perform(self, incident: Incident, decision: Decision, *, attempt: int, runbook: str, now: float) -> Written:
        """Begin the action, and wait a moment for it. Returns the events it wrote; none when it is still under way.

        Raises JournalError when the journal cannot be used.
        """
        doing = self._threads.submit(self._executor.perform, incident, decision, attempt=attempt, runbook=runbook, now=now)
        wait_for([doing], self._moment)
        if doing.done():
            return doing.result()
        self._under_way[incident.id] = doing
        return ()

    def finished(self) -> Written:
        """The events of actions that came to their end since the last call. Raises what the executor raised."""
        over = [incident for incident, doing in self._under_way.items() if doing.done()]
        return tuple(event for incident in over for event in self._under_way.pop(incident).result())

    def busy(self, incident: str) -> bool:
        """Whether an action of this incident is under way."""
        return incident in self._under_way

    def recover(self, now: float) -> Written:
        """Look up what a warden before this one left without outcome; see Executor.recover."""
        return self._executor.recover(now)

    def close(self) -> None:
        """Wait for the actions under way: their outcomes belong into the journal."""
        self._threads.shutdown(wait=True)
