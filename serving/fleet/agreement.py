"""Whether the parts of a fleet file agree with each other: the checks that no single field can make."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:  # the fleet file calls these checks while it is built
    from serving.fleet.fleet_file import EngineEntry, FleetFile

NAMES_SHOWN = 12


class Mistake(NamedTuple):
    """What is wrong, and where in the file: keys and list positions from the top."""

    where: tuple[str | int, ...]
    what: str
    value: object


def mistakes(fleet: "FleetFile") -> Iterator[Mistake]:
    """Everything on which `fleet` contradicts itself."""
    yield from _declared(fleet)
    yield from _twice("zones", fleet.zones)
    for part, entries in (
        ("switches", fleet.switches),
        ("nodes", fleet.nodes),
        ("engines", fleet.engines),
        ("models", fleet.models),
    ):
        yield from _twice(part, [entry.name for entry in entries], "name")
    yield from _unknown_places(fleet)
    yield from _engine_addresses(fleet)
    yield from _extra_metrics(fleet)
    yield from _groups(fleet)
    yield from _budgets(fleet)
    yield from _gateway(fleet)
    yield from _telemetry(fleet)


def _declared(fleet: "FleetFile") -> Iterator[Mistake]:
    """The fleet is listed here, or found in a cluster, and never both."""
    if fleet.kubernetes is None:
        if not fleet.engines:
            yield Mistake(("engines",), "lists none: list the engines, or say with `kubernetes` which pods they are", [])
        return
    for part in ("zones", "switches", "nodes", "engines"):
        if getattr(fleet, part):
            what = "is given beside `kubernetes`: the cluster tells it, so leave out one of the two"
            yield Mistake((part,), what, getattr(fleet, part))


def _twice(part: str, names: Sequence[str], field: str | None = None) -> Iterator[Mistake]:
    first: dict[str, int] = {}
    for position, name in enumerate(names):
        if first.setdefault(name, position) != position:
            where = (part, position) if field is None else (part, position, field)
            yield Mistake(where, f"is already the name of {part}[{first[name]}]: names must differ", name)


def _unknown(where: tuple[str | int, ...], name: str | None, known: Iterable[str], part: str) -> Iterator[Mistake]:
    names = sorted(set(known))
    if name is not None and name not in names:
        more = ", ..." if len(names) > NAMES_SHOWN else ""
        listed = f"known: {', '.join(names[:NAMES_SHOWN])}{more}" if names else f"`{part}` lists none"
        yield Mistake(where, f"is not among `{part}`; {listed}", name)


def _extra_metrics(fleet: "FleetFile") -> Iterator[Mistake]:
    first: dict[str, str] = {}
    for position, engine in enumerate(fleet.engines):
        for number, url in enumerate(engine.extra_metrics):
            if url in first:
                where = ("engines", position, "extra_metrics", number)
                yield Mistake(where, f"is named by engine {first[url]} already: a worker's port belongs to one engine", url)
            first.setdefault(url, engine.name)


def _unknown_places(fleet: "FleetFile") -> Iterator[Mistake]:
    switches, nodes = [s.name for s in fleet.switches], [n.name for n in fleet.nodes]
    for position, switch in enumerate(fleet.switches):
        yield from _unknown(("switches", position, "zone"), switch.zone, fleet.zones, "zones")
    for position, node in enumerate(fleet.nodes):
        yield from _unknown(("nodes", position, "zone"), node.zone, fleet.zones, "zones")
        yield from _unknown(("nodes", position, "switch"), node.switch, switches, "switches")
    for position, engine in enumerate(fleet.engines):
        yield from _unknown(("engines", position, "node"), engine.node, nodes, "nodes")
        for index, name in enumerate(engine.group.nodes if engine.group else ()):
            yield from _unknown(("engines", position, "group", "nodes", index), name, nodes, "nodes")


def _engine_addresses(fleet: "FleetFile") -> Iterator[Mistake]:
    addresses: dict[str, int] = {}
    labels: dict[frozenset[tuple[str, str]], int] = {}
    for position, engine in enumerate(fleet.engines):
        first = addresses.setdefault(engine.url.lower(), position)
        if first != position:
            what = f"is already the address of {fleet.engines[first].name}: each engine has its own"
            yield Mistake(("engines", position, "url"), what, engine.url)
        first = labels.setdefault(frozenset(engine.labels.items()), position) if engine.labels else position
        if first != position:
            what = f"are the same as those of {fleet.engines[first].name}: Prometheus could not tell the two apart"
            yield Mistake(("engines", position, "labels"), what, engine.labels)


def _groups(fleet: "FleetFile") -> Iterator[Mistake]:
    for position, engine in enumerate(fleet.engines):
        if engine.group is not None:
            yield from _group(position, engine)


def _group(position: int, engine: "EngineEntry") -> Iterator[Mistake]:
    group = engine.group
    assert group is not None  # noqa: S101 - the caller picks engines with a group
    where = ("engines", position, "group")
    if group.nodes and group.size % len(group.nodes):
        what = f"has {len(group.nodes)} machines for tp * pp = {group.size} ranks: they cannot be spread evenly"
        yield Mistake((*where, "nodes"), what, group.nodes)
    if len(set(group.nodes)) < len(group.nodes):
        yield Mistake((*where, "nodes"), "names a machine twice", group.nodes)
    if group.nodes and engine.node is not None and engine.node not in group.nodes:
        yield Mistake((*where, "nodes"), f"leaves out {engine.node}, the engine's `node`", group.nodes)
    if engine.gpus and engine.gpus < group.size:
        what = f"is less than the {group.size} ranks that tp * pp makes: each rank has a GPU of its own"
        yield Mistake(("engines", position, "gpus"), what, engine.gpus)


def _budgets(fleet: "FleetFile") -> Iterator[Mistake]:
    served = [engine.model for engine in fleet.engines]
    for position, model in enumerate(fleet.models):
        count = served.count(model.name)
        if fleet.kubernetes is not None:
            continue  # who serves it is known to the cluster only
        if not count:
            yield from _unknown(("models", position, "name"), model.name, served, "engines")
        elif model.min_healthy is not None and model.min_healthy > count:
            what = f"is more than the {count} engines that serve {model.name}: no repair would ever be allowed"
            yield Mistake(("models", position, "min_healthy"), what, model.min_healthy)


def _gateway(fleet: "FleetFile") -> Iterator[Mistake]:
    gateway = fleet.gateway
    if gateway is None:
        return
    for field in ("url", "admin_url"):
        url = getattr(gateway, field)
        owner = next((engine.name for engine in fleet.engines if url and engine.url.lower() == url.lower()), None)
        if owner is not None:
            yield Mistake(("gateway", field), f"is the address of engine {owner}: the front door has its own", url)
    if gateway.admin_url is not None and gateway.admin_url == gateway.url:
        yield Mistake(
            ("gateway", "admin_url"),
            "is the same as `url`: the admin routes have a listener of their own",
            gateway.admin_url,
        )
    if gateway.admin_token_file is not None and gateway.admin_url is None:
        yield Mistake(("gateway", "admin_token_file"), "is given without `admin_url`, so nothing would use it", None)


def _telemetry(fleet: "FleetFile") -> Iterator[Mistake]:
    telemetry = fleet.telemetry
    if telemetry.scrape is None and telemetry.prometheus is None:
        yield Mistake(("telemetry",), "has neither `scrape` nor `prometheus`: the warden would see nothing", None)
