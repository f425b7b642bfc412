"""Courier: carries to one sink what the journal holds and the sink was not yet told.

At least once: a sink's place in the journal is stored after it took a notice, so a crash in between repeats that notice and
loses none. A sink that hears stories keeps one more place for each incident (`slack:INCIDENT`): up to where it was told.
A sink that fails costs only its own messages: one it refuses is counted and passed over, one it may take later waits with a
growing delay, and one older than STALE is counted and dropped.
"""

from collections.abc import Callable
from dataclasses import dataclass

import structlog

from agent.incident import Incident, IncidentState, fold
from agent.journal.port import Entry, JournalError, Note
from agent.report import notices
from agent.report.arrival import arrive, place_of
from agent.report.notice import Delivery, DeliveryStatus, EventLog, Manner, Notice, NoticeKind, Sink
from agent.report.outlook import worth_a_second_line, worth_telling
from serving.clock import Clock

BATCH = 100  # entries read at a time
STALE = 86_400.0  # seconds: what is a day old is history, which `fleetwarden incidents` tells better
FIRST_PAUSE = 5.0  # seconds before a sink that could not be reached is tried again; doubles up to LONGEST_PAUSE
LONGEST_PAUSE = 300.0

Counted = Callable[[str, str], None]
Advise = Callable[[Incident], str]


@dataclass(slots=True)
class _Followed:
    """An incident whose story is not over: its first entry, and whether anything happened since it was last weighed."""

    first: int
    opened_at: float
    changed: bool = True
    told: bool = False


class Courier:
    """One sink's courier. Not safe to run from two threads at once."""

    def __init__(self, log: EventLog, sink: Sink, clock: Clock, counted: Counted, advise: Advise) -> None:
        self._journal = log
        self.sink = sink
        self._clock = clock
        self._counted = counted
        self._advise = advise
        self._failures = 0
        self._not_before = 0.0
        self._seen: int | None = None
        self._followed: dict[str, _Followed] = {}
        self._logger = structlog.get_logger("fleetwarden.report")

    def run(self, now: float, budget: float) -> int:
        """Tell the sink what is due at `now`, starting nothing after `budget` seconds. Returns how many notices it took."""
        if self._clock.monotonic() < self._not_before:
            return 0
        until = self._clock.monotonic() + budget
        try:
            self._look_around(now)
            return self._stories(now, until) if self.sink.manner is Manner.STORIES else self._transitions(now, until)
        except (JournalError, ValueError) as error:  # ValueError: a history that makes no sense
            self._counted(self.sink.name, "journal_unreadable")
            self._pause(None)
            self._logger.warning("report.journal_unreadable", sink=self.sink.name, says=str(error))
            return 0

    def rest(self) -> None:
        """Somebody else tells the sink now: forget how far it was told, which the journal will say."""
        self._seen = None
        self._followed.clear()

    def _look_around(self, now: float) -> None:
        if self._seen is None:
            if self._journal.cursor(self.sink.name) == 0:
                arrive(self._journal, self.sink, now)
            self._seen = self._journal.cursor(self.sink.name)

    def _transitions(self, now: float, until: float) -> int:
        taken = 0
        while entries := self._journal.events(since=self._seen or 0, limit=BATCH):
            for entry in entries:
                if taken and self._clock.monotonic() >= until:
                    return taken
                if entry.event.at < now - STALE:
                    self._counted(self.sink.name, "stale")
                elif not self._deliver(notices.transition(entry, self._history(entry), self._advise)):
                    return taken
                else:
                    taken += 1
                self._seen = entry.seq
                self._journal.set_cursor(self.sink.name, entry.seq)
        return taken

    def _history(self, entry: Entry) -> tuple[Entry, ...]:
        if isinstance(entry.event, Note):
            return ()
        return tuple(past for past in self._journal.events(incident=entry.event.incident) if past.seq <= entry.seq)

    def _stories(self, now: float, until: float) -> int:
        self._follow()
        taken = 0
        for name, followed in tuple(self._followed.items()):
            if taken and self._clock.monotonic() >= until:
                break
            due = followed.changed or (not followed.told and now - followed.opened_at >= self.sink.patience)
            if due:
                told = self._tell(name, followed, now)
                if told is None:
                    break
                taken += told
        lowest = min((followed.first for followed in self._followed.values()), default=(self._seen or 0) + 1)
        self._journal.set_cursor(self.sink.name, lowest - 1)
        return taken

    def _follow(self) -> None:
        while entries := self._journal.events(since=self._seen or 0, limit=BATCH):
            for entry in entries:
                if not isinstance(entry.event, Note):
                    known = self._followed.setdefault(entry.event.incident, _Followed(entry.seq, entry.event.at))
                    known.changed = True
                self._seen = entry.seq

    def _tell(self, name: str, followed: _Followed, now: float) -> int | None:
        """1 when something was told, 0 when nothing was due, None when the sink must be tried later."""
        entries = self._journal.events(incident=name)
        place = place_of(self.sink, name)
        notice, incident = self._due(entries, self._journal.cursor(place), now)
        if notice is not None:
            if not self._deliver(notice):
                return None
            self._journal.set_cursor(place, notice.seq)
        followed.changed, followed.told = False, followed.told or notice is not None or self._journal.cursor(place) > 0
        if incident is None or not incident.standing or incident.state is IncidentState.SUPPRESSED:
            del self._followed[name]
        return int(notice is not None)

    def _due(self, entries: tuple[Entry, ...], told_until: int, now: float) -> tuple[Notice | None, Incident | None]:
        if not entries:  # pruned from the journal meanwhile
            return None, None
        incident = fold(notices.events_of(entries))
        if incident.ended_at is not None and entries[-1].event.at < now - STALE:
            if told_until == 0:
                self._counted(self.sink.name, "stale")
            return None, incident
        if told_until == 0:
            due = worth_telling(incident, now, self.sink.patience)
            return (notices.story(entries, NoticeKind.STORY, self._advise) if due else None), incident
        before = tuple(entry for entry in entries if entry.seq <= told_until)
        due = bool(before) and worth_a_second_line(fold(notices.events_of(before)), incident)
        return (notices.story(entries, NoticeKind.FOLLOW_UP, self._advise) if due else None), incident

    def _deliver(self, notice: Notice) -> bool:
        """Whether the sink is done with `notice`, be it that it took it or that it never will."""
        try:
            delivery = self.sink.deliver(notice)
        except Exception as error:  # noqa: BLE001 - a broken sink must cost its own messages only; the text may hold a secret
            delivery = Delivery(DeliveryStatus.FAILED, f"the sink itself broke: {type(error).__name__}")
        self._counted(self.sink.name, delivery.status.value)
        if delivery.status is DeliveryStatus.DELIVERED:
            self._failures, self._not_before = 0, 0.0
            return True
        self._logger.warning(
            "report.not_delivered", sink=self.sink.name, notice=notice.id, status=delivery.status.value, says=delivery.says
        )
        if delivery.status is DeliveryStatus.FAILED:
            return True
        self._pause(delivery.retry_after)
        return False

    def _pause(self, asked: float | None) -> None:
        pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(self._failures, 10))
        self._failures += 1
        self._not_before = self._clock.monotonic() + max(pause if asked is None else asked, 0.0)
