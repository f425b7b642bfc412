"""The port that every journal stands behind, its words and its errors.

Errors:

    JournalError           the journal cannot be read or written; the message names the file and says what to do
    ├── DamagedError       something stored in it cannot be understood
    ├── DeposedError       another warden writes in a later term: this one must stop
    ├── KeyTakenError      an operation key was used before: somebody else intends, or intended, that very operation
    └── OutOfOrderError    an event cannot follow what is written, or its incident is not known
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Protocol

from actuators.action import Scalar
from agent.incident import Incident, IncidentEvent

PAUSE = "pause"  # the big red button: while it is on, nothing in the world is touched


class JournalError(Exception):
    """The journal cannot be read or written. Nothing was changed."""


class DamagedError(JournalError):
    """What is stored cannot be understood."""


class KeyTakenError(JournalError):
    """An operation with this key was intended before. Nothing was written."""


class DeposedError(JournalError):
    """Another warden writes in a later term. Nothing was written, and nothing more may be done. `term`: the later one."""

    def __init__(self, says: str, term: int) -> None:
        super().__init__(says)
        self.term = term


class OutOfOrderError(JournalError):
    """An event cannot follow what is written. Nothing was written."""


class Answer(StrEnum):
    """What became of a person's answer to a request for approval."""

    ACCEPTED = "accepted"
    ALREADY_ANSWERED = "already_answered"
    EXPIRED = "expired"
    NOT_ASKED = "not_asked"
    ENDED = "ended"
    NO_SUCH_INCIDENT = "no_such_incident"


@dataclass(frozen=True, slots=True)
class Note:
    """Something that concerns the whole fleet or the warden itself: the loop started, a source is blind, the breaker opened.

    `kind` is a short dotted word such as `loop.started`; `says` is a sentence; `facts` are its numbers.
    """

    at: float
    kind: str
    says: str
    facts: Mapping[str, Scalar] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the record. `seq` grows, with gaps, and is never used again.

    `term`: of the warden that wrote it; None where a person or a command did, or no term was known.
    """

    seq: int
    event: IncidentEvent | Note
    term: int | None = None


@dataclass(frozen=True, slots=True)
class Switch:
    """Something a person turns on and off. One never touched is off, `at` 0."""

    name: str
    on: bool = False
    by: str = ""
    at: float = 0.0
    why: str = ""


class Journal(Protocol):
    """The record. Everything written is on disk when the call returns, or an error is raised and nothing was written.

    Safe to use from several threads; a stored journal also from several processes, one of which is the warden that leads.
    Once it has begun a term, everything that it writes carries the term, and is refused with DeposedError when a later term
    has begun: the check and the write are one transaction. Only answers of people are taken in any term.
    """

    @property
    def location(self) -> str:
        """Where it is kept, for messages."""
        ...

    def begin_term(self, term: int, holder: str, at: float) -> None:
        """Write in `term` from now on, and end the writing of all before. Raises DeposedError when it is not the latest."""
        ...

    def latest_term(self) -> int:
        """The latest term that anybody began; 0 before the first."""
        ...

    def append(self, event: IncidentEvent) -> int:
        """Write one event and return its sequence number.

        Raises OutOfOrderError when the event cannot follow what is written of its incident (see agent.incident.apply),
        KeyTakenError when it is an intent whose key was used in any incident, JournalError when it cannot be written.
        """
        ...

    def note(self, note: Note) -> int:
        """Write one note and return its sequence number."""
        ...

    def events(self, since: int = 0, incident: str | None = None, limit: int | None = None) -> tuple[Entry, ...]:
        """Entries with a sequence number above `since`, oldest first: of one incident, or all of them, notes included."""
        ...

    def incidents(self, *, open_only: bool = False, since: float | None = None) -> tuple[Incident, ...]:
        """All incidents, in the order they were opened.

        `open_only`: those that have not ended. `since`: those that are not over, or were not yet at that time.
        """
        ...

    def standing(self) -> tuple[Incident, ...]:
        """Incidents that have not ended, and ended ones that still stand for their cause: what agent.track goes by."""
        ...

    def incident(self, incident: str) -> Incident | None:
        """One incident, folded from its events."""
        ...

    def switch(self, name: str) -> Switch:
        """The switch of that name as it stands now."""
        ...

    def set_switch(self, name: str, *, on: bool, by: str, at: float, why: str = "") -> Switch:
        """Turn a switch. Writes a note `switch.on` or `switch.off`, too, so that the record tells who, when and why."""
        ...

    def cursor(self, sink: str) -> int:
        """The sequence number up to which `sink` has delivered; 0 for a new one."""
        ...

    def set_cursor(self, sink: str, seq: int) -> None:
        """Remember that `sink` has delivered up to `seq`. A cursor never goes back."""
        ...

    def engine_slots(self) -> Mapping[str, int]:
        """The number of each pod of a cluster among the engines of its workload, by the pod's uid."""
        ...

    def keep_engine_slots(self, numbers: Mapping[str, int]) -> None:
        """Remember these numbers and no others."""
        ...

    def approve(self, incident: str, by: str, now: float) -> Answer:
        """Allow what was asked. Only the first answer before the request expires counts, whoever gives it."""
        ...

    def reject(self, incident: str, by: str, now: float) -> Answer:
        """Refuse what was asked. Same rules as `approve`."""
        ...

    def prune(self, before: float) -> int:
        """Forget notes and whole incidents that were over before `before`; returns how many incidents.

        Incidents that still stand stay whole, whatever their age. Sequence numbers are not used again.
        """
        ...

    def close(self) -> None:
        """Let go of the store."""
        ...
