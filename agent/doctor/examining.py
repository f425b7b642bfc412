"""The examination put together: of a warden by its settings, of a fleet by its file, or of what stands at some URLs."""

from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit

from pydantic import SecretStr

from agent.checkup.mapping import from_places
from agent.checkup.places import METRICS, MetricsPlace, NoPlace, StorePlace, find_all
from agent.doctor import cluster, cluster_fleet, cluster_wants, door, engines, gpus, own, signals, sinks, store
from agent.doctor.cluster import Wanted
from agent.doctor.engines import Asked
from agent.doctor.findings import Check, ok, problem, warning
from agent.settings import WardenSettings
from serving.clock import Clock
from serving.fleet.fleet_file import FleetFile
from serving.fleet.topology import Topology
from serving.kubernetes.cluster_error import ClusterError
from serving.secret_file import read_secret
from serving.telemetry.registry import Registry
from serving.yaml_file import FileError


def of_warden(
    settings: WardenSettings, fleet: FleetFile, registry: Registry, clock: Clock, *, send: bool
) -> Iterator[Check]:
    """Everything about one warden and its fleet."""
    yield from own.versions()
    yield ok("own.settings", "settings", "are valid", state_dir=str(settings.state_dir))
    yield _fleet_valid(fleet, str(settings.fleet_file))
    yield from own.examine(settings, fleet, clock)
    if fleet.kubernetes is not None:
        yield from cluster.examine(fleet.kubernetes, cluster_wants.of(settings, fleet), clock)
    yield from _telemetry(fleet, registry, clock)
    yield from sinks.examine(settings.sinks, settings.cell_of(fleet), clock, send=send)


def of_fleet(fleet: FleetFile, name: str, registry: Registry, clock: Clock) -> Iterator[Check]:
    """Everything about one fleet file."""
    yield from own.versions()
    yield _fleet_valid(fleet, name)
    yield from own.secrets(fleet, None)
    yield from own.otlp(fleet, running=None)
    if fleet.kubernetes is not None:
        yield from cluster.examine(fleet.kubernetes, Wanted(), clock)
    yield from _telemetry(fleet, registry, clock)


def of_urls(urls: Sequence[str], registry: Registry, clock: Clock, token: SecretStr | None) -> Iterator[Check]:
    """Everything about what stands at some URLs: engines, a front door, a Prometheus."""
    yield from own.versions()
    places = find_all(dict.fromkeys(urls), registry, clock, token=token)
    for place in places:
        if isinstance(place, NoPlace):
            yield problem("url", place.url, place.says, place.todo, kind=str(place.kind))
        elif place.notes:
            yield ok("url", place.url, "; ".join(place.notes))
    metrics = [place for place in places if isinstance(place, MetricsPlace)]
    named = from_places(metrics).topology.engines
    own_places = [place for place in metrics if not place.is_door]
    asked = [Asked(engine.name, place.url.removesuffix(METRICS)) for engine, place in zip(named, own_places, strict=True)]
    yield from engines.examine(asked, registry, clock)
    doors = [place for place in metrics if place.is_door]
    for place in doors:
        yield ok("door.answers", urlsplit(place.url).netloc, "is a front door and answers its /metrics")
    if own_places and not doors:
        yield signals.without_door("door.signals", "front door", registry, "name its /metrics too, where there is one")
    for place in places:
        if isinstance(place, StorePlace):
            subject = urlsplit(place.url).netloc
            yield from store.examine(place.url, None, registry, clock, {}, token, subject=subject)


def _fleet_valid(fleet: FleetFile, name: str) -> Check:
    if fleet.kubernetes is not None:
        says = f"is valid: fleet {fleet.fleet}, the pods that {fleet.kubernetes.selector} selects"
        return ok("own.fleet", name, says, selector=fleet.kubernetes.selector)
    count = len(fleet.engines)
    models = sorted({engine.model for engine in fleet.engines})
    says = f"is valid: fleet {fleet.fleet}, {count} engine{'' if count == 1 else 's'}, serving {', '.join(models)}"
    return ok("own.fleet", name, says, engines=[engine.name for engine in fleet.engines])


def _telemetry(fleet: FleetFile, registry: Registry, clock: Clock) -> Iterator[Check]:
    """Engines, front door and Prometheus of a map."""
    topology = _topology(fleet, clock)
    if topology is None:
        says = "the engines' addresses could not be read from the cluster, so none of them is asked"
        yield problem("engines.map", "cluster", says, "see the lines about the cluster first")
        return
    if fleet.telemetry.scrape is None:
        says = "the warden does not scrape the engines itself; they are asked here all the same"
        yield warning(
            "engines.scrape", "telemetry", says, "leave telemetry.scrape on unless its port is closed to the warden"
        )
    facts = [topology.facts(engine) for engine in topology.engines]
    asked = [Asked.of(one) for one in facts if one.url]
    yield from engines.examine(asked, registry, clock)
    yield from door.examine(fleet.gateway, {one.name: one.url for one in asked}, registry, clock)
    entry = fleet.telemetry.prometheus
    if entry is None:
        return
    try:
        token = read_secret(entry.bearer_token_file) if entry.bearer_token_file else None
    except FileError as refused:
        yield problem("store.answers", "prometheus", str(refused), "write the bearer token into that file, on one line")
        return
    yield from store.examine(entry.url, topology, registry, clock, entry.match, token)
    if fleet.kubernetes is not None or any(engine.gpus for engine in fleet.engines):
        yield from gpus.examine(entry.url, registry, clock, entry.match, token)


def _topology(fleet: FleetFile, clock: Clock) -> Topology | None:
    """The map; None where it lies in a cluster that cannot be read."""
    if fleet.kubernetes is None:
        return fleet.topology()
    try:
        return cluster_fleet.topology_of(fleet, fleet.kubernetes, clock)
    except ClusterError:
        return None
