"""Which engines the pods of a fleet are: who owns each, which pods make one engine, and what each engine is called.

A pod of a StatefulSet or a LeaderWorkerSet keeps its name, so the engine bears it (of a group: the leader's). So does a pod
that nobody owns. Pods of any other controller get a new name when they are replaced: there the engine is a slot.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from serving.kubernetes.cluster_map import Owner, nothing
from serving.kubernetes.objects import PodObject, WorkloadObject
from serving.kubernetes.slots import Holder, assign

GROUP_NAME = "leaderworkerset.sigs.k8s.io/name"
GROUP_INDEX = "leaderworkerset.sigs.k8s.io/group-index"
WORKER_INDEX = "leaderworkerset.sigs.k8s.io/worker-index"
GROUP_LABELS = frozenset({GROUP_NAME, GROUP_INDEX, WORKER_INDEX})
STEADY_KINDS = frozenset({"StatefulSet", "LeaderWorkerSet"})
GROUP_API = "leaderworkerset.x-k8s.io/v1"

_Group = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Member:
    """One engine. `pod` is None while it has none; `owner` is the workload that keeps it there."""

    name: str
    namespace: str
    owner: Owner | None
    pod: PodObject | None
    workers: tuple[PodObject, ...] = ()


@dataclass(frozen=True, slots=True)
class Roster:
    """All engines in a steady order, and the slot numbers to remember, by pod uid."""

    members: tuple[Member, ...]
    numbers: Mapping[str, int] = field(default_factory=nothing)


def is_told(pod: PodObject, replica_sets: Mapping[str, WorkloadObject], workloads: Mapping[str, WorkloadObject]) -> bool:
    """Whether it is known who stands above the pod's own controller.

    Kinds are watched apart, so a pod may come before its new ReplicaSet; called by that, it would have another name now than
    a moment later.
    """
    owner = pod.meta.owner
    if owner is None or owner.kind not in {"ReplicaSet", "StatefulSet"}:
        return True
    return owner.uid in (replica_sets if owner.kind == "ReplicaSet" else workloads)


def owner_of(
    pod: PodObject, replica_sets: Mapping[str, WorkloadObject], workloads: Mapping[str, WorkloadObject]
) -> Owner | None:
    """The workload that would replace `pod`, looked for by uid.

    A ReplicaSet of a Deployment (or of any other controller) gives way to it; so does a StatefulSet of a LeaderWorkerSet.
    """
    owner = pod.meta.owner
    if GROUP_NAME in pod.labels:
        above = workloads.get(owner.uid) if owner else None
        if above and above.meta.owner and above.meta.owner.kind == "LeaderWorkerSet":
            return above.meta.owner
        uid = owner.uid if owner else ""
        return Owner("LeaderWorkerSet", pod.labels[GROUP_NAME], uid, GROUP_API)
    if owner is not None and owner.kind == "ReplicaSet" and (above := replica_sets.get(owner.uid)) is not None:
        return above.meta.owner or owner
    return owner


def roster(
    pods: Iterable[PodObject],
    replica_sets: Mapping[str, WorkloadObject],
    workloads: Mapping[str, WorkloadObject],
    remembered: Mapping[str, int],
) -> Roster:
    """The engines that `pods` are. `workloads`, by uid, tell how many engines each should have."""
    by_owner: dict[tuple[str, Owner | None], list[PodObject]] = {}
    workers: dict[_Group, list[PodObject]] = {}
    for pod in pods:
        if pod.labels.get(WORKER_INDEX, "0") != "0":
            workers.setdefault(_group(pod), []).append(pod)
        elif not pod.over and is_told(pod, replica_sets, workloads):
            by_owner.setdefault((pod.meta.namespace, owner_of(pod, replica_sets, workloads)), []).append(pod)
    for uid, made in workloads.items():
        if made.replicas and made.template is not None and not _of_group(made):
            key = (made.meta.namespace, Owner(made.kind, made.meta.name, uid, made.api))
            by_owner.setdefault(key, [])  # although it has no pod at the moment, it should have some
    members: list[Member] = []
    numbers: dict[str, int] = {}
    for (namespace, owner), found in sorted(by_owner.items(), key=lambda item: (item[0][0], _name(item[0][1]))):
        workload = workloads.get(owner.uid) if owner else None
        if owner is None or owner.kind in STEADY_KINDS:
            members.extend(_steady(namespace, owner, found, workers, workload))
        else:
            some, held = _slots(namespace, owner, found, remembered, workload.replicas if workload is not None else None)
            members.extend(some)
            numbers.update(held)
    return Roster(_told_apart(members), numbers)


def _of_group(workload: WorkloadObject) -> bool:
    """Whether a StatefulSet is only a part of a LeaderWorkerSet: that of its leaders, or of one leader's workers."""
    above = workload.meta.owner
    return above is not None and above.kind in {"LeaderWorkerSet", "Pod"}


def _name(owner: Owner | None) -> tuple[str, str, str]:
    return (owner.name, owner.kind, owner.uid) if owner else ("", "", "")


def _group(pod: PodObject) -> _Group:
    return pod.meta.namespace, pod.labels.get(GROUP_NAME, ""), pod.labels.get(GROUP_INDEX, "")


def _steady(
    namespace: str,
    owner: Owner | None,
    pods: list[PodObject],
    workers: Mapping[_Group, list[PodObject]],
    workload: WorkloadObject | None,
) -> list[Member]:
    by_name = {pod.meta.name: pod for pod in pods}
    names = set(by_name)
    if owner is not None and workload is not None:
        names.update(f"{owner.name}-{workload.first + number}" for number in range(workload.replicas or 0))
    members = []
    for name in sorted(names, key=_by_ordinal):
        pod = by_name.get(name)
        group = (
            sorted(workers.get(_group(pod), ()), key=_worker_index) if pod is not None and GROUP_NAME in pod.labels else ()
        )
        members.append(Member(name, namespace, owner, pod, tuple(one for one in group if not one.over)))
    return members


def _slots(
    namespace: str, owner: Owner, pods: list[PodObject], remembered: Mapping[str, int], wanted: int | None
) -> tuple[list[Member], Mapping[str, int]]:
    by_uid = {pod.meta.uid: pod for pod in pods}
    holders = [Holder(pod.meta.created, uid, pod.meta.ending) for uid, pod in by_uid.items()]
    slots = assign(remembered, holders, wanted)
    held: dict[int, PodObject | None] = {number: by_uid[uid] for uid, number in slots.numbers.items()}
    held.update(dict.fromkeys(slots.vacant))
    return [Member(f"{owner.name}-{number}", namespace, owner, held[number]) for number in sorted(held)], slots.numbers


def _told_apart(members: list[Member]) -> tuple[Member, ...]:
    """Names that differ: where two workloads claim a name, all but the first in order get more behind it."""
    taken: set[str] = set()
    apart: list[Member] = []
    for one in members:
        kind = one.owner.kind.lower() if one.owner else "pod"
        choices = (one.name, f"{one.name}.{one.namespace}", f"{one.name}.{one.namespace}.{kind}")
        name = next((choice for choice in choices if choice not in taken), None)
        if name is None:
            continue  # three of one kind, name and namespace cannot be
        taken.add(name)
        apart.append(one if name == one.name else Member(name, one.namespace, one.owner, one.pod, one.workers))
    return tuple(apart)


def _by_ordinal(name: str) -> tuple[str, int, str]:
    stem, _, ordinal = name.rpartition("-")
    return (stem, int(ordinal), "") if ordinal.isdigit() and len(ordinal) <= 9 else (name, -1, name)  # noqa: PLR2004


def _worker_index(pod: PodObject) -> int:
    index = pod.labels.get(WORKER_INDEX, "")
    return int(index) if index.isdigit() else 0
