"""What every store of an election's record keeps to: in memory, a row of a database, a Lease of a real API server."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from election_stores import MakeStore

from agent.election.machine import Record

SECONDS = 5.0
RECORD = Record("warden-a", 3, 0, 12)


def test_at_first_there_is_no_record(make_store: MakeStore) -> None:
    assert make_store().read(SECONDS).record is None


def test_what_one_writes_all_read(make_store: MakeStore) -> None:
    one, other = make_store(), make_store()
    version = one.write(RECORD, None, SECONDS)
    assert version is not None
    saw = other.read(SECONDS)
    assert (saw.record, saw.version) == (RECORD, version)


def test_a_record_is_made_once(make_store: MakeStore) -> None:
    one, other = make_store(), make_store()
    assert one.write(RECORD, None, SECONDS) is not None
    assert other.write(replace(RECORD, holder="warden-b"), None, SECONDS) is None
    assert other.read(SECONDS).record == RECORD


def test_a_write_over_a_version_that_is_not_the_last_is_refused_and_changes_nothing(make_store: MakeStore) -> None:
    one, other = make_store(), make_store()
    first = one.write(RECORD, None, SECONDS)
    second = one.write(replace(RECORD, renewals=1), first, SECONDS)
    assert second not in {None, first}
    assert other.write(replace(RECORD, holder="warden-b", term=4), first, SECONDS) is None
    assert other.read(SECONDS).record == replace(RECORD, renewals=1)
    assert other.write(replace(RECORD, holder="warden-b", term=4), second, SECONDS) is not None


def test_a_record_without_a_holder_is_one_that_was_given_back(make_store: MakeStore) -> None:
    store = make_store()
    version = store.write(RECORD, None, SECONDS)
    store.write(replace(RECORD, holder="", renewals=1), version, SECONDS)
    assert make_store().read(SECONDS).record == replace(RECORD, holder="", renewals=1)


def test_of_many_that_write_over_the_same_version_one_comes_through(make_store: MakeStore) -> None:
    stores = [make_store() for _ in range(6)]
    version = stores[0].write(RECORD, None, SECONDS)
    with ThreadPoolExecutor(len(stores)) as threads:
        claims = [
            threads.submit(store.write, replace(RECORD, holder=f"warden-{index}", term=4), version, SECONDS)
            for index, store in enumerate(stores)
        ]
        assert sum(claim.result(60) is not None for claim in claims) == 1
