"""A whole warden over a fleet that is declared by a label selector and nothing else."""

import pytest
from control_plane.waiting import until
from fleet_of_pods import FleetOfPods

from serving.clock import SystemClock
from serving.fleet.entity import Entity
from serving.kubernetes.opening import opened

pytestmark = pytest.mark.real_kubernetes
SOON_S = 40.0
THREE = {"llm-0": "serving", "llm-1": "serving", "llm-2": "serving"}


def test_engines_are_seen_measured_and_keep_their_names_while_pods_are_replaced(fleet: FleetOfPods) -> None:
    fleet.nodes("see-a", "see-b")
    fleet.deploy(3)
    fleet.until_ready(3)
    with fleet.warden() as watching, opened(fleet.file(), SystemClock()) as cluster:
        until(lambda: watching.states() == THREE, SOON_S, lambda: f"all serve: {watching.look()}", poll_s=0.5)
        assert cluster.wait_known() == ""
        gone = cluster.view.map().engines["llm-1"]
        fleet.core.delete_namespaced_pod(gone.name, fleet.namespace)
        seen: set[str] = set()

        def replaced() -> bool:
            states = watching.states()
            seen.update(states)
            fresh = cluster.view.map().pod("llm-1")
            return states == THREE and fresh is not None and fresh.uid != gone.uid and fresh.ready

        until(replaced, SOON_S, lambda: f"llm-1 serves again: {watching.look()}", poll_s=0.5)
        assert seen == set(THREE), "no other name was ever seen"


def test_a_warden_that_is_started_again_calls_each_pod_as_before(fleet: FleetOfPods) -> None:
    fleet.nodes("see-c")
    fleet.deploy(3)
    fleet.until_ready(3)
    with fleet.warden() as watching:
        until(lambda: set(watching.states()) == set(THREE), SOON_S, "all are seen", poll_s=0.5)
        assert watching.warden.maps.cluster is not None
        before = watching.warden.maps.cluster.view.map().engines
        oldest = before["llm-0"]
    fleet.core.delete_namespaced_pod(oldest.name, fleet.namespace)
    until(lambda: oldest.name not in {pod.metadata.name for pod in fleet.pods()}, SOON_S, "the oldest is gone")
    fleet.until_ready(3)
    with fleet.warden() as watching:
        cluster = watching.warden.maps.cluster
        assert cluster is not None
        until(lambda: watching.states() == THREE, SOON_S, "all serve again", poll_s=0.5)
        after = cluster.view.map().engines
    assert {name: after[name].uid for name in ("llm-1", "llm-2")} == {name: before[name].uid for name in ("llm-1", "llm-2")}
    assert after["llm-0"].uid not in {pod.uid for pod in before.values()}


def test_a_workload_that_opts_out_is_left_alone(fleet: FleetOfPods) -> None:
    fleet.nodes("see-d")
    fleet.deploy(2)
    fleet.until_ready(2)
    with fleet.warden() as watching:
        maps = watching.warden.maps
        assert maps.opted_out() == frozenset()
        fleet.annotate(opt_out="true")
        wanted = {Entity.engine("llm-0"), Entity.engine("llm-1")}
        until(lambda: maps.opted_out() == wanted, SOON_S, lambda: f"both are left alone: {maps.opted_out()}")


def test_a_node_that_is_ready_and_refuses_gpu_pods_is_called_a_black_hole(fleet: FleetOfPods) -> None:
    fleet.nodes("see-e")
    fleet.kubelet.make_black_hole("see-e")
    with fleet.warden() as watching:
        watching.look()
        fleet.deploy(2)  # their controller makes pods again and again, and the node fails each

        def called() -> bool:
            return ("node.unhealthy", "node/see-e") in {(one.cause, one.entity) for one in watching.look().incidents}

        until(called, SOON_S, lambda: f"the black hole is called: {watching.look()}", poll_s=0.5)


def test_a_node_that_is_lost_with_its_engines_is_called_unhealthy(fleet: FleetOfPods) -> None:
    fleet.nodes("see-f", "see-g")
    fleet.deploy(2)
    fleet.until_ready(2)
    with fleet.warden() as watching:
        until(lambda: set(watching.states().values()) == {"serving"}, SOON_S, "both serve", poll_s=0.5)
        fleet.kubelet.lose("see-f", dead=True)

        def called() -> bool:
            return ("node.unhealthy", "node/see-f") in {(one.cause, one.entity) for one in watching.look().incidents}

        until(called, 90, lambda: f"the loss is called: {watching.look()}", poll_s=0.5)
