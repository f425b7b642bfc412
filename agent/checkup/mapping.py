"""The map of a fleet from nothing but the labels of its series: engines, their models and nodes, and the front door.

Hardware and role are only known where a label says so; without one, all engines of a model are taken for equals.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from urllib.parse import urlsplit

from agent.checkup.places import METRICS, MetricsPlace, NoPlace
from serving.fleet.entity import Entity, EntityKind
from serving.fleet.topology import EngineFacts, Relation, Topology

Labels = Mapping[str, str]

DOOR = Entity(EntityKind.GATEWAY, "door")
UNKNOWN = "unknown"

# Labels in use for the same thing, the surest first: Prometheus' own, the Kubernetes operators', common relabellings.
_NAMES = ("replica", "pod", "pod_name", "kubernetes_pod_name", "instance")
_NODES = ("node", "kubernetes_node", "node_name", "nodename", "exported_node", "hostname")
_HARDWARE = ("hardware", "gpu_type", "gpu_product", "accelerator", "instance_type", "node_type")
_ROLES = ("role", "kv_role", "engine_role")
# What can tell two engines of one Prometheus apart; the first combination that does so for all is used.
_IDENTITIES = (
    ("instance",),
    ("pod",),
    ("replica",),
    ("cluster", "instance"),
    ("namespace", "pod"),
    ("cluster", "namespace", "pod"),
    ("cluster", "namespace", "pod", "replica", "instance"),
)


@dataclass(frozen=True, slots=True, eq=False)
class Mapped:
    """A map, and how to find its parts again: metrics by engine name, the front door's base URL. `notes` are for people."""

    topology: Topology
    metrics_urls: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    door_url: str | None = None
    has_door: bool = False
    notes: tuple[str, ...] = ()
    clues: frozenset[str] = field(default_factory=frozenset)
    """Of `hardware` and `role`, those that some label told."""


def from_places(places: Sequence[MetricsPlace], absent: Sequence[NoPlace] = ()) -> Mapped:
    """The map of engines that are scraped directly. `absent` may be engines too: they are on the map, and unread so far."""
    engines = [place for place in places if not place.is_door]
    asked: list[MetricsPlace | NoPlace] = [*engines, *absent]
    doors = [place for place in places if place.is_door]
    replicas = {labels["replica"] for door in doors for labels in _all_labels(door) if "replica" in labels}
    names = _unique([_name_of_place(place, replicas) for place in asked])
    models = [_model(_all_labels(place)) for place in engines]
    known = set(models)
    models += [next(iter(known)) if len(known) == 1 else UNKNOWN for _ in absent]
    facts = [
        EngineFacts(name, place.url.removesuffix(METRICS), model)
        for name, place, model in zip(names, asked, models, strict=True)
    ]
    notes: list[str] = []
    usable = [door for door in doors if door.url.endswith(METRICS)]
    if len(usable) > 1:
        notes.append(f"several front doors were named; {usable[0].url} is used, the others are left out")
    if usable and not replicas & set(names):
        strangers = ", ".join(sorted(replicas)) or "none yet"
        notes.append(
            f"the front door speaks of other engines ({strangers}): name them as it does, as in NAME=http://HOST:8000/metrics"
        )
    known_door = bool(usable and replicas & set(names))
    door = usable[0].url.removesuffix(METRICS) if known_door else None
    urls = {name: place.url for name, place in zip(names, asked, strict=True)}
    return Mapped(_topology(facts, has_door=known_door), urls, door, known_door, tuple(notes))


def from_labels(series: Iterable[Labels]) -> Mapped:
    """The map of the engines that the series of a Prometheus are about. Raises ValueError when there is none."""
    everything = list(series)
    own = [labels for labels in everything if labels.get("__name__", "").startswith("vllm:")]
    if not own:
        raise ValueError("has no series of a vLLM engine (vllm:...) in that time")
    jobs = {labels.get("job", "") for labels in own} - {""}
    identity = _telling(own)
    grouped: dict[tuple[str, ...], list[Labels]] = {}
    for labels in own:
        grouped.setdefault(_told(labels, identity), []).append(labels)
    for labels in everything:  # targets beside the engines' that have been down all the time
        key = _told(labels, identity)
        if labels.get("__name__") == "up" and labels.get("job") in jobs and all(key) and key not in grouped:
            grouped[key] = [labels]
    replicas = {
        labels["replica"] for labels in everything if labels.get("__name__", "").startswith("door:") and "replica" in labels
    }
    names = _unique([_name_of_labels(group[0], replicas) for group in grouped.values()])
    facts, relations = [], []
    models = [_model(group) for group in grouped.values()]
    only = next(iter(set(models) - {UNKNOWN})) if len(set(models) - {UNKNOWN}) == 1 else UNKNOWN
    for name, key, group, model in zip(names, grouped, grouped.values(), models, strict=True):
        told = dict(zip(identity, key, strict=True))
        url = f"http://{group[0].get('instance') or name}"
        hardware, role = _first(group[0], _HARDWARE) or UNKNOWN, _first(group[0], _ROLES) or "serve"
        labels = MappingProxyType({label: value for label, value in told.items() if value})
        facts.append(EngineFacts(name, url, only if model == UNKNOWN else model, hardware, role, labels))
        node = _first(group[0], _NODES)
        if node:
            relations.append((Entity.engine(name), Relation.RUNS_ON, Entity(EntityKind.NODE, node)))
    notes = []
    has_door = bool(replicas & set(names))
    if replicas and not has_door:
        strangers = ", ".join(sorted(replicas))
        notes.append(
            f"a front door is there, but no label has the names it gives its engines ({strangers}): it is left out. "
            "Put them on the engines' targets as a label `replica`"
        )
    if not any(value for key in grouped for value in key):
        notes.append("no label (instance, pod, replica) tells engines apart: all series are taken as one engine's")
    clues = {clue for clue, labels in (("hardware", _HARDWARE), ("role", _ROLES)) if any(_first(one, labels) for one in own)}
    return Mapped(
        _topology(facts, relations, has_door=has_door), has_door=has_door, notes=tuple(notes), clues=frozenset(clues)
    )


def _topology(
    facts: Sequence[EngineFacts], relations: Sequence[tuple[Entity, Relation, Entity]] = (), *, has_door: bool
) -> Topology:
    routes = [(DOOR, Relation.ROUTES_TO, Entity.engine(fact.name)) for fact in facts] if has_door else []
    return Topology(facts, [*relations, *routes])


def _all_labels(place: MetricsPlace) -> Iterable[Labels]:
    return (labels for series in place.samples.values() for labels, _ in series)


def _model(labels: Iterable[Labels]) -> str:
    """The model that most of the series name; several only where one API serves adapters under names of their own."""
    counted = Counter(one["model_name"] for one in labels if one.get("model_name"))
    return counted.most_common(1)[0][0] if counted else UNKNOWN


def _name_of_place(place: MetricsPlace | NoPlace, replicas: set[str]) -> str:
    if place.name:
        return place.name
    parts = urlsplit(place.url)
    host = (parts.hostname or "").partition(".")[0]
    if host in replicas:
        return host
    path = parts.path.removesuffix(METRICS)
    return f"{parts.netloc}{path}"


def _name_of_labels(labels: Labels, replicas: set[str]) -> str:
    given = [labels[name] for name in _NAMES if labels.get(name)]
    return next((name for name in given if name in replicas), given[0] if given else labels.get("model_name", UNKNOWN))


def _unique(names: Sequence[str]) -> list[str]:
    """The names, with a number behind those that came before."""
    seen: Counter[str] = Counter()
    unique = []
    for name in names:
        seen[name] += 1
        unique.append(name if seen[name] == 1 else f"{name}#{seen[name]}")
    return unique


def _told(labels: Labels, names: Iterable[str]) -> tuple[str, ...]:
    return tuple(labels.get(name, "") for name in names)


def _telling(series: Sequence[Labels]) -> tuple[str, ...]:
    """The fewest labels that every series has and that tell all of them apart as well as all labels together."""
    wanted = len({_told(labels, _IDENTITIES[-1]) for labels in series})
    for names in _IDENTITIES:
        told = {_told(labels, names) for labels in series}
        if len(told) == wanted and all(all(values) for values in told):
            return names
    return _IDENTITIES[-1]


def _first(labels: Labels, names: Iterable[str]) -> str:
    return next((labels[name] for name in names if labels.get(name)), "")
