"""From the objects of a cluster to its map: pure, so that the same objects always make the same map.

Nodes are those that bear GPUs and those that bear engines. What stands in for a switch on the map is named after what it
is: `switch:`, `rack:` or `nvlink:` and the value of the label.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from serving.fleet import relations
from serving.fleet.entity import Entity, EntityKind
from serving.fleet.fleet_file import FleetFile
from serving.fleet.kubernetes_entry import KubernetesEntry
from serving.fleet.topology import EngineFacts, Relation, Topology
from serving.kubernetes.cluster_map import ClusterMap, PodRef, WorkloadRef, nothing
from serving.kubernetes.decoding import INSTANCE_TYPE
from serving.kubernetes.naming import Member, Roster, roster
from serving.kubernetes.objects import Meta, NodeObject, PodObject, WorkloadObject

Edge = tuple[Entity, Relation, Entity]
UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Objects:
    """The objects that a map is made of, by uid (namespaces by name). `workloads`: what says how many pods it wants.

    `revisions`: ControllerRevisions.
    """

    nodes: Mapping[str, NodeObject] = field(default_factory=nothing)
    pods: Mapping[str, PodObject] = field(default_factory=nothing)
    replica_sets: Mapping[str, WorkloadObject] = field(default_factory=nothing)
    workloads: Mapping[str, WorkloadObject] = field(default_factory=nothing)
    revisions: Mapping[str, WorkloadObject] = field(default_factory=nothing)
    namespaces: Mapping[str, Meta] = field(default_factory=nothing)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What of the fleet does not lie in the cluster's objects: its cell, its front door, and who measures it."""

    cell: str = "local"
    gateway: str | None = None
    sources: tuple[Entity, ...] = ()
    door_sources: tuple[Entity, ...] = ()

    @classmethod
    def of(cls, fleet: FleetFile) -> "Surroundings":
        """What a fleet file says of it."""
        return cls(
            fleet.cell,
            fleet.gateway.name if fleet.gateway else None,
            relations.sources(fleet),
            (relations.SCRAPE,) if fleet.telemetry.scrape is not None else (),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Mapped:
    """A map, the engines it was made of, and the slot numbers to remember."""

    map: ClusterMap
    roster: Roster


def mapped(
    objects: Objects,
    entry: KubernetesEntry,
    around: Surroundings,
    remembered: Mapping[str, int],
    at: float,
) -> Mapped:
    """The map of the fleet that `entry` declares, at `at`."""
    found = roster(objects.pods.values(), objects.replica_sets, objects.workloads, remembered)
    nodes = _nodes(objects, found)
    by_name = {node.meta.name: node for node in nodes}
    facts = [_facts(one, entry, by_name, objects.workloads) for one in found.members]
    edges = (
        *_places(nodes, entry, around.cell),
        *(edge for one in found.members for edge in _engine(one, objects.workloads)),
        *_watched(found.members, around),
    )
    models = {fact.name: fact.model for fact in facts}
    return Mapped(
        ClusterMap(
            topology=Topology(facts, edges),
            at=at,
            engines=MappingProxyType({one.name: _pod_ref(one) for one in found.members if one.pod is not None}),
            nodes=tuple(by_name),
            workloads=_workloads(found.members, models, objects.workloads),
            opted_out=frozenset(_opted_out(found.members, nodes, objects)),
        ),
        found,
    )


def _nodes(objects: Objects, found: Roster) -> list[NodeObject]:
    used = {pod.node for one in found.members if one.pod for pod in (one.pod, *one.workers)}
    nodes = (node for node in objects.nodes.values() if node.gpus_capacity > 0 or node.meta.name in used)
    return sorted(nodes, key=lambda node: node.meta.name)


def _facts(
    one: Member,
    entry: KubernetesEntry,
    nodes: Mapping[str, NodeObject],
    workloads: Mapping[str, WorkloadObject],
) -> EngineFacts:
    pod = _shape(one, workloads)
    labels = pod.labels if pod else {}
    model = labels.get(entry.model_label or "") or (pod.launch.model if pod else "")
    node = nodes.get(one.pod.node) if one.pod else None
    hardware = (node.labels.get(entry.hardware_label) or node.labels.get(INSTANCE_TYPE)) if node else None
    own = {"namespace": one.namespace, "pod": one.pod.meta.name} if one.pod else {}
    return EngineFacts(
        name=one.name,
        url=_url(one.pod, entry.scheme),
        model=model or (one.owner.name if one.owner else one.name),
        hardware=hardware or UNKNOWN,
        role=labels.get(entry.role_label) or "serve",
        labels=MappingProxyType(own),
    )


def _shape(one: Member, workloads: Mapping[str, WorkloadObject]) -> PodObject | None:
    """The engine's pod; while it has none, a pod as its workload would make it."""
    if one.pod is not None or one.owner is None:
        return one.pod
    workload = workloads.get(one.owner.uid)
    return workload.template if workload else None


def _url(pod: PodObject | None, scheme: str) -> str:
    if pod is None or not pod.ip:
        return ""
    host = f"[{pod.ip}]" if ":" in pod.ip else pod.ip
    return f"{scheme}://{host}:{pod.launch.port}"


def _places(nodes: Iterable[NodeObject], entry: KubernetesEntry, cell_name: str) -> Iterator[Edge]:
    cell = Entity(EntityKind.CELL, cell_name)
    shared = (("rack", entry.rack_labels), ("switch", entry.switch_labels), ("nvlink", entry.nvlink_labels))
    known: set[Entity] = set()
    for node in nodes:
        entity = Entity(EntityKind.NODE, node.meta.name)
        zone = node.labels.get(entry.zone_label)
        around = Entity(EntityKind.ZONE, zone) if zone else cell
        if zone and around not in known:
            known.add(around)
            yield around, Relation.MEMBER_OF, cell
        yield entity, Relation.MEMBER_OF, around
        for what, keys in shared:
            value = next((node.labels[key] for key in keys if node.labels.get(key)), None)
            if value is None:
                continue
            switch = Entity(EntityKind.SWITCH, f"{what}:{value}")
            if switch not in known:
                known.add(switch)
                yield switch, Relation.MEMBER_OF, around
            yield entity, Relation.MEMBER_OF, switch


def _engine(one: Member, workloads: Mapping[str, WorkloadObject]) -> Iterator[Edge]:
    entity = Entity.engine(one.name)
    pods = (one.pod, *one.workers) if one.pod else ()
    nodes = [Entity(EntityKind.NODE, name) for name in dict.fromkeys(pod.node for pod in pods if pod.node)]
    for node in nodes:
        yield entity, Relation.RUNS_ON, node
    shape = _shape(one, workloads)
    ranks = shape.launch.tp * shape.launch.pp if shape else 1
    if ranks == 1 or (nodes and ranks % len(nodes)):
        return
    for number in range(ranks):
        rank = Entity(EntityKind.RANK, f"{one.name}:{number}")
        yield rank, Relation.MEMBER_OF, entity
        if nodes:
            yield rank, Relation.RUNS_ON, nodes[number * len(nodes) // ranks]


def _watched(members: Iterable[Member], around: Surroundings) -> Iterator[Edge]:
    engines = [Entity.engine(one.name) for one in members]
    for source in around.sources:
        yield from ((engine, Relation.SCRAPED_BY, source) for engine in engines)
    if around.gateway is not None:
        gateway = Entity(EntityKind.GATEWAY, around.gateway)
        yield gateway, Relation.MEMBER_OF, Entity(EntityKind.CELL, around.cell)
        yield from ((gateway, Relation.ROUTES_TO, engine) for engine in engines)
        yield from ((gateway, Relation.SCRAPED_BY, source) for source in around.door_sources)


def _pod_ref(one: Member) -> PodRef:
    assert one.pod is not None  # noqa: S101 - the caller picks engines with a pod
    workers = tuple(_ref(pod, one, ()) for pod in one.workers)
    return _ref(one.pod, one, workers)


def _ref(pod: PodObject, one: Member, workers: tuple[PodRef, ...]) -> PodRef:
    return PodRef(
        namespace=pod.meta.namespace,
        name=pod.meta.name,
        uid=pod.meta.uid,
        node=pod.node,
        gpus=pod.gpus,
        owner=one.owner,
        ready=pod.ready,
        ending=pod.meta.ending,
        workers=workers,
    )


def _workloads(
    members: Iterable[Member], models: Mapping[str, str], workloads: Mapping[str, WorkloadObject]
) -> Mapping[str, tuple[WorkloadRef, ...]]:
    found: dict[str, dict[str, WorkloadRef]] = {}
    for one in members:
        owner = one.owner
        if owner is None or owner.uid in found.setdefault(models[one.name], {}):
            continue
        known = workloads.get(owner.uid)
        found[models[one.name]][owner.uid] = WorkloadRef(
            namespace=one.namespace,
            owner_kind=owner.kind,
            name=owner.name,
            uid=owner.uid,
            api=owner.api,
            replicas=known.replicas if known else None,
            owner=known.meta.owner if known else None,
        )
    return MappingProxyType({model: tuple(by_uid.values()) for model, by_uid in found.items() if by_uid})


def _opted_out(members: Iterable[Member], nodes: Iterable[NodeObject], objects: Objects) -> Iterator[Entity]:
    """Nodes that bear the mark, and engines that bear it themselves, by a pod, their workload or their namespace."""
    yield from (Entity(EntityKind.NODE, node.meta.name) for node in nodes if node.meta.opted_out)
    spaces = {name for name, space in objects.namespaces.items() if space.opted_out}
    for one in members:
        workload = objects.workloads.get(one.owner.uid) if one.owner else None
        pods = (one.pod, *one.workers) if one.pod else ()
        marked = one.namespace in spaces or (workload is not None and workload.meta.opted_out)
        if marked or any(pod.meta.opted_out for pod in pods):
            yield Entity.engine(one.name)
