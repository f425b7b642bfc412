"""Who writes in an earlier term is refused, in memory and in every database; nothing of a refused write stays."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import create_engine, select
from sqlalchemy.exc import DBAPIError

from agent.diagnosis.diagnosis import Diagnosis
from agent.incident import ApprovalAsked, IncidentEvent, Intended, Opened
from agent.journal.port import PAUSE, Answer, DeposedError, Journal, JournalError, Note
from agent.journal.schema import metadata, writer
from agent.journal.stored import StoredJournal, open_journal

History = Callable[[str], tuple[IncidentEvent, ...]]
Shared = tuple[StoredJournal, StoredJournal]
NOTE = Note(100.0, "loop.started", "the loop started")


def test_a_new_journal_knows_no_term_and_takes_what_bears_none(journal: Journal) -> None:
    assert journal.latest_term() == 0
    journal.note(NOTE)
    assert [entry.term for entry in journal.events()] == [None]


def test_every_entry_bears_the_term_in_which_it_was_written(journal: Journal, history: History) -> None:
    journal.begin_term(3, "warden-a", 99.0)
    journal.append(history("a")[0])
    journal.note(NOTE)
    journal.begin_term(5, "warden-a", 120.0)
    journal.set_switch(PAUSE, on=True, by="ada", at=121.0)
    assert [entry.term for entry in journal.events()] == [3, 3, 5]
    assert journal.latest_term() == 5


def test_a_term_that_is_not_the_latest_cannot_begin(journal: Journal) -> None:
    journal.begin_term(3, "warden-a", 99.0)
    journal.begin_term(3, "warden-a", 99.0)  # the same once more: its answer was lost
    with pytest.raises(DeposedError, match="term 3 of warden-b cannot begin: warden-a began term 3") as refused:
        journal.begin_term(3, "warden-b", 100.0)
    assert refused.value.term == 3
    with pytest.raises(DeposedError, match="term 2 of warden-b"):
        journal.begin_term(2, "warden-b", 100.0)
    assert journal.latest_term() == 3


def test_whoever_was_deposed_writes_nothing_any_more(shared: Shared, history: History) -> None:
    old, new = shared
    old.begin_term(1, "warden-a", 99.0)
    for event in history("a")[:3]:
        old.append(event)
    new.begin_term(2, "warden-b", 100.0)
    before = (new.events(), new.switch(PAUSE), new.cursor("slack"))
    writes: list[Callable[[], object]] = [
        lambda: old.append(history("a")[3]),
        lambda: old.note(NOTE),
        lambda: old.set_switch(PAUSE, on=True, by="ada", at=140.0),
        lambda: old.set_cursor("slack", 2),
        lambda: old.prune(1e9),
    ]
    for write in writes:
        with pytest.raises(DeposedError, match="warden-b writes in term 2, which ended term 1; nothing was written"):
            write()
    assert (new.events(), new.switch(PAUSE), new.cursor("slack")) == before
    new.append(history("a")[3])  # the key of the refused intent was not used up


def test_people_answer_whichever_warden_leads(shared: Shared, diagnosis: Diagnosis) -> None:
    old, new = shared
    old.begin_term(1, "warden-a", 99.0)
    old.append(Opened("a", 100.0, diagnosis))
    old.append(ApprovalAsked("a", 101.0, 200.0, "may I?"))
    new.begin_term(2, "warden-b", 102.0)
    assert old.approve("a", "ada", 150.0) is Answer.ACCEPTED
    assert [entry.term for entry in new.events()] == [1, 1, None], "an answer is no warden's word"


def test_no_write_of_an_old_term_comes_after_a_new_one_began(shared: Shared) -> None:
    """Both write as fast as they can while the term changes hands: the terms in the journal never go back."""
    old, new = shared
    old.begin_term(1, "warden-a", 99.0)
    wrote = threading.Event()

    def write() -> int:
        for count in range(100_000):
            try:
                old.note(Note(100.0 + count, "loop.started", "old"))
            except DeposedError:
                return count
            wrote.set()
        return -1

    with ThreadPoolExecutor(1) as threads:
        writing = threads.submit(write)
        assert wrote.wait(30)
        new.begin_term(2, "warden-b", 100.0)
        for count in range(20):
            new.note(Note(100.0 + count, "loop.started", "new"))
        assert writing.result(30) > 0
    terms = [entry.term or 0 for entry in new.events()]
    assert terms == sorted(terms)
    assert {1, 2} == set(terms)


def test_an_intent_that_was_refused_leaves_its_key_free(shared: Shared, history: History) -> None:
    old, new = shared
    for event in history("a")[:3]:
        new.append(event)
    old.begin_term(1, "warden-a", 99.0)
    new.begin_term(2, "warden-b", 100.0)
    intent = history("a")[3]
    assert isinstance(intent, Intended)
    with pytest.raises(DeposedError):
        old.append(intent)
    new.append(intent)


@pytest.mark.real_postgres
def test_the_migrations_make_the_same_tables_in_postgresql(postgres_url: str) -> None:
    open_journal(postgres_url).close()
    engine = create_engine(postgres_url)
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
    engine.dispose()


@pytest.mark.real_postgres
def test_wardens_that_start_at_once_over_an_empty_database_make_its_tables_once(postgres_url: str) -> None:
    with ThreadPoolExecutor(4) as threads:
        opened = list(threads.map(lambda _: open_journal(postgres_url), range(4)))
    for journal in opened:
        with closing(journal):
            assert journal.latest_term() == 0


@pytest.mark.real_postgres
def test_a_writer_that_freezes_in_the_middle_does_not_keep_its_successor_from_writing(postgres_url: str) -> None:
    with (
        closing(open_journal(postgres_url, patience=2.0)) as old,
        closing(open_journal(postgres_url, patience=2.0)) as new,
    ):
        old.begin_term(1, "warden-a", 99.0)
        frozen = old._write()
        connection = frozen.__enter__()
        new.begin_term(2, "warden-b", 100.0)  # waits until the server ends the idle transaction
        with pytest.raises(DBAPIError, match="idle-in-transaction") as ended:
            connection.execute(select(writer))
        with pytest.raises(JournalError, match="does not answer"):
            frozen.__exit__(type(ended.value), ended.value, None)
        new.note(NOTE)
        assert [entry.term for entry in new.events()] == [2]
        with pytest.raises(DeposedError):
            old.note(NOTE)


@pytest.mark.real_postgres
def test_a_lock_that_is_held_for_too_long_is_said(postgres_url: str) -> None:
    with (
        closing(open_journal(postgres_url, patience=30.0)) as holding,
        closing(open_journal(postgres_url, patience=0.3)) as waiting,
        holding._write(),
        pytest.raises(JournalError, match="is busy for too long: another process holds it"),
    ):
        waiting.note(NOTE)


@pytest.mark.real_postgres
def test_a_server_that_is_not_there_is_said_without_the_password(postgres_url: str) -> None:
    port = int(postgres_url.rpartition(":")[2].partition("/")[0])
    nowhere = postgres_url.replace("postgres@", "postgres:hush@").replace(f":{port}/", ":1/")
    with pytest.raises(JournalError, match="does not answer: check that the server runs") as refused:
        open_journal(nowhere)
    assert "hush" not in str(refused.value)


@pytest.mark.real_postgres
def test_a_database_that_does_not_exist_is_said(postgres_url: str) -> None:
    with pytest.raises(JournalError, match='"nothing_here" does not exist'):
        open_journal(f"{postgres_url.rpartition('/')[0]}/nothing_here")
