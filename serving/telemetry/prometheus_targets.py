"""From the series of a Prometheus to the engines of the map: whose series is it, and is it there twice.

A target is what a Prometheus scrapes, known by `job` and `instance`. An engine is found by the labels that the map gives
it, else by the host and port of its URL, else by its name as `pod` or `replica`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from serving.fleet.topology import EngineFacts, Topology
from serving.telemetry.exposition import Samples

Labels = Mapping[str, str]
_Own = tuple[str, frozenset[tuple[str, str]]]

_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True, order=True)
class TargetKey:
    """One scraped target."""

    job: str
    instance: str

    @classmethod
    def of(cls, labels: Labels) -> "TargetKey":
        """The target that a series came from."""
        return cls(labels.get("job", ""), labels.get("instance", ""))


@dataclass(slots=True)
class TargetSeries:
    """What one target says of one engine. `labels` are the target's own; `sampled_at` is NaN where no one says."""

    key: TargetKey
    labels: Labels
    sampled_at: float
    up: float
    samples: Samples = field(default_factory=dict)


class EngineFinder:
    """Finds the row of the engine that a series is about."""

    def __init__(self, topology: Topology) -> None:
        self._by_labels: dict[tuple[str, ...], dict[tuple[str, ...], int]] = {}
        self._by_instance: dict[str, int] = {}
        self._by_name = topology.row_of
        self._by_replica = topology.row_of_replica
        for row, engine in enumerate(topology.engines):
            facts = topology.facts(engine)
            if facts.labels:
                names = tuple(sorted(facts.labels))
                self._by_labels.setdefault(names, {})[tuple(facts.labels[name] for name in names)] = row
            else:
                self._by_instance[host_and_port(facts)] = row

    def row(self, labels: Labels) -> int | None:
        """The row of the engine whose own series this is; None when it is on no engine of the map."""
        for names, rows in self._by_labels.items():
            row = rows.get(tuple(labels.get(name, "") for name in names))
            if row is not None:
                return row
        row = self._by_instance.get(labels.get("instance", ""))
        if row is None:
            row = self._by_name.get(labels.get("pod", labels.get("replica", "")))
        return row

    def row_of_replica(self, labels: Labels) -> int | None:
        """The row of the engine that a series of the front door is about."""
        return self._by_replica.get(labels.get("replica", ""))


def host_and_port(facts: EngineFacts) -> str:
    """The `instance` that a Prometheus gives to the engine unless told otherwise."""
    parts = urlsplit(facts.url)
    try:
        port = parts.port or _PORTS.get(parts.scheme, 80)
    except ValueError:
        return parts.netloc
    host = parts.hostname or ""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def merge(targets: Iterable[TargetSeries], *, only_same_instance: bool) -> tuple[list[TargetSeries], list[TargetSeries]]:
    """The targets whose series make up one engine, and those that only say the same again.

    Two targets double each other when they are one instance scraped by two jobs, or when they carry one series, equal in
    all labels that the process itself gave it. Ranks of one engine differ in such a label and are kept; what a process
    says without labels (its start, its memory) tells nothing here. `only_same_instance`: two front doors may well carry
    equal labels, so only the first rule holds for them.
    """
    ordered = sorted(targets, key=lambda each: (-(each.up == 1.0), -_or_zero(each.sampled_at), each.key))
    if len(ordered) == 1:
        return ordered, []
    kept: list[tuple[TargetSeries, set[_Own]]] = []
    doubled: list[TargetSeries] = []
    for target in ordered:
        own = _own_series(target)
        same_instance = any(other.key.instance == target.key.instance for other, _ in kept)
        same_series = not only_same_instance and any(not own.isdisjoint(series) for _, series in kept)
        if same_instance or same_series:
            doubled.append(target)
        else:
            kept.append((target, own))
    return [target for target, _ in kept], doubled


def _own_series(target: TargetSeries) -> set[_Own]:
    """Each series of the target that the process gave labels of its own, by name and those labels."""
    strangers = {"__name__", "job", "instance", *target.labels}
    found = {
        (name, frozenset((label, value) for label, value in labels.items() if label not in strangers))
        for name, series in target.samples.items()
        for labels, _ in series
    }
    return {(name, labels) for name, labels in found if labels}


def _or_zero(stamp: float) -> float:
    return stamp if stamp == stamp else 0.0  # noqa: PLR0124 - NaN
