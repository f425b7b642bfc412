"""What one warden's settings want of its cluster: which verbs may be used there, and where its Lease lies."""

from agent.diagnosis.catalogue import load_catalogue
from agent.doctor.cluster import Wanted
from agent.doctor.cluster_self import own_place
from agent.election.settings import ElectionKind
from agent.settings import WardenSettings
from agent.wiring import load_runbooks, make_actuators
from runbooks.runbook import Autonomy, Runbook
from serving.clock import Clock
from serving.engines.local import LocalEngines
from serving.fleet.fleet_file import FleetFile
from serving.yaml_file import FileError

MAY_ACT = frozenset({Autonomy.APPROVE, Autonomy.AUTO})
DEFAULT_NAMESPACE = "default"


def of(settings: WardenSettings, fleet: FleetFile, clock: Clock) -> Wanted:
    """Nothing of runbooks where they cannot be read, which own.files tells."""
    place, election = own_place(), settings.election
    lease = election.namespace or (place.namespace if place is not None else DEFAULT_NAMESPACE)
    return Wanted(
        verbs=_verbs(settings, fleet, clock),
        lease_namespace=lease if election.kind is ElectionKind.LEASE else None,
        place=place,
        sqlite=settings.journal.url is None and settings.journal.url_file is None,
        elects=election.kind is not ElectionKind.NONE,
    )


def _verbs(settings: WardenSettings, fleet: FleetFile, clock: Clock) -> frozenset[str]:
    policy = settings.policy_for(fleet)
    try:
        actuators = make_actuators(fleet, fleet.topology(), LocalEngines(settings.state_dir, clock), clock, dry=True)
        library = load_runbooks(settings, actuators, load_catalogue())
    except FileError:
        return frozenset()
    acting = [book for book in library.runbooks if policy.granted(book, policy.cell) in MAY_ACT]
    return frozenset(verb for book in acting for verb in _used(book))


def _used(book: Runbook) -> set[str]:
    """Verbs of its steps and of what takes them back."""
    return {step.do for step in (*book.steps, *book.rollback)}
