"""How a fleet file becomes facts and typed relations of a Topology."""

from collections.abc import Iterator
from types import MappingProxyType
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from serving.fleet.entity import Entity, EntityKind
from serving.fleet.topology import EngineFacts, Relation

if TYPE_CHECKING:  # the fleet file imports this module
    from serving.fleet.fleet_file import EngineEntry, FleetFile

SCRAPE = Entity(EntityKind.TELEMETRY, "scrape")
PROMETHEUS = Entity(EntityKind.TELEMETRY, "prometheus")
OTLP = Entity(EntityKind.TELEMETRY, "otlp")
KUBERNETES = Entity(EntityKind.TELEMETRY, "kubernetes")

Edge = tuple[Entity, Relation, Entity]


def engine_facts(fleet: "FleetFile") -> Iterator[EngineFacts]:
    """One EngineFacts an engine, in the order of the file.

    Where a Prometheus is read and an engine gives no labels, it is looked for by `instance`, the host and port that
    Prometheus puts on a target by default.
    """
    for engine in fleet.engines:
        labels = dict(engine.labels)
        if not labels and fleet.telemetry.prometheus is not None:
            labels = {"instance": _address(engine.url)}
        yield EngineFacts(engine.name, engine.url, engine.model, engine.hardware, engine.role, MappingProxyType(labels))


def relations(fleet: "FleetFile") -> Iterator[Edge]:
    """Every relation of the file's parts, except engine SERVES model, which the Topology draws from the facts."""
    yield from _places(fleet)
    for engine in fleet.engines:
        yield from _engine(engine)
    yield from _gateway(fleet)
    for source in sources(fleet):
        yield from ((Entity.engine(engine.name), Relation.SCRAPED_BY, source) for engine in fleet.engines)


def sources(fleet: "FleetFile") -> tuple[Entity, ...]:
    """The telemetry sources that the file switches on, as entities."""
    telemetry = fleet.telemetry
    switched = (
        (SCRAPE, telemetry.scrape),
        (PROMETHEUS, telemetry.prometheus),
        (OTLP, telemetry.otlp),
        (KUBERNETES, fleet.kubernetes),
    )
    return tuple(source for source, settings in switched if settings is not None)


def _places(fleet: "FleetFile") -> Iterator[Edge]:
    cell = Entity(EntityKind.CELL, fleet.cell)
    for name in fleet.zones:
        yield Entity(EntityKind.ZONE, name), Relation.MEMBER_OF, cell
    for switch in fleet.switches:
        zone = Entity(EntityKind.ZONE, switch.zone) if switch.zone else cell
        yield Entity(EntityKind.SWITCH, switch.name), Relation.MEMBER_OF, zone
    for node in fleet.nodes:
        entity = Entity(EntityKind.NODE, node.name)
        yield entity, Relation.MEMBER_OF, Entity(EntityKind.ZONE, node.zone) if node.zone else cell
        if node.switch:
            yield entity, Relation.MEMBER_OF, Entity(EntityKind.SWITCH, node.switch)


def _engine(engine: "EngineEntry") -> Iterator[Edge]:
    entity = Entity.engine(engine.name)
    group = engine.group
    names = list(group.nodes) if group and group.nodes else [engine.node] if engine.node else []
    nodes = [Entity(EntityKind.NODE, name) for name in names]
    for node in nodes:
        yield entity, Relation.RUNS_ON, node
    for number in range(group.size if group else 0):
        rank = Entity(EntityKind.RANK, f"{engine.name}:{number}")
        yield rank, Relation.MEMBER_OF, entity
        if group and nodes:
            yield rank, Relation.RUNS_ON, nodes[number * len(nodes) // group.size]


def _gateway(fleet: "FleetFile") -> Iterator[Edge]:
    if fleet.gateway is None:
        return
    gateway = Entity(EntityKind.GATEWAY, fleet.gateway.name)
    yield gateway, Relation.MEMBER_OF, Entity(EntityKind.CELL, fleet.cell)
    for engine in fleet.engines:
        yield gateway, Relation.ROUTES_TO, Entity.engine(engine.name)
    if fleet.telemetry.scrape is not None:
        yield gateway, Relation.SCRAPED_BY, SCRAPE


def _address(url: str) -> str:
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"{host}:{port}"
