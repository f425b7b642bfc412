"""Wiring: a warden made from its settings. Every part is chosen here and nowhere else."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING

import structlog

from actuators.action import Actuator
from actuators.door import DoorActuator
from actuators.dry_run import DryRun
from actuators.engine_http import EngineHttpActuator
from actuators.process import ProcessActuator
from actuators.registry import ActuatorRegistry
from agent.act import Executor
from agent.cluster_names import KeptNames
from agent.diagnosis.catalogue import Catalogue, load_catalogue
from agent.diagnosis.rank import diagnose
from agent.election.always import AlwaysLeader
from agent.election.choice import elector_of
from agent.election.mandate import Elector, term_for
from agent.election.office import Office
from agent.hands import Hands
from agent.incident import Incident
from agent.journal.port import Journal
from agent.journal.stored import open_journal
from agent.loop import Loop, Minds
from agent.maps import Maps, maps_of
from agent.observe import Observer
from agent.own_http import Health, OwnHttp
from agent.own_metrics import OwnMetrics
from agent.report.dispatcher import Dispatcher
from agent.report.sinks import make_sinks
from agent.runner import Pace, Runner
from agent.settings import WardenSettings
from detectors.catalogue import detect_all
from detectors.parameters import load_parameters
from runbooks.loader import RunbookLibrary, load_library
from serving.clock import Clock
from serving.engines.local import LocalEngines
from serving.fleet.fleet_file import FleetFile
from serving.fleet.kubernetes_entry import KubernetesEntry
from serving.secret_file import read_secret
from serving.telemetry.history import History
from serving.telemetry.otlp import OtlpSource
from serving.telemetry.prometheus import PrometheusSource
from serving.telemetry.reading import Source
from serving.telemetry.registry import Registry, load_registry
from serving.telemetry.scrape import ScrapeLimits, ScrapeSource

if TYPE_CHECKING:  # the extra `kubernetes`, wanted only for a fleet that lies in a cluster
    from serving.kubernetes.opening import Cluster


@dataclass(frozen=True, slots=True)
class Warden:
    """One warden, put together and not yet running. `port` is where its own HTTP listens, `maps` what it goes by."""

    runner: Runner
    port: int
    maps: Maps


def make_actuators(
    fleet: FleetFile, maps: Maps, engines: LocalEngines, clock: Clock, elector: Elector | None = None, *, dry: bool
) -> Actuator:
    """Every family of verbs that this fleet can have. Without an admin URL of a front door there are no door verbs."""
    families: list[Actuator] = [EngineHttpActuator(maps.facts)]
    gateway, door = fleet.gateway, None
    if gateway is not None and gateway.admin_url is not None:
        token = read_secret(gateway.admin_token_file).get_secret_value() if gateway.admin_token_file else None
        door = DoorActuator(gateway.admin_url, token, called=maps.at_door)
        families.append(door)
    if fleet.kubernetes is None:
        families.append(ProcessActuator(engines, clock))
    elif maps.cluster is not None:
        families += _in_cluster(fleet.kubernetes, maps.cluster, door, clock, elector or AlwaysLeader())
    everything = ActuatorRegistry(families)
    return DryRun(everything) if dry else everything


def _in_cluster(
    entry: KubernetesEntry, cluster: "Cluster", door: DoorActuator | None, clock: Clock, elector: Elector
) -> Iterator[Actuator]:
    """The families that change a cluster, each write of which asks whether this warden still leads."""
    from actuators.kubernetes.access import Access  # noqa: PLC0415 - the extra `kubernetes`, wanted only here
    from actuators.kubernetes.emptying import EmptyingActuator  # noqa: PLC0415 - same
    from actuators.kubernetes.nodes import NodesActuator  # noqa: PLC0415 - same
    from actuators.kubernetes.pods import PodsActuator  # noqa: PLC0415 - same
    from actuators.kubernetes.rollouts import RolloutsActuator  # noqa: PLC0415 - same
    from actuators.kubernetes.scaling import ScalingActuator  # noqa: PLC0415 - same

    def permit(seconds: float) -> int | None:
        return term_for(elector, clock.monotonic(), seconds)

    access = Access(cluster.client, cluster.view.map, clock, tuple(entry.namespaces), permit)
    yield from (PodsActuator(access), NodesActuator(access), EmptyingActuator(access, door))
    yield from (RolloutsActuator(access), ScalingActuator(access))


def make_sources(fleet: FleetFile, registry: Registry, clock: Clock, maps: Maps) -> tuple[Source, ...]:
    """The sources that the fleet file names, the surest first."""
    telemetry, door = fleet.telemetry, fleet.gateway.url if fleet.gateway else None
    sources: list[Source] = []
    if telemetry.scrape is not None:
        more = {engine.name: tuple(engine.extra_metrics) for engine in fleet.engines if engine.extra_metrics}
        limits = ScrapeLimits(timeout=telemetry.scrape.timeout)
        sources.append(ScrapeSource(clock, registry, door, limits=limits, extra_urls=more))
    if telemetry.prometheus is not None:
        store = telemetry.prometheus
        token = read_secret(store.bearer_token_file) if store.bearer_token_file else None
        sources.append(
            PrometheusSource(clock, registry, store.url, match=store.match, bearer_token=token, timeout=store.timeout)
        )
    if telemetry.otlp is not None:
        sources.append(OtlpSource(telemetry.otlp.host, telemetry.otlp.port))
    return (*sources, *maps.sources)


def load_runbooks(settings: WardenSettings, actuators: Actuator, catalogue: Catalogue) -> RunbookLibrary:
    """The shipped runbooks and those of the settings' directories, bound to the verbs at hand. Raises FileError."""
    causes = {form.cause for form in catalogue.causes if form.incident}
    return load_library(actuators.verbs, causes, settings.runbooks)


def make_minds(settings: WardenSettings, fleet: FleetFile | None, actuators: Actuator) -> Minds:
    """The judgements, with the files that steer them, and the fleet file's budgets. Raises FileError with every mistake."""
    parameters, catalogue = load_parameters(settings.detectors), load_catalogue()
    library = load_runbooks(settings, actuators, catalogue)
    return Minds(
        detect=lambda window: detect_all(window, parameters),
        diagnose=lambda window, found, repairs: diagnose(window, found.findings, catalogue, repairs),
        runbooks={book.cause: book for book in library.runbooks},
        policy=settings.policy_for(fleet) if fleet is not None else settings.policy,
        out_of_reach=library.out_of_reach,
    )


@contextmanager
def warden(settings: WardenSettings, clock: Clock) -> Iterator[Warden]:
    """All parts of one warden, opened in order and closed in the opposite one.

    Raises FileError, JournalError or OwnHttpError, each with what to do.
    """
    fleet = FleetFile.read(settings.fleet_file)
    settings.state_dir.mkdir(parents=True, exist_ok=True)
    version = metadata.version("fleetwarden")
    with ExitStack() as closing:
        url = settings.journal_url().get_secret_value()
        journal = open_journal(url)
        closing.callback(journal.close)
        metrics, health = OwnMetrics(version), Health(settings.loop.interval, clock)
        elector = closing.enter_context(elector_of(settings.election, journal, url, clock))
        office = Office(elector, journal, f"warden {version} started over fleet {fleet.fleet}")
        maps = closing.enter_context(maps_of(fleet, settings.fleet_file, clock, KeptNames(journal, office.holds)))
        actuators = make_actuators(
            fleet, maps, LocalEngines(settings.state_dir, clock), clock, elector, dry=settings.dry_run
        )
        minds = make_minds(settings, fleet, actuators)
        if minds.out_of_reach:
            log = structlog.get_logger("fleetwarden.runbooks")
            log.info("some runbooks cannot be followed here; their causes are for people", missing=minds.out_of_reach)
        http = OwnHttp(metrics, health, settings.http.host, settings.http.port, office.standing)
        port = http.start()
        closing.callback(http.stop)
        observer = _observer(settings, fleet, maps, clock)
        closing.callback(observer.close)
        dispatcher = _dispatcher(settings, fleet, journal, minds, metrics, office, clock)
        dispatcher.start()
        closing.callback(dispatcher.stop)
        office.enter(clock.now())
        hands = Hands(Executor(journal, actuators, clock, elector=elector))
        closing.callback(hands.close)
        loop = Loop(observer, minds, journal, actuators, hands, clock, maps.opted_out)
        pace = Pace(settings.loop.interval, settings.state_dir)
        names = (fleet.fleet, "dry run" if settings.dry_run else str(settings.policy.autonomy))
        yield Warden(Runner(loop, maps.topology, journal, metrics, health, office, clock, pace, names), port, maps)


def _observer(settings: WardenSettings, fleet: FleetFile, maps: Maps, clock: Clock) -> Observer:
    ticks = int(settings.loop.history / settings.loop.interval) + 2
    history = History(maps.topology(), settings.loop.history, ticks)
    return Observer(make_sources(fleet, load_registry(), clock, maps), history, settings.loop.observe_deadline)


def _dispatcher(
    settings: WardenSettings,
    fleet: FleetFile,
    journal: Journal,
    minds: Minds,
    metrics: OwnMetrics,
    office: Office,
    clock: Clock,
) -> Dispatcher:
    def advise(incident: Incident) -> str:
        runbook = minds.runbooks.get(incident.cause)
        return runbook.escalate if runbook else ""

    sinks = make_sinks(settings.sinks, settings.cell_of(fleet), clock)
    return Dispatcher(journal, sinks, clock, metrics.notified, advise, office.holds)
