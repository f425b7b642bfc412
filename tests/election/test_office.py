"""Beginning and ending to lead: the journal knows a term before anything is decided in it, and has the last word."""

import math

import pytest

from agent.election.mandate import Mandate, Standing
from agent.election.office import Office
from agent.journal.memory import MemoryJournal
from agent.journal.port import DeposedError


class ScriptedElector:
    """Holds whatever mandate it is given."""

    identity = "warden-a"

    def __init__(self) -> None:
        self.held: Mandate | None = None
        self.resigned: list[tuple[int, int]] = []

    def lead(self, term: int) -> None:
        self.held = Mandate(term, math.inf, math.inf)

    def mandate(self) -> Mandate | None:
        return self.held

    def standing(self) -> Standing:
        if self.held is None:
            return Standing(leading=False, leader="warden-b", term=9)
        return Standing(leading=True, leader=self.identity, term=self.held.term)

    def resign(self, term: int, floor: int = 0) -> None:
        self.resigned.append((term, floor))
        self.held = None

    def close(self) -> None:
        self.held = None


@pytest.fixture
def elector() -> ScriptedElector:
    return ScriptedElector()


@pytest.fixture
def journal() -> MemoryJournal:
    return MemoryJournal()


@pytest.fixture
def office(elector: ScriptedElector, journal: MemoryJournal) -> Office:
    return Office(elector, journal, "warden 1.0 started over fleet west")


def test_without_a_mandate_nothing_is_entered_and_nothing_written(office: Office, journal: MemoryJournal) -> None:
    assert not office.enter(100.0)
    assert not office.holds()
    assert journal.events() == ()
    assert journal.latest_term() == 0


def test_a_term_begins_in_the_journal_once(office: Office, elector: ScriptedElector, journal: MemoryJournal) -> None:
    elector.lead(3)
    assert not office.holds(), "the journal does not know yet"
    assert not office.standing().leading
    for now in (100.0, 102.0, 104.0):
        assert office.enter(now)
    assert office.holds()
    assert office.standing().leading
    (entry,) = journal.events()
    assert (entry.term, entry.event.at) == (3, 100.0)


def test_a_further_term_begins_anew(office: Office, elector: ScriptedElector, journal: MemoryJournal) -> None:
    elector.lead(3)
    office.enter(100.0)
    elector.held = None
    assert not office.enter(102.0)
    elector.lead(5)
    assert not office.holds()
    assert office.enter(104.0)
    assert [entry.term for entry in journal.events()] == [3, 5]


def test_who_is_told_of_a_later_term_by_the_journal_resigns(
    office: Office, elector: ScriptedElector, journal: MemoryJournal
) -> None:
    journal.begin_term(8, "warden-b", 99.0)
    elector.lead(3)
    with pytest.raises(DeposedError) as refused:
        office.enter(100.0)
    office.deposed(refused.value)
    assert elector.resigned == [(3, 8)]
    assert not office.holds()


def test_news_of_an_earlier_end_do_not_end_a_later_term(office: Office, elector: ScriptedElector) -> None:
    elector.lead(5)
    office.enter(100.0)
    office.deposed(DeposedError("an action of term 3 came to its end in term 4", 4))
    assert elector.resigned == []
    assert office.enter(102.0)
