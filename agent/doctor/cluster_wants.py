"""What one warden's settings want of its cluster: which verbs may be used there, and where its Lease lies."""

from collections.abc import Iterator

from agent.doctor.cluster import Wanted
from agent.doctor.cluster_self import own_place
from agent.election.settings import ElectionKind
from agent.settings import WardenSettings
from runbooks.loader import LIBRARY, runbook_files
from runbooks.runbook import Autonomy, Runbook
from serving.fleet.fleet_file import FleetFile
from serving.yaml_file import FileError, read_strict

MAY_ACT = frozenset({Autonomy.APPROVE, Autonomy.AUTO})
DEFAULT_NAMESPACE = "default"


def of(settings: WardenSettings, fleet: FleetFile) -> Wanted:
    """All of it. Runbooks that cannot be read want nothing; own.files tells of those."""
    place, election = own_place(), settings.election
    lease = election.namespace or (place.namespace if place is not None else DEFAULT_NAMESPACE)
    policy = settings.policy_for(fleet)
    acting = [book for book in _runbooks(settings) if policy.granted(book, policy.cell) in MAY_ACT]
    return Wanted(
        # A step that takes another back needs the same family, so its verb need not be known here.
        verbs=frozenset(step.do for book in acting for step in (*book.steps, *book.rollback)),
        lease_namespace=lease if election.kind is ElectionKind.LEASE else None,
        place=place,
        sqlite=settings.journal.url is None and settings.journal.url_file is None,
        elects=election.kind is not ElectionKind.NONE,
    )


def _runbooks(settings: WardenSettings) -> Iterator[Runbook]:
    """The runbooks in force, by their files alone: rights are wanted for a verb whether it can be had here yet or not."""
    in_force: dict[str, Runbook] = {}
    for directory in (LIBRARY, *settings.runbooks):
        for path in runbook_files(directory) if directory.is_dir() else ():
            try:
                book = read_strict(path, Runbook)
            except FileError:
                continue
            in_force[book.cause] = book
    yield from in_force.values()
