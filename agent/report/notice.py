"""The words of reporting: a notice, what became of its delivery, and the ports of sinks and of the record they read."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from agent.incident import Incident, IncidentEvent
from agent.journal.port import Entry, Note
from agent.report.story import Story


class NoticeKind(StrEnum):
    """What a notice tells: one transition of an incident, a note of the warden's own, or an incident's story so far."""

    OPENED = "opened"
    REDIAGNOSED = "rediagnosed"
    SYMPTOMS_GONE = "symptoms_gone"
    SYMPTOMS_BACK = "symptoms_back"
    DECIDED = "decided"
    ATTEMPT_STARTED = "attempt_started"
    INTENDED = "intended"
    FINISHED = "finished"
    WITHDRAWN = "withdrawn"
    STEP_PASSED = "step_passed"
    ROLLBACK_STARTED = "rollback_started"
    VERIFICATION_STARTED = "verification_started"
    APPROVAL_ASKED = "approval_asked"
    APPROVAL_ANSWERED = "approval_answered"
    ENDED = "ended"
    CLOSED = "closed"
    NOTE = "note"
    STORY = "story"
    FOLLOW_UP = "follow_up"


@dataclass(frozen=True, slots=True)
class Notice:
    """One thing to tell. The same notice keeps the same `id` however often it is delivered.

    `seq` is its place in the journal, `at` when it happened (Unix seconds), `headline` one line for a person. `incident`
    and `story` are as they stood then; a NOTE has neither. `event` is None for a STORY or FOLLOW_UP.
    """

    id: str
    seq: int
    at: float
    kind: NoticeKind
    headline: str
    incident: Incident | None = None
    story: Story | None = None
    event: IncidentEvent | Note | None = None


class DeliveryStatus(StrEnum):
    """Delivered: the receiver has it. Failed: it will never take this one. Retry later: it may take it later."""

    DELIVERED = "delivered"
    FAILED = "failed"
    RETRY_LATER = "retry_later"


@dataclass(frozen=True, slots=True)
class Delivery:
    """What became of one notice. `says` holds no secret. `retry_after`: seconds the receiver asked to be left alone."""

    status: DeliveryStatus
    says: str = ""
    retry_after: float | None = None


class Manner(StrEnum):
    """How much a sink wants to hear: every transition as it happens, or one story an incident."""

    TRANSITIONS = "transitions"
    STORIES = "stories"


class Sink(Protocol):
    """Somebody to tell.

    `deliver` returns in bounded time and never raises; the same notice may come twice, with the same id.
    """

    @property
    def name(self) -> str:
        """Unique among sinks; its place in the journal is remembered under it."""
        ...

    @property
    def manner(self) -> Manner:
        """How much it wants to hear."""
        ...

    @property
    def patience(self) -> float:
        """For STORIES: seconds an incident may be open before it is told although nobody is needed."""
        ...

    def deliver(self, notice: Notice) -> Delivery:
        """Tell `notice`."""
        ...

    def close(self) -> None:
        """Release connections; nothing is delivered any more."""
        ...


class EventLog(Protocol):
    """The part of the journal that reporting reads and where each sink's place is kept."""

    def events(self, since: int = 0, incident: str | None = None, limit: int | None = None) -> tuple[Entry, ...]:
        """Entries above `since`, oldest first: of one incident, or all of them, notes included."""
        ...

    def cursor(self, sink: str) -> int:
        """The sequence number up to which `sink` was told; 0 for a new one."""
        ...

    def set_cursor(self, sink: str, seq: int) -> None:
        """Remember that `sink` was told up to `seq`. A cursor never goes back."""
        ...
