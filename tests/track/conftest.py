"""A fleet watched from moment to moment, in virtual time."""

from collections.abc import Iterable

import pytest

from agent.diagnosis.diagnosis import Diagnosis
from agent.incident import Incident, IncidentEvent
from agent.journal.memory import MemoryJournal
from agent.track import TrackParameters, track
from serving.fleet.entity import Entity


class Watch:
    """Tracks into a journal, as the loop does."""

    def __init__(self) -> None:
        self.journal = MemoryJournal()
        self.now = 1_800_000_000.0
        self.parameters = TrackParameters()

    def look(self, *diagnoses: Diagnosis, after: float = 1.0, blind: Iterable[Entity] = ()) -> tuple[IncidentEvent, ...]:
        """One step of the loop, `after` seconds later."""
        self.now += after
        events = track(self.journal.standing(), diagnoses, self.now, self.parameters, frozenset(blind))
        for event in events:
            self.journal.append(event)
        return events

    def look_on(self, *diagnoses: Diagnosis, seconds: float, blind: Iterable[Entity] = ()) -> tuple[IncidentEvent, ...]:
        """Steps of one second each; all that was written meanwhile."""
        found: tuple[IncidentEvent, ...] = ()
        for _ in range(int(seconds)):
            found += self.look(*diagnoses, blind=blind)
        return found

    @property
    def incidents(self) -> tuple[Incident, ...]:
        return self.journal.incidents()


@pytest.fixture
def watch() -> Watch:
    return Watch()
