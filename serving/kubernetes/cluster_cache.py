"""The cluster as it is now: all that the map is made of, watched in the background.

One list of each kind at the start and a watch from then on: in steady state a few requests a minute, whatever the size of
the cluster, and one small question every five seconds (serving.kubernetes.pulse).
"""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from types import MappingProxyType
from typing import Any, Generic, Protocol, TypeVar

from serving.clock import Clock
from serving.fleet.kubernetes_entry import KubernetesEntry
from serving.kubernetes.client import path_of
from serving.kubernetes.cluster_map import nothing
from serving.kubernetes.decoding import Decoder, meta_of
from serving.kubernetes.mapping import Objects
from serving.kubernetes.naming import GROUP_API
from serving.kubernetes.node_notes import NodeNote, note_of
from serving.kubernetes.objects import Meta, NodeObject, PodObject, WorkloadObject
from serving.kubernetes.pulse import Asks, Pulse
from serving.kubernetes.reflector import Reads, Reflector
from serving.kubernetes.watched import Kind, Watched

T = TypeVar("T")
POLL_S = 0.05
JOIN_S = 5.0
EVERYWHERE = ("",)
EVENTS = "events"
NODE_EVENTS = "default"  # the namespace of events about things that lie in none


# What keeps pods there and says how many: plural, kind, API, and whether a cluster may lack it.
WORKLOADS = (
    ("deployments", "Deployment", "apps/v1", False),
    ("statefulsets", "StatefulSet", "apps/v1", False),
    ("leaderworkersets", "LeaderWorkerSet", GROUP_API, True),
)


@dataclass(frozen=True, slots=True)
class Shape(Generic[T]):
    """A kind of objects, wherever it lies."""

    plural: str
    api: str
    decode: Callable[[dict[str, Any]], T]
    query: Mapping[str, str] = field(default_factory=nothing)
    metadata_only: bool = False
    optional: bool = False


class Group(Generic[T]):
    """One kind over all namespaces that are looked into."""

    def __init__(self, parts: list[Watched[T]]) -> None:
        self._parts = parts

    def objects(self) -> Mapping[str, T]:
        """All objects by uid."""
        return _merged(part.snapshot() for part in self._parts)


class Asking(Reads, Asks, Protocol):
    """What the cache asks with: serving.kubernetes.client.ClusterClient."""


class ClusterCache:
    """Watches one fleet's cluster between `start` and `close`. What it tells may be read from any thread."""

    def __init__(self, client: Asking, entry: KubernetesEntry, clock: Clock, rng: Random) -> None:
        self._clock = clock
        self._client = client
        self._rng = rng
        decoder = Decoder.of(entry)
        spaces = tuple(dict.fromkeys(entry.namespaces)) or ("",)
        self._reflectors: list[Reflector[Any]] = []
        self._watched: list[Watched[Any]] = []
        self._nodes: Group[NodeObject] = self._group(EVERYWHERE, Shape("nodes", "v1", decoder.node))
        self._namespaces: Group[Meta] = self._group(
            EVERYWHERE, Shape("namespaces", "v1", meta_of, metadata_only=True, optional=True)
        )
        self._pods: Group[PodObject] = self._group(
            spaces, Shape("pods", "v1", decoder.pod, {"labelSelector": entry.selector})
        )
        self._sets: Group[WorkloadObject] = self._group(
            spaces, Shape("replicasets", "apps/v1", _workload(decoder, "ReplicaSet", "apps/v1"), metadata_only=True)
        )
        self._workloads: list[Group[WorkloadObject]] = [
            self._group(spaces, Shape(plural, api, _workload(decoder, kind, api), optional=optional))
            for plural, kind, api, optional in WORKLOADS
        ]
        self._revisions: Group[WorkloadObject] = self._group(
            spaces,
            Shape("controllerrevisions", "apps/v1", _workload(decoder, "ControllerRevision", "apps/v1"), optional=True),
        )
        self._notes: Group[NodeNote] = self._group(
            (NODE_EVENTS,), Shape(EVENTS, "v1", note_of, {"fieldSelector": "involvedObject.kind=Node"}, optional=True)
        )
        self._pulse = Pulse(client, clock, self._reconnect)
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Begin to watch."""
        runs = [(self._pulse.run, "pulse")]
        runs += [(one.run, watched.kind.path) for one, watched in zip(self._reflectors, self._watched, strict=True)]
        for run, name in runs:
            self._threads.append(threading.Thread(target=run, name=f"cluster {name}", daemon=True))
            self._threads[-1].start()

    def close(self) -> None:
        """Stop watching."""
        self._pulse.stop()
        for reflector in self._reflectors:
            reflector.stop()
        for thread in self._threads:
            thread.join(JOIN_S)

    @property
    def synced(self) -> bool:
        """Whether everything was read once."""
        return all(one.synced for one in self._watched)

    def wait_synced(self, seconds: float) -> bool:
        """Wait until everything was read once; False when that took longer than `seconds`."""
        end = self._clock.monotonic() + seconds
        while not self.synced and self._clock.monotonic() < end:
            self._clock.sleep(POLL_S)
        return self.synced

    @property
    def changes(self) -> int:
        """A number that grows whenever anything of the map changed."""
        return sum(one.changes for one in self._watched)

    def objects(self) -> Objects:
        """All that the map is made of, as it is now."""
        return Objects(
            nodes=self._nodes.objects(),
            pods=self._pods.objects(),
            replica_sets=self._sets.objects(),
            workloads=_merged(group.objects() for group in self._workloads),
            revisions=self._revisions.objects(),
            namespaces={one.name: one for one in self._namespaces.objects().values()},
        )

    def notes(self) -> Mapping[str, NodeNote]:
        """The Kubernetes events about nodes, by uid."""
        return self._notes.objects()

    def doubts(self) -> Mapping[str, str]:
        """Why what is known cannot be decided upon now, by kind of object; empty where it can."""
        silent = self._pulse.doubt()
        found = {"API server": silent} if silent else {}
        for one in self._watched:
            said = one.doubt()
            if said and one.kind.name != EVENTS:  # what they tell is welcome, and nothing rests on it
                found.setdefault(one.kind.name, said)
        return MappingProxyType(found)

    def staleness(self) -> Mapping[str, float]:
        """Seconds by which each kind of object may be behind the cluster."""
        silent = self._pulse.silence()
        unheard = silent if self._pulse.doubt() else 0.0
        worst: dict[str, float] = {}
        for one in self._watched:
            worst[one.kind.name] = max(worst.get(one.kind.name, 0.0), one.staleness(), unheard)
        return worst

    @property
    def lists(self) -> int:
        """How many whole lists were asked for since the start."""
        return sum(one.lists for one in self._reflectors)

    def _reconnect(self) -> None:
        for reflector in self._reflectors:
            reflector.reconnect()

    def _group(self, namespaces: Sequence[str], shape: Shape[T]) -> Group[T]:
        """Watch one kind in each of these namespaces (empty text: in all at once)."""
        made: list[Watched[T]] = []
        for namespace in namespaces:
            path = path_of(shape.api, shape.plural, namespace=namespace)
            kind = Kind(shape.plural, path, shape.decode, shape.query, shape.metadata_only, shape.optional)
            made.append(Watched(kind, self._clock))
            self._reflectors.append(Reflector(self._client, made[-1], Random(self._rng.random())))
        self._watched.extend(made)
        return Group(made)


def _merged(parts: Iterable[Mapping[str, T]]) -> Mapping[str, T]:
    first, *others = parts
    return {**first, **{uid: one for part in others for uid, one in part.items()}} if others else first


def _workload(decoder: Decoder, kind: str, api: str) -> Callable[[dict[str, Any]], WorkloadObject]:
    return lambda json: decoder.workload(json, kind, api)
