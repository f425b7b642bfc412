"""What a cluster tells of engines and nodes, as signals and events that the detectors read."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from objects_of_a_cluster import BORN, node, owned_by, pod

from serving.fleet.kubernetes_entry import KubernetesEntry
from serving.kubernetes.decoding import Decoder, unix_seconds
from serving.kubernetes.engine_signals import engine_signals, starting_seconds
from serving.kubernetes.mapping import Objects, Surroundings, mapped
from serving.kubernetes.node_notes import NodeNote, note_of
from serving.kubernetes.node_signals import Memory, is_bad, node_events, node_table, remembered
from serving.kubernetes.objects import Condition, NodeObject, PodObject

ENTRY = KubernetesEntry(selector="app=llm")
READ = Decoder.of(ENTRY)
T0 = unix_seconds(BORN)
Json = dict[str, Any]


def waiting(reason: str, restarts: int = 0, **last: Any) -> Json:
    state = {"waiting": {"reason": reason}}
    told = {"name": "vllm", "state": state, "restartCount": restarts, "lastState": {"terminated": last} if last else {}}
    return {"containerStatuses": [told]}


def a_node(**more: Any) -> NodeObject:
    return replace(READ.node(node("node-a")), **more)


def looked(nodes: list[NodeObject], pods: list[PodObject] = [], before: Memory = Memory()) -> Memory:  # noqa: B006, B008
    return remembered(before, {one.meta.uid: one for one in nodes}, pods, {})


def events(before: Memory, now: list[NodeObject], notes: dict[str, NodeNote] | None = None) -> list[tuple[str, str, str]]:
    told = node_events(["node-a"], before, {one.meta.uid: one for one in now}, notes or {}, 1.0)
    return [(event.kind, str(event.entity), event.text) for event in told]


@pytest.mark.parametrize(
    ("made", "later", "seconds"),
    [
        (pod("a"), 500, 0.0),
        (pod("a", ready=False), 30, 30.0),
        (pod("a", ready=False, status={"containerStatuses": []}), 40, 40.0),
        (pod("a", ready=False, phase="Pending", node="", ip="", status=waiting("ContainerCreating")), 50, 50.0),
        (pod("a", ready=False, status=waiting("CrashLoopBackOff", 3, exitCode=1, finishedAt=BORN)), 60, np.nan),
    ],
)
def test_a_start_lasts_from_the_process_on_or_from_the_pod_before_it_has_one(
    made: Json, later: float, seconds: float
) -> None:
    assert starting_seconds(READ.pod(made), T0 + later) == pytest.approx(seconds, nan_ok=True)


def test_readiness_that_was_lost_is_no_start() -> None:
    lost = replace(READ.pod(pod("a", ready=False)), ready_since=T0 + 100)
    assert starting_seconds(lost, T0 + 200) == 0.0


def test_engines_without_a_pod_or_an_address_are_not_up_and_revisions_come_from_their_workloads() -> None:
    replica_set = {"metadata": {"name": "llama-77", "namespace": "serving", "uid": "ReplicaSet:serving/llama-77"}}
    replica_set["metadata"]["annotations"] = {"deployment.kubernetes.io/revision": "7"}
    revision = {"metadata": {"name": "big-5d", "namespace": "serving", "uid": "r"}, "revision": 3}
    pods = [
        READ.pod(pod("llama-77-a", owned_by("ReplicaSet", "llama-77"))),
        READ.pod(pod("alone", ip="")),
        READ.pod(pod("big-0", labels={"controller-revision-hash": "big-5d"})),
    ]
    objects = Objects(
        pods={one.meta.uid: one for one in pods},
        replica_sets={"ReplicaSet:serving/llama-77": READ.workload(replica_set, "ReplicaSet", "apps/v1")},
        revisions={"r": READ.workload(revision, "ControllerRevision", "apps/v1")},
    )
    made = mapped(objects, ENTRY, Surroundings(), {}, T0)
    values = engine_signals(made.map.topology, {one.name: one for one in made.roster.members}, objects, T0)
    by_name = {name: row for row, name in enumerate(engine.name for engine in made.map.topology.engines)}
    assert values["engine.revision"][by_name["llama-77-0"]] == 7
    assert values["engine.revision"][by_name["big-0"]] == 3
    assert np.isnan(values["engine.revision"][by_name["alone"]])
    assert values["scrape.up"][by_name["alone"]] == 0.0
    assert np.isnan(values["scrape.up"][by_name["big-0"]])


def test_a_node_tells_readiness_cordon_and_gpus() -> None:
    table = node_table(["node-a", "gone"], looked([a_node(unschedulable=True, gpus_allocatable=6.0)]), 5.0)
    assert [entity.name for entity in table.entities] == ["node-a"]
    assert {name: values[0] for name, values in table.values.items() if not np.isnan(values[0])} == {
        "node.ready": 1.0,
        "node.unschedulable": 1.0,
        "node.gpus_allocatable": 6.0,
        "node.gpus_capacity": 8.0,
        "node.pods_rejected": 0.0,
    }


def test_refused_gpu_pods_are_counted_once_each_and_for_ever() -> None:
    status = {"reason": "UnexpectedAdmissionError", "containerStatuses": []}
    refused = [READ.pod(pod(name, phase="Failed", status=status)) for name in ("a", "b")]
    evicted = READ.pod(pod("c", phase="Failed", status={"reason": "Evicted"}))
    first = looked([a_node()], [refused[0], evicted])
    second = looked([a_node()], refused, first)
    third = looked([a_node()], [refused[1]], second)
    assert [memory.refusals["node-a"] for memory in (first, second, third)] == [1, 2, 2]


@pytest.mark.parametrize(
    ("kind", "status", "bad"),
    [
        ("Ready", "False", True),
        ("Ready", "Unknown", True),
        ("Ready", "True", False),
        ("KernelDeadlock", "True", True),
        ("KernelDeadlock", "Unknown", False),
        ("DiskPressure", "False", False),
        ("GpusHealthy", "False", True),
    ],
)
def test_a_condition_is_bad_by_what_it_is_named_after(kind: str, status: str, bad: bool) -> None:  # noqa: FBT001
    assert is_bad(Condition(kind, status)) is bad


def test_any_condition_that_turns_bad_or_good_again_is_told_once() -> None:
    fine = Condition("XidErrors", "False", "NoXid")
    broken = Condition("XidErrors", "True", "Xid79", "GPU has fallen off the bus")
    well, ill = a_node(conditions=(fine,)), a_node(conditions=(broken,))
    before = looked([well])
    assert events(before, [ill]) == [
        ("node.condition", "node/node-a", "XidErrors is True (Xid79: GPU has fallen off the bus)")
    ]
    assert events(looked([ill]), [ill]) == []
    assert events(looked([ill]), [well]) == [("node.condition_cleared", "node/node-a", "XidErrors is False (NoXid)")]


def test_another_boot_is_a_reboot_and_a_new_node_is_none() -> None:
    again = a_node(boot_id="another")
    assert [kind for kind, _, _ in events(looked([a_node()]), [again])] == ["node.rebooted"]
    assert events(Memory(), [again]) == []


def test_xids_in_what_is_said_of_a_node_are_told_of_the_gpu() -> None:
    said = {
        "involvedObject": {"kind": "Node", "name": "node-a"},
        "reason": "XIDError",
        "type": "Warning",
        "message": "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus.",
        "lastTimestamp": BORN,
        "count": 2,
    }
    note = note_of(said)
    assert (note.at, note.count) == (T0, 2)
    before = looked([a_node()])
    told = events(before, [a_node()], {"n": note})
    assert told == [("xid", "gpu/node-a:0000-3b-00", "79: pid=1234, GPU has fallen off the bus.")]
    known = replace(before, notes={"n": 2})
    assert events(known, [a_node()], {"n": note}) == []
    assert events(known, [a_node()], {"n": replace(note, count=3)}) == told


def test_what_was_said_before_the_first_look_is_not_told_as_news() -> None:
    old = NodeNote("node-a", "OOM", "it is over", 1.0, warning=True)
    assert events(Memory(), [a_node(conditions=())], {"n": old}) == []
