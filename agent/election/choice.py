"""The elector that the settings ask for."""

import secrets
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager

from agent.election.always import AlwaysLeader
from agent.election.candidate import Candidate
from agent.election.lease_store import LeaseStore
from agent.election.mandate import Elector
from agent.election.row_store import RowStore
from agent.election.settings import ElectionKind, ElectionSettings
from agent.election.store import RecordStore
from agent.journal.port import Journal
from serving.clock import Clock
from serving.kubernetes.cluster_error import ClusterError
from serving.kubernetes.connection import NAMESPACE_FILE, connect
from serving.yaml_file import FileError, Problem


@contextmanager
def elector_of(settings: ElectionSettings, journal: Journal, url: str, clock: Clock) -> Iterator[Elector]:
    """The elector, at work until the end. `url` is the journal's. Raises FileError or JournalError that say what to do."""
    identity = f"{socket.gethostname()}-{secrets.token_hex(3)}"  # in a pod, the host's name is the pod's
    if settings.kind is ElectionKind.NONE:
        yield AlwaysLeader(identity, journal.latest_term)
        return
    if not url.startswith("postgresql"):
        what = "is for several wardens, which need one journal in PostgreSQL: name it with `journal.url_file`"
        raise _wrong("election.kind", settings.kind.value, what)
    with _store(settings, url, clock) as store:
        candidate = Candidate(store, clock, identity, settings.timing, journal.latest_term())
        with closing(candidate):
            candidate.start()
            yield candidate


@contextmanager
def _store(settings: ElectionSettings, url: str, clock: Clock) -> Iterator[RecordStore]:
    if settings.kind is ElectionKind.POSTGRES:
        yield RowStore(url, settings.name, settings.request)
        return
    try:
        client = connect(settings.kubeconfig, settings.context, clock=clock, deadline_s=settings.request)
    except ClusterError as wrong:
        raise _wrong("election", "", str(wrong)) from wrong
    with closing(client):
        yield LeaseStore(client, settings.namespace or _pod_namespace(), settings.name, clock)


def _pod_namespace() -> str:
    try:
        return NAMESPACE_FILE.read_text().strip()
    except OSError:
        raise _wrong("election.namespace", "", "is needed outside a pod: name the namespace of the Lease") from None


def _wrong(field: str, value: str, what: str) -> FileError:
    return FileError([Problem("settings", 0, field, what, value)])
