"""Engines' pods on a real control plane: restarted once, never their successors, let go of only with their node."""

import pytest
from acting_benches import World, workload
from control_plane.kubelet.kubelet import ProcessKubelet
from control_plane.server import ControlPlane
from control_plane.waiting import until
from fleet_bench import Fleet, on_engine, on_node, passes, process

from actuators.action import OutcomeStatus
from actuators.kubernetes import pod_removal
from actuators.kubernetes.emptying import EmptyingActuator
from actuators.kubernetes.pods import PodsActuator
from serving.kubernetes.cluster_error import ClusterError

pytestmark = pytest.mark.real_kubernetes
DONE, FAILED, UNKNOWN = OutcomeStatus.DONE, OutcomeStatus.FAILED, OutcomeStatus.UNKNOWN


@pytest.fixture
def fleet(world: World, kubelet: ProcessKubelet) -> Fleet:
    return Fleet(world, kubelet)


@pytest.fixture
def actuator(world: World) -> PodsActuator:
    return PodsActuator(world.access(deadline_s=1.0, patience_s=0.0))


def uid(pod: dict[str, object]) -> object:
    return pod["metadata"]["uid"]  # type: ignore[index]


def test_an_engine_of_a_stateful_set_is_restarted_once_for_one_key(fleet: Fleet, actuator: PodsActuator) -> None:
    fleet.add_nodes("a")
    fleet.run("statefulsets", workload("llm", 1, process()))
    (first,) = fleet.until_ready("llm", 1)
    restart = on_engine("process.restart", "llm-0", {"grace_s": 1.0})
    rehearsed = actuator.rehearse(restart)
    assert uid(fleet.ready("llm")[0]) == uid(first)
    outcome = actuator.apply(restart, "1/1/restart")
    assert (outcome.status, outcome.before) == (DONE, rehearsed.before)
    until(lambda: [uid(pod) for pod in fleet.ready("llm")] not in ([], [uid(first)]), 30, "the successor is ready")
    (second,) = fleet.ready("llm")
    assert second["metadata"]["name"] == "llm-0"
    assert actuator.apply(restart, "1/1/restart").status is DONE
    assert actuator.look_up(restart, "1/1/restart").status is DONE
    assert actuator.look_up(restart, "1/1/restart/2").status is FAILED
    assert uid(fleet.ready("llm")[0]) == uid(second)


def test_a_map_that_is_behind_costs_the_successor_nothing(fleet: Fleet, actuator: PodsActuator, world: World) -> None:
    fleet.add_nodes("a")
    fleet.run("statefulsets", workload("llm", 1, process()))
    (first,) = fleet.until_ready("llm", 1)
    world.frozen = world.map()
    world.client.delete(world.pod_path("llm-0"), {"gracePeriodSeconds": 1})
    until(lambda: [uid(pod) for pod in fleet.ready("llm")] not in ([], [uid(first)]), 30, "the successor is ready")
    (second,) = fleet.ready("llm")
    outcome = actuator.apply(on_engine("process.restart", "llm-0"), "1/1/restart")
    assert (outcome.status, outcome.permanent) == (FAILED, False)
    assert "replaced meanwhile" in outcome.detail
    assert uid(fleet.ready("llm")[0]) == uid(second)


def test_a_deletion_whose_answer_is_lost_is_found_out(
    fleet: Fleet, actuator: PodsActuator, monkeypatch: pytest.MonkeyPatch, control_plane: ControlPlane
) -> None:
    fleet.add_nodes("a")
    fleet.run("statefulsets", workload("llm", 1, process()))
    fleet.until_ready("llm", 1)
    fleet.world.frozen = fleet.world.map()
    remove = pod_removal.remove

    def lost(*arguments: object, **more: object) -> None:
        remove(*arguments, **more)  # type: ignore[arg-type]
        control_plane.api_server.freeze()
        raise ClusterError(0, "Timeout", "no answer in time")

    monkeypatch.setattr(pod_removal, "remove", lost)
    restart = on_engine("process.restart", "llm-0")
    try:
        assert actuator.apply(restart, "1/1/restart").status is UNKNOWN
    finally:
        control_plane.api_server.thaw()
    assert actuator.look_up(restart, "1/1/restart").status is DONE


def test_a_crash_between_claim_and_deletion_leaves_an_operation_that_never_happened(
    fleet: Fleet, actuator: PodsActuator, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet.add_nodes("a")
    fleet.run("statefulsets", workload("llm", 1, process()))
    (pod,) = fleet.until_ready("llm", 1)

    def crash(*_: object, **__: object) -> None:
        raise RuntimeError("the warden dies here")

    monkeypatch.setattr(pod_removal, "remove", crash)
    restart = on_engine("process.restart", "llm-0")
    assert actuator.apply(restart, "1/1/restart").status is UNKNOWN
    assert actuator.look_up(restart, "1/1/restart").status is FAILED
    assert uid(fleet.ready("llm")[0]) == uid(pod)


def test_pods_that_nobody_would_start_again_or_that_opt_out_stay(fleet: Fleet, actuator: PodsActuator, world: World) -> None:
    fleet.add_nodes("a")
    alone = {"metadata": {"name": "alone", "labels": {"app": "alone"}}, "spec": process()}
    world.client.create(world.pod_path(""), alone)
    fleet.run("statefulsets", workload("llm", 1, process()))
    fleet.until_ready("llm", 1)
    fleet.until_ready("alone", 1)
    world.client.patch(world.pod_path("llm-0"), {"metadata": {"labels": {"fleetwarden.dev/opt-out": "true"}}})
    for name in ("alone", "llm-0"):
        for verb in ("process.restart", "pod.evict"):
            outcome = actuator.apply(on_engine(verb, name), f"1/1/{name}/{verb}")
            assert (outcome.status, outcome.permanent) == (FAILED, True), outcome
    assert len(fleet.ready("llm") + fleet.ready("alone")) == 2


def test_a_budget_that_forbids_is_obeyed_and_told(fleet: Fleet, actuator: PodsActuator) -> None:
    fleet.add_nodes("a")
    fleet.run("deployments", workload("llm", 2, process()))
    pod, _ = fleet.until_ready("llm", 2)
    fleet.budget("llm", minAvailable=2)
    evict = on_engine("pod.evict", pod["metadata"]["name"])
    for outcome in (actuator.rehearse(evict), actuator.apply(evict, "1/1/evict")):
        assert (outcome.status, outcome.permanent) == (FAILED, False)
        assert "llm-0 needs 2 healthy pods and has 2 currently" in outcome.detail
    assert actuator.look_up(evict, "1/1/evict").status is FAILED
    assert len(fleet.ready("llm")) == 2


def test_two_budgets_on_one_pod_are_explained(fleet: Fleet, actuator: PodsActuator) -> None:
    fleet.add_nodes("a")
    fleet.run("deployments", workload("llm", 1, process()))
    (pod,) = fleet.until_ready("llm", 1)
    for _ in range(2):
        fleet.budget("llm", minAvailable=0)
    outcome = actuator.apply(on_engine("pod.evict", pod["metadata"]["name"]), "1/1/evict")
    assert (outcome.status, outcome.permanent) == (FAILED, True)
    assert "more than one PodDisruptionBudget" in outcome.detail
    assert len(fleet.ready("llm")) == 1


def test_a_stuck_pod_on_a_living_node_is_left_to_people(fleet: Fleet, actuator: PodsActuator, world: World) -> None:
    fleet.add_nodes("a")
    fleet.run("statefulsets", workload("llm", 1, process()))
    fleet.until_ready("llm", 1)
    fleet.kubelet.hold(world.namespace, "llm-0")
    world.client.delete(world.pod_path("llm-0"), {"gracePeriodSeconds": 1})
    until(lambda: fleet.pods("llm")[0]["metadata"].get("deletionTimestamp"), 10, "it is told to end")
    stuck = on_engine("pod.delete_stuck", "llm-0", {"after_s": 0.0})
    outcome = actuator.apply(stuck, "1/1/stuck")
    assert (outcome.status, outcome.permanent) == (FAILED, True)
    assert "is ready" in outcome.detail
    assert fleet.pods("llm")
    fleet.kubelet.release(world.namespace, "llm-0")


def test_a_stuck_pod_on_a_lost_node_is_let_go_of_and_replaced(fleet: Fleet, actuator: PodsActuator, world: World) -> None:
    lost, other = fleet.add_nodes("a", "b")
    fleet.run("statefulsets", workload("llm", 1, process(nodeSelector={"kubernetes.io/hostname": lost})))
    (pod,) = fleet.until_ready("llm", 1)
    stuck = on_engine("pod.delete_stuck", "llm-0", {"after_s": 1.0})
    early = actuator.apply(stuck, "1/1/early")
    assert (early.status, early.permanent) == (FAILED, True)
    fleet.kubelet.lose(lost, dead=True)
    fleet.until_silent(lost)
    world.client.delete(world.pod_path("llm-0"), {"gracePeriodSeconds": 1})
    waiting = actuator.apply(on_engine("pod.delete_stuck", "llm-0"), "1/1/patient")
    assert (waiting.status, waiting.permanent) == (FAILED, False)
    assert "it is given 300 s" in waiting.detail
    assert passes(actuator, stuck).status is DONE
    until(lambda: uid(pod) not in map(uid, fleet.pods("llm")), 20, "the pod is gone")
    assert other


def test_what_ran_on_a_lost_node_is_replaced_elsewhere(fleet: Fleet, world: World) -> None:
    first, second = fleet.add_nodes("a", "b")
    fleet.run("statefulsets", workload("llm", 2, process(), podManagementPolicy="Parallel"))
    pods = fleet.until_ready("llm", 2)
    lost = pods[0]["spec"]["nodeName"]
    emptying = EmptyingActuator(world.access())
    replace = on_node("node.replace_lost", lost, {"after_s": 1.0})
    living = emptying.apply(replace, "1/1/living")
    assert (living.status, living.permanent) == (FAILED, True)
    fleet.kubelet.lose(lost, dead=True)
    fleet.until_silent(lost)
    until(lambda: "pods" in emptying.rehearse(replace).before, 10, "the node is silent for long enough")
    assert emptying.rehearse(replace).before["pods"] == len(fleet.on(lost, "llm"))
    outcome = passes(emptying, replace)
    assert (outcome.status, outcome.after["pods"]) == (DONE, 0)
    fleet.until_ready("llm", 2)
    assert {pod["spec"]["nodeName"] for pod in fleet.ready("llm")} == {({first, second} - {lost}).pop()}
    assert emptying.look_up(replace, "any").status is DONE
