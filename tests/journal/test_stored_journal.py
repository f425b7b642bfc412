"""What only a journal on disk has: it outlives its process, is shared, and says clearly when it cannot be used."""

import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Barrier
from types import SimpleNamespace

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import create_engine
from sqlalchemy.dialects import postgresql
from sqlalchemy.schema import CreateTable

from actuators.action import Action, Outcome, OutcomeStatus
from agent.diagnosis.diagnosis import Diagnosis
from agent.incident import ApprovalAsked, AttemptStarted, Finished, IncidentEvent, Intended, Opened, SymptomsGone, fold
from agent.journal.dialect import insert_once, upsert
from agent.journal.port import PAUSE, Answer, DamagedError, JournalError, KeyTakenError
from agent.journal.schema import cursors, entries, metadata, operation_keys
from agent.journal.stored import StoredJournal, open_journal, resolve
from agent.journal.versions import newest

History = Callable[[str], tuple[IncidentEvent, ...]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "journal.sqlite"


@pytest.fixture
def stored(path: Path) -> Iterator[StoredJournal]:
    with closing(open_journal(path)) as journal:
        yield journal


def test_all_is_there_again_after_the_journal_was_opened_anew(path: Path, history: History) -> None:
    with closing(open_journal(path)) as journal:
        for event in history("a"):
            journal.append(event)
        journal.set_switch(PAUSE, on=True, by="ada", at=140.0)
        journal.set_cursor("slack", 4)
        expected = (journal.events(), journal.incidents(), journal.switch(PAUSE))
    with closing(open_journal(path)) as journal:
        assert (journal.events(), journal.incidents(), journal.switch(PAUSE)) == expected
        assert journal.cursor("slack") == 4


def test_what_is_written_is_seen_at_once_by_another_that_has_the_file_open(
    stored: StoredJournal, path: Path, diagnosis: Diagnosis
) -> None:
    with closing(open_journal(path, create=False)) as other:
        stored.append(Opened("a", 100.0, diagnosis))
        assert other.incident("a") == stored.incident("a")
        stored.append(ApprovalAsked("a", 101.0, 200.0, "may I?"))
        assert other.approve("a", "ada", 150.0) is Answer.ACCEPTED
        assert stored.incident("a").approval.approved is True
        assert stored.append(SymptomsGone("a", 151.0)) > 3
        assert other.incident("a") == stored.incident("a")


def test_reading_goes_on_while_another_writes(stored: StoredJournal, path: Path, diagnosis: Diagnosis) -> None:
    stored.append(Opened("a", 100.0, diagnosis))
    with closing(open_journal(path, create=False, patience=0.0)) as reader, closing(sqlite3.connect(path)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("DELETE FROM entries")
        assert reader.incident("a") is not None
        assert len(reader.events()) == 1


def test_of_two_writers_with_the_same_key_exactly_one_may_act(path: Path, diagnosis: Diagnosis) -> None:
    rounds = 20
    with closing(open_journal(path)) as one, closing(open_journal(path)) as two:
        barrier = Barrier(2)

        def race(journal: StoredJournal, mine: str) -> int:
            won = 0
            journal.append(Opened(mine, 1.0, diagnosis))
            journal.append(AttemptStarted(mine, 1.0, 1, "r"))
            for number in range(rounds):
                barrier.wait(timeout=30)
                intent = Intended(mine, 2.0, f"key-{number}", f"step-{number}", 1, Action("door.drain", diagnosis.entity))
                try:
                    journal.append(intent)
                except KeyTakenError:
                    continue
                won += 1
                journal.append(_done(intent))
            return won

        with ThreadPoolExecutor(2) as threads:
            wins = list(threads.map(race, (one, two), ("a", "b")))
        assert sum(wins) == rounds
        keys = [entry.event.key for entry in one.events() if isinstance(entry.event, Intended)]
        assert sorted(keys) == sorted(f"key-{number}" for number in range(rounds))


def test_many_threads_over_one_journal_lose_nothing(stored: StoredJournal, history: History) -> None:
    names = [f"incident-{number}" for number in range(8)]
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda name: [stored.append(event) for event in history(name)], names))
    assert {incident.id: incident for incident in stored.incidents()} == {name: fold(history(name)) for name in names}
    assert len({entry.seq for entry in stored.events()}) == 8 * len(history("x"))


def test_of_two_answers_at_the_same_moment_one_counts(path: Path, diagnosis: Diagnosis) -> None:
    with closing(open_journal(path)) as one, closing(open_journal(path, create=False)) as two:
        for number in range(10):
            name = f"incident-{number}"
            one.append(Opened(name, 1.0, diagnosis))
            one.append(ApprovalAsked(name, 1.0, 100.0, "may I?"))
            with ThreadPoolExecutor(2) as threads:
                answers = [
                    threads.submit(one.approve, name, "ada", 2.0),
                    threads.submit(two.reject, name, "bob", 2.0),
                ]
            assert {answer.result() for answer in answers} == {Answer.ACCEPTED, Answer.ALREADY_ANSWERED}


def test_writes_are_synced_to_the_disk_and_readers_do_not_wait(stored: StoredJournal) -> None:
    with stored._engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar_one() == 2
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar_one() == "wal"


def test_a_missing_journal_is_not_made_by_a_command_that_only_looks(path: Path) -> None:
    with pytest.raises(JournalError, match=f"no journal at {path}"):
        open_journal(path, create=False)
    assert not path.parent.exists()


def test_a_journal_of_a_newer_version_is_left_alone(path: Path, history: History) -> None:
    with closing(open_journal(path)) as journal:
        journal.append(history("a")[0])
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.execute("UPDATE alembic_version SET version_num = '9999'")
    for create in (True, False):
        with pytest.raises(JournalError, match=f"{path} has version 9999, which a newer Fleetwarden wrote"):
            open_journal(path, create=create)
    with closing(sqlite3.connect(path)) as raw:
        assert raw.execute("SELECT version_num FROM alembic_version").fetchall() == [("9999",)]
        assert raw.execute("SELECT count(*) FROM entries").fetchall() == [(1,)]


@pytest.mark.usefixtures("stored")
def test_the_newest_version_is_the_one_a_new_journal_has(path: Path) -> None:
    with closing(sqlite3.connect(path)) as raw:
        assert raw.execute("SELECT version_num FROM alembic_version").fetchall() == [(newest(),)]


@pytest.mark.usefixtures("stored")
def test_the_migrations_make_exactly_the_tables_that_the_journal_uses(path: Path) -> None:
    engine = create_engine(f"sqlite:///{path}")
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
    engine.dispose()


def test_the_tables_and_statements_are_understood_by_postgresql() -> None:
    """Compiled only: no server is asked."""
    assert "BIGSERIAL" in str(CreateTable(entries).compile(dialect=postgresql.dialect()))
    for table in metadata.sorted_tables:
        assert f"CREATE TABLE {table.name}" in str(CreateTable(table).compile(dialect=postgresql.dialect()))
    asked: list[str] = []
    connection = SimpleNamespace(
        dialect=postgresql.dialect(),
        execute=lambda statement: (
            asked.append(str(statement.compile(dialect=postgresql.dialect()))) or SimpleNamespace(first=list)
        ),
    )
    insert_once(connection, operation_keys, {"key": "k", "incident": "a"})
    upsert(connection, cursors, {"sink": "slack", "seq": 1}, only_up="seq")
    assert "ON CONFLICT (key) DO NOTHING RETURNING operation_keys.key" in asked[0]
    assert "ON CONFLICT (sink) DO UPDATE SET seq = excluded.seq WHERE cursors.seq < excluded.seq" in asked[1]


def test_a_database_of_something_else_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.sqlite"
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.execute("CREATE TABLE recipes (name TEXT)")
    with pytest.raises(JournalError, match=r"something else \(it holds recipes\)"):
        open_journal(path)
    with pytest.raises(JournalError, match="is not a journal of Fleetwarden"):
        open_journal(path, create=False)
    with closing(sqlite3.connect(path)) as raw:
        assert raw.execute("SELECT name FROM sqlite_master").fetchall() == [("recipes",)]


def test_a_file_that_is_no_database_is_said_to_be_none_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    path.write_bytes(b"these are my notes, not a database\n" * 100)
    with pytest.raises(DamagedError, match=f"{path} is not an SQLite database: move it aside"):
        open_journal(path)
    assert path.read_bytes().startswith(b"these are my notes")


def test_a_damaged_page_is_found_when_the_warden_opens(path: Path, history: History) -> None:
    with closing(open_journal(path)) as journal:
        for name in map(str, range(50)):
            for event in history(name):
                journal.append(event)
    data = bytearray(path.read_bytes())
    data[8_192:16_384] = b"\xff" * 8_192
    path.write_bytes(data)
    with pytest.raises(DamagedError, match=f"{path} is damaged: copy it aside"):
        open_journal(path)
    assert path.read_bytes() == bytes(data)


def test_a_record_that_makes_no_sense_is_named_with_its_number(path: Path, history: History) -> None:
    with closing(open_journal(path)) as journal:
        for event in history("a")[:3]:
            journal.append(event)
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.execute("DELETE FROM entries WHERE seq = 1")
    with closing(open_journal(path)) as journal, pytest.raises(DamagedError, match=f"entry 2 of the journal {path}"):
        journal.incident("a")


def test_a_locked_journal_says_so_and_writes_nothing(path: Path, diagnosis: Diagnosis) -> None:
    with closing(open_journal(path, patience=0.05)) as journal:
        with closing(sqlite3.connect(path)) as holder:
            holder.execute("BEGIN IMMEDIATE")
            with pytest.raises(JournalError, match=f"{path} is locked by another process"):
                journal.append(Opened("a", 1.0, diagnosis))
            holder.rollback()
        assert journal.incidents() == ()
        journal.append(Opened("a", 1.0, diagnosis))


def test_a_journal_that_may_only_be_read_says_so(path: Path, diagnosis: Diagnosis) -> None:
    with closing(open_journal(path)) as journal:
        journal.append(Opened("a", 1.0, diagnosis))
        with closing(open_journal(f"sqlite:///file:{path}?mode=ro&uri=true", create=False)) as reader:
            assert reader.incident("a") == journal.incident("a")
            with pytest.raises(JournalError, match="cannot be written: check who owns it"):
                reader.append(SymptomsGone("a", 2.0))


def test_a_folder_in_the_place_of_the_journal_says_what_to_check(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="cannot be opened: check that its folder exists"):
        open_journal(tmp_path)


def test_a_folder_that_cannot_be_made_says_which(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(JournalError, match=r"folder of the journal .*file/journal.sqlite cannot be made"):
        open_journal(tmp_path / "file" / "journal.sqlite")


def test_a_password_in_the_url_is_not_shown() -> None:
    assert "secret" not in resolve("postgresql+psycopg://warden:secret@db/journal", create=True)[1]


def _done(intent: Intended) -> IncidentEvent:
    return Finished(intent.incident, intent.at, intent.key, Outcome(OutcomeStatus.DONE, "done"))


def test_a_journal_from_before_terms_is_brought_up_to_date_with_all_that_is_in_it(path: Path, history: History) -> None:
    with closing(open_journal(path)) as journal:
        for event in history("a"):
            journal.append(event)
        expected = journal.events()
    with closing(sqlite3.connect(path)) as raw, raw:  # back to the first version by hand
        raw.execute("ALTER TABLE entries DROP COLUMN term")
        raw.execute("DROP TABLE writer")
        raw.execute("DROP TABLE elections")
        raw.execute("DROP TABLE engine_slots")
        raw.execute("UPDATE alembic_version SET version_num = '0001'")
    with closing(open_journal(path)) as journal:
        assert journal.events() == expected
        journal.begin_term(1, "warden-a", 200.0)
