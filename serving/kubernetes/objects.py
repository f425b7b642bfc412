"""Objects of the API cut down to what is used of them. How they are read is in serving.kubernetes.decoding."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from serving.kubernetes.cluster_map import Owner, nothing
from serving.kubernetes.launch import Launch


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition of a node. `status` is True, False or Unknown, as text."""

    kind: str
    status: str
    reason: str = ""
    message: str = ""
    since: float = 0.0


@dataclass(frozen=True, slots=True)
class Meta:
    """What every object has. `created` in Unix seconds; `ending`: its deletion was asked for."""

    namespace: str
    name: str
    uid: str
    owner: Owner | None = None
    created: float = 0.0
    ending: bool = False
    opted_out: bool = False


@dataclass(frozen=True, slots=True)
class NodeObject:
    """A node. `labels` are those that were asked for."""

    meta: Meta
    labels: Mapping[str, str] = field(default_factory=nothing)
    unschedulable: bool = False
    gpus_capacity: float = 0.0
    gpus_allocatable: float = 0.0
    conditions: tuple[Condition, ...] = ()
    boot_id: str = ""

    @property
    def ready(self) -> bool:
        """Whether its kubelet says so, and is heard."""
        return any(one.kind == "Ready" and one.status == "True" for one in self.conditions)


@dataclass(frozen=True, slots=True)
class Run:
    """The latest run of the engine's container. `began` is None while it waits; `reason` says for what, or how it ended."""

    began: float | None = None
    restarts: int = 0
    reason: str = ""
    exit_code: int | None = None
    ended: float | None = None


@dataclass(frozen=True, slots=True)
class PodObject:
    """A pod. `labels` are those that were asked for. `reason` is why the whole pod failed, or cannot be placed.

    `ready_since`: when its readiness last changed.
    """

    meta: Meta
    labels: Mapping[str, str] = field(default_factory=nothing)
    node: str = ""
    phase: str = ""
    reason: str = ""
    message: str = ""
    ip: str = ""
    gpus: int = 0
    ready: bool = False
    ready_since: float = 0.0
    launch: Launch = field(default_factory=Launch)
    run: Run = field(default_factory=Run)

    @property
    def over(self) -> bool:
        """Whether all its containers ended for good: it never comes back."""
        return self.phase in {"Failed", "Succeeded"}


@dataclass(frozen=True, slots=True)
class WorkloadObject:
    """A Deployment, ReplicaSet, StatefulSet, LeaderWorkerSet or ControllerRevision.

    `revision`: its number, 0 unknown. `template`: a pod as it would make one, where that pod would be of the fleet.
    `first`: the ordinal of its first pod.
    """

    meta: Meta
    kind: str
    api: str
    replicas: int | None = None
    revision: int = 0
    first: int = 0
    template: PodObject | None = None
