"""What a cluster tells of its nodes: readiness, cordons, GPUs to give, conditions, pods refused, reboots, XIDs. Pure.

Any condition counts, whoever sets it. Those named after something good (GpusHealthy, NetworkReady) are bad when not True,
all others when True, as node-problem-detector has it.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from serving.fleet.entity import Entity, EntityKind
from serving.kubernetes.cluster_map import nothing
from serving.kubernetes.node_notes import NodeNote
from serving.kubernetes.objects import Condition, NodeObject, PodObject
from serving.telemetry.reading import TableReading
from serving.telemetry.window import Event

CONDITION, CLEARED, REBOOTED, XID = "node.condition", "node.condition_cleared", "node.rebooted", "xid"
NOTE = "node.event"
_GOOD = re.compile(r"(Ready|Healthy|OK|Ok|Available|Succeeded|Up)$")
_READ_ONLY = re.compile(r"read-?only", re.IGNORECASE)
# `NVRM: Xid (PCI:0000:3b:00): 79, pid=...`: the driver's own line, as every log watcher hands it on.
_XID_LINE = re.compile(r"Xid \(PCI:([0-9A-Fa-f:.]+)\): ?(\d+)(.*)", re.DOTALL)
# Why a kubelet refuses a pod that was placed on it; https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/
_REFUSALS = re.compile(r"UnexpectedAdmissionError|OutOf.+|NodeAffinity|NodeShutdown|.*AdmissionError|AllocationFailed")


@dataclass(frozen=True, slots=True)
class Memory:
    """What was known at the last look, so that only news is told. `refused` are pods by uid; `refusals` count by node."""

    nodes: Mapping[str, NodeObject] = field(default_factory=nothing)
    notes: Mapping[str, int] = field(default_factory=nothing)
    refused: frozenset[str] = frozenset()
    refusals: Mapping[str, int] = field(default_factory=nothing)
    looked: bool = False


def remembered(
    before: Memory, nodes: Mapping[str, NodeObject], pods: Iterable[PodObject], notes: Mapping[str, NodeNote]
) -> Memory:
    """The memory after a look. Counts of refused pods only grow."""
    failed = {pod.meta.uid: pod.node for pod in pods if is_refused(pod)}
    counts = dict(before.refusals)
    for uid, node in failed.items():
        if uid not in before.refused:
            counts[node] = counts.get(node, 0) + 1
    return Memory(nodes, {uid: note.count for uid, note in notes.items()}, frozenset(failed), counts, looked=True)


def is_refused(pod: PodObject) -> bool:
    """Whether the kubelet refused the pod after it had been placed: it wanted a GPU and got none."""
    return pod.phase == "Failed" and pod.gpus > 0 and bool(pod.node) and bool(_REFUSALS.fullmatch(pod.reason))


def node_table(names: Iterable[str], memory: Memory, now: float) -> TableReading:
    """The signals of the nodes called `names` that are there."""
    by_name = {node.meta.name: node for node in memory.nodes.values()}
    nodes = [by_name[name] for name in names if name in by_name]
    columns = {
        "node.ready": [float(node.ready) for node in nodes],
        "node.unschedulable": [float(node.unschedulable) for node in nodes],
        "node.gpus_allocatable": [node.gpus_allocatable if node.gpus_capacity else np.nan for node in nodes],
        "node.gpus_capacity": [node.gpus_capacity or np.nan for node in nodes],
        "node.disk_readonly": [_read_only(node) for node in nodes],
        "node.pods_rejected": [float(memory.refusals.get(node.meta.name, 0)) for node in nodes],
    }
    return TableReading(
        tuple(Entity(EntityKind.NODE, node.meta.name) for node in nodes),
        np.full(len(nodes), now),
        {name: np.array(values, dtype=np.float64) for name, values in columns.items()},
    )


def node_events(
    names: Iterable[str], before: Memory, nodes: Mapping[str, NodeObject], notes: Mapping[str, NodeNote], now: float
) -> Iterator[Event]:
    """What happened to the nodes called `names` since the look that `before` remembers."""
    wanted = set(names)
    for uid, node in nodes.items():
        if node.meta.name in wanted:
            yield from _changes(before.nodes.get(uid), node, now)
    for uid, note in notes.items():
        # What the first look finds is old; it must not read as if it happened just now.
        if note.node in wanted and before.looked and note.count > before.notes.get(uid, 0):
            yield from _told(note, now)


def is_bad(condition: Condition) -> bool:
    """Whether a condition tells of a problem."""
    good = _GOOD.search(condition.kind) is not None
    return condition.status != "True" if good else condition.status == "True"


def _changes(before: NodeObject | None, node: NodeObject, now: float) -> Iterator[Event]:
    if before is node:
        return
    entity = Entity(EntityKind.NODE, node.meta.name)
    known = {one.kind: one for one in before.conditions} if before else {}
    for one in node.conditions:
        old = known.get(one.kind)
        if is_bad(one) and (old is None or not is_bad(old) or old.reason != one.reason):
            yield Event(now, CONDITION, entity, _sentence(one))
        elif old is not None and is_bad(old) and not is_bad(one):
            yield Event(now, CLEARED, entity, _sentence(one))
    if before is not None and before.boot_id and node.boot_id and before.boot_id != node.boot_id:
        yield Event(now, REBOOTED, entity, "it has another boot id than before")


def _told(note: NodeNote, now: float) -> Iterator[Event]:
    entity = Entity(EntityKind.NODE, note.node)
    found = _XID_LINE.search(note.message)
    if found is not None:
        gpu = Entity(EntityKind.GPU, f"{note.node}:{found[1].replace(':', '-')}")
        yield Event(now, XID, gpu, f"{found[2]}: {found[3].strip(' ,') or note.reason}")
    elif note.warning:
        yield Event(now, NOTE, entity, f"{note.reason}: {note.message}")


def _sentence(one: Condition) -> str:
    why = ": ".join(part for part in (one.reason, one.message) if part)
    return f"{one.kind} is {one.status}{f' ({why})' if why else ''}"


def _read_only(node: NodeObject) -> float:
    said = [one for one in node.conditions if _READ_ONLY.search(one.kind)]
    return float(any(is_bad(one) for one in said)) if said else np.nan
