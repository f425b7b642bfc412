"""What can befall a node, as the real controllers see it: loss, a black hole, failed GPUs, pods that cannot end, budgets."""

import pytest
from benches import Bench, engine_spec, pod_spec
from control_plane.kubelet.node import NodeSpec
from control_plane.waiting import until
from kubernetes import client

from serving.engines.processes import mark

pytestmark = pytest.mark.real_kubernetes


@pytest.fixture
def nodes(bench: Bench) -> list[str]:
    names = [f"{bench.namespace}-{name}" for name in "ab"]
    for name in names:
        bench.kubelet.add_node(NodeSpec(name, gpus=2))
    return names


@pytest.mark.parametrize("dead", [True, False])
def test_a_silent_node_is_found_out_and_its_pods_are_replaced(bench: Bench, nodes: list[str], *, dead: bool) -> None:
    bench.deploy("llm", 2, engine_spec("--startup-seconds=0.2"))
    lost, _ = bench.until_ready("llm", 2)
    (other,) = set(nodes) - {lost.spec.node_name}
    process = mark(bench.kubelet.pid(bench.namespace, lost.metadata.name))
    bench.kubelet.lose(lost.spec.node_name, dead=dead)
    until(lambda: bench.node_ready(lost.spec.node_name) == "Unknown", 40, "the node is NotReady")
    taints = lambda: {taint.key for taint in bench.core.read_node(lost.spec.node_name).spec.taints or ()}  # noqa: E731
    until(lambda: "node.kubernetes.io/unreachable" in taints(), 20, "it is tainted")

    def replaced() -> bool:
        on_other = [pod for pod in bench.pods("llm") if pod.spec.node_name == other]
        return sum(pod.status.container_statuses is not None for pod in on_other) == 2

    until(replaced, 40, lambda: bench.told("llm"))
    still_there = bench.core.read_namespaced_pod(lost.metadata.name, bench.namespace)
    assert still_there.metadata.deletion_timestamp is not None  # nobody can say that it has ended
    assert process is not None
    assert (mark(process.pid) == process) != dead
    bench.kubelet.come_back(lost.spec.node_name)
    until(lambda: bench.node_ready(lost.spec.node_name) == "True", 20, "the node is back")
    until(lambda: lost.metadata.name not in {pod.metadata.name for pod in bench.pods("llm")}, 30, "the old pod is gone")
    until(lambda: not taints(), 20, "the taints are gone")


def test_a_black_hole_stays_ready_and_fails_every_pod_that_wants_a_gpu(bench: Bench, nodes: list[str]) -> None:
    bench.core.patch_node(nodes[1], {"spec": {"unschedulable": True}})
    bench.kubelet.make_black_hole(nodes[0])
    bench.deploy("llm", 1, engine_spec())
    until(lambda: len(bench.pods("llm")) >= 3, 30, lambda: bench.told("llm"))  # each failed one is replaced, in vain
    failed = [pod for pod in bench.pods("llm") if pod.status.phase == "Failed"]
    assert {pod.status.reason for pod in failed} == {"UnexpectedAdmissionError"}
    assert "cannot allocate unhealthy devices nvidia.com/gpu" in failed[0].status.message
    assert bench.node_ready(nodes[0]) == "True"
    bench.start("needs-none")
    bench.until_ready("needs-none")


def test_failed_gpus_leave_what_can_be_allocated(bench: Bench, nodes: list[str]) -> None:
    bench.kubelet.break_gpus(nodes[0], frozenset({0}))
    status = bench.core.read_node(nodes[0]).status
    assert (status.capacity["nvidia.com/gpu"], status.allocatable["nvidia.com/gpu"]) == ("2", "1")


def test_conditions_may_be_added_as_a_node_problem_detector_does(bench: Bench, nodes: list[str]) -> None:
    bench.kubelet.set_condition(nodes[0], "XidErrors", "True", "Xid79", "GPU has fallen off the bus")
    conditions = {one.type: one.reason for one in bench.core.read_node(nodes[0]).status.conditions}
    assert (conditions["XidErrors"], conditions["Ready"]) == ("Xid79", "KubeletReady")


@pytest.mark.usefixtures("nodes")
def test_a_pod_that_cannot_end_stays_terminating_until_it_is_let_go(bench: Bench) -> None:
    bench.start("stuck")
    bench.until_ready("stuck")
    bench.kubelet.hold(bench.namespace, "stuck")
    bench.core.delete_namespaced_pod("stuck", bench.namespace, grace_period_seconds=1)
    with pytest.raises(AssertionError):
        bench.until_gone("stuck", seconds=4)
    assert bench.pod("stuck").status.phase == "Running"
    bench.kubelet.release(bench.namespace, "stuck")
    bench.until_gone("stuck")


@pytest.mark.usefixtures("nodes")
def test_a_disruption_budget_forbids_an_eviction_that_it_has_no_room_for(bench: Bench) -> None:
    bench.deploy("kept", 2, pod_spec())
    first, second = bench.until_ready("kept", 2)
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "kept"}}}
    bench.policy.create_namespaced_pod_disruption_budget(bench.namespace, {"metadata": {"name": "kept"}, "spec": spec})
    budget = lambda: bench.policy.read_namespaced_pod_disruption_budget("kept", bench.namespace).status  # noqa: E731
    until(lambda: budget().disruptions_allowed == 1, 20, "the budget counts its pods")
    bench.apps.patch_namespaced_deployment("kept", bench.namespace, {"spec": {"paused": True, "replicas": 2}})

    def evict(pod: client.V1Pod) -> None:
        body = client.V1Eviction(metadata=client.V1ObjectMeta(name=pod.metadata.name, namespace=bench.namespace))
        bench.core.create_namespaced_pod_eviction(pod.metadata.name, bench.namespace, body)

    evict(first)
    with pytest.raises(client.ApiException, match="disruption budget") as refused:
        evict(second)
    assert refused.value.status == 429
