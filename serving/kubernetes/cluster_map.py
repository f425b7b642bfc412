"""ClusterMap: the fleet as it lies in a cluster, and which pod each engine is at the moment.

An engine keeps its name when its pod is replaced; a pod does not. Whoever acts on an engine looks its pod up here, right
before, and says the pod's uid with what it asks for. How a map is made of objects is in serving.kubernetes.mapping.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import TypeVar

from serving.fleet.entity import Entity
from serving.fleet.topology import Topology

PREFIX = "fleetwarden.dev/"
OPT_OUT = f"{PREFIX}opt-out"  # on a node, a pod, a workload or a namespace: leave it alone
K = TypeVar("K")
V = TypeVar("V")


def nothing() -> Mapping[K, V]:
    """An empty mapping that stays so."""
    return MappingProxyType({})


@dataclass(frozen=True, slots=True, order=True)
class Owner:
    """The controller of an object, as its ownerReferences name it. `api` is `group/version`, `v1` for the core group."""

    kind: str
    name: str
    uid: str
    api: str = ""


@dataclass(frozen=True, slots=True, order=True)
class PodRef:
    """One pod. `owner` is the workload that would replace it: of a Deployment's pod the Deployment, not the ReplicaSet.

    `gpus` it asks for (its own, without its workers'). `node` is empty until it is placed. `workers` are the other pods of
    its group, where one engine is spread over several.
    """

    namespace: str
    name: str
    uid: str
    node: str = ""
    gpus: int = 0
    owner: Owner | None = None
    ready: bool = False
    ending: bool = False
    workers: tuple["PodRef", ...] = ()


@dataclass(frozen=True, slots=True)
class WorkloadRef:
    """What keeps engines there: a Deployment, a StatefulSet, a LeaderWorkerSet, or a custom kind.

    `replicas` are those asked for, None where the kind does not say. `owner` is the controller above it, which may undo
    what is changed here.
    """

    namespace: str
    owner_kind: str
    name: str
    uid: str
    api: str
    replicas: int | None = None
    owner: Owner | None = None

    @property
    def as_owner(self) -> Owner:
        """The same as pods' `owner` names it."""
        return Owner(self.owner_kind, self.name, self.uid, self.api)


@dataclass(frozen=True, eq=False)
class ClusterMap:
    """One moment's map.

    `engines` has the pod of each engine that has one; an engine whose pod is gone or not made yet is on the `topology` only.
    `workloads` are by model. `opted_out` is what a label or annotation tells to leave alone. `at` is when it was
    made (Unix seconds), `doubts` says of each kind of object that cannot be trusted now why.
    """

    topology: Topology
    at: float = 0.0
    engines: Mapping[str, PodRef] = field(default_factory=nothing)
    nodes: tuple[str, ...] = ()
    workloads: Mapping[str, tuple[WorkloadRef, ...]] = field(default_factory=nothing)
    opted_out: frozenset[Entity] = frozenset()
    doubts: Mapping[str, str] = field(default_factory=nothing)

    def pod(self, engine: str) -> PodRef | None:
        """The pod that the engine is now (of a group: the leader), None without one."""
        return self.engines.get(engine)

    @cached_property
    def engine_of(self) -> Mapping[tuple[str, str], str]:
        """The engine by (namespace, name) of each of its pods."""
        return MappingProxyType(
            {(pod.namespace, pod.name): name for name, lead in self.engines.items() for pod in (lead, *lead.workers)}
        )

    @cached_property
    def at_door(self) -> Mapping[str, str]:
        """What a front door in the cluster calls each engine: by its pod, since nobody tells a door which slot a pod has.

        Where two namespaces have a pod of one name, all but the first bear their namespace behind it.
        """
        taken: dict[str, str] = {}
        for engine, pod in self.engines.items():
            taken.setdefault(pod.name if pod.name not in taken else f"{pod.name}.{pod.namespace}", engine)
        return MappingProxyType({engine: name for name, engine in taken.items()})

    def on_node(self, node: str) -> tuple[str, ...]:
        """The engines that have a pod on `node`, in the order of the map."""
        return self._by_node.get(node, ())

    @cached_property
    def _by_node(self) -> Mapping[str, tuple[str, ...]]:
        found: dict[str, dict[str, None]] = {}
        for name, lead in self.engines.items():
            for pod in (lead, *lead.workers):
                if pod.node:
                    found.setdefault(pod.node, {})[name] = None
        return MappingProxyType({node: tuple(names) for node, names in found.items()})
