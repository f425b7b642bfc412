"""Every store of an election's record, real ones too, and candidates over them with short durations."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from itertools import count
from pathlib import Path

import pytest
from election_stores import QUICK, MakeStore, MemoryStore
from elections import SharedRecord

from agent.election.candidate import Candidate
from agent.election.row_store import RowStore
from agent.election.store import RecordStore
from agent.journal.stored import open_journal
from serving.clock import SystemClock

_names = count()


def _lease_stores(request: pytest.FixtureRequest, end: ExitStack) -> MakeStore:
    from agent.election.lease_store import LeaseStore  # noqa: PLC0415 - needs the extra `kubernetes`
    from serving.kubernetes.connection import connect  # noqa: PLC0415 - same

    plane, namespace = request.getfixturevalue("control_plane"), request.getfixturevalue("namespace")
    name, clock = f"fleetwarden-{next(_names)}", SystemClock()

    def make() -> RecordStore:
        client = end.enter_context(closing(connect(plane.kubeconfig(), clock=clock)))
        return LeaseStore(client, namespace, name, clock)

    return make


@pytest.fixture(
    params=[
        "memory",
        "sqlite",
        pytest.param("postgresql", marks=pytest.mark.real_postgres),
        pytest.param("lease", marks=pytest.mark.real_kubernetes),
    ]
)
def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakeStore]:
    """Makes stores that share one record, as several processes would have them."""
    with ExitStack() as end:
        if request.param == "memory":
            shared = SharedRecord()
            yield lambda: MemoryStore(shared)
        elif request.param == "lease":
            yield _lease_stores(request, end)
        else:
            path = f"sqlite:///{tmp_path / 'journal.sqlite'}"
            url = path if request.param == "sqlite" else str(request.getfixturevalue("postgres_url"))
            open_journal(url).close()
            yield lambda: end.enter_context(closing(RowStore(url, "default", QUICK.request)))


@pytest.fixture
def make_candidate(make_store: MakeStore) -> Iterator[Callable[..., Candidate]]:
    """Starts candidates over one record; the network of each can be cut by its `cut_off`."""
    with ExitStack() as end:

        def make(identity: str, *, started: bool = True, store: RecordStore | None = None) -> Candidate:
            candidate = Candidate(store or make_store(), SystemClock(), identity, QUICK)
            end.callback(candidate.close)
            if started:
                candidate.start()
            return candidate

        yield make
