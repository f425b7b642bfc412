"""Draining nodes on a real control plane, with a real front door: nothing is evicted that is still sent requests."""

import threading
from collections.abc import Iterator

import pytest
from acting_benches import World, workload
from control_plane.kubelet.kubelet import ProcessKubelet
from control_plane.server import ControlPlane
from control_plane.waiting import until
from fleet_bench import Fleet, on_node, passes, process
from front_door_bench import running_front_door

from actuators.action import OutcomeStatus
from actuators.door import DoorActuator, Seat
from actuators.kubernetes.emptying import EmptyingActuator
from actuators.kubernetes.nodes import NodesActuator

pytestmark = pytest.mark.real_kubernetes
DONE, FAILED = OutcomeStatus.DONE, OutcomeStatus.FAILED


@pytest.fixture
def fleet(world: World, kubelet: ProcessKubelet) -> Fleet:
    """Four engines of a StatefulSet on two nodes."""
    made = Fleet(world, kubelet)
    made.add_nodes("a", "b")
    made.run("statefulsets", workload("llm", 3, process(), podManagementPolicy="Parallel"))
    made.until_ready("llm", 3)
    return made


@pytest.fixture
def door(fleet: Fleet) -> Iterator[DoorActuator]:
    with running_front_door([pod["metadata"]["name"] for pod in fleet.pods("llm")]) as made:
        yield made


def drained(door: DoorActuator) -> set[str]:
    return {name for name, seat in (door.seats() or {}).items() if seat.drained_by is not None}


def busiest(fleet: Fleet) -> str:
    return max(fleet.names, key=lambda name: len(fleet.on(name, "llm")))


def unschedulable(fleet: Fleet, node: str) -> bool:
    return bool(fleet.world.node(node)["spec"].get("unschedulable"))


def test_a_node_is_emptied_and_its_engines_serve_elsewhere(fleet: Fleet, door: DoorActuator) -> None:
    node = busiest(fleet)
    emptying = EmptyingActuator(fleet.world.access(), door)
    drain = on_node("node.drain", node)
    before = len(fleet.on(node, "llm"))
    rehearsed = emptying.rehearse(drain)
    assert (rehearsed.status, rehearsed.before["pods"], len(fleet.on(node, "llm"))) == (DONE, before, before)
    first = emptying.apply(drain, "1/1/drain")
    assert first.before["pods"] == before
    outcome = passes(emptying, drain, "1/1/again") if first.status is FAILED else first
    assert (outcome.status, outcome.after["pods"]) == (DONE, 0)
    assert not fleet.on(node, "llm")
    assert unschedulable(fleet, node)
    fleet.until_ready("llm", 3)
    assert drained(door) == set()
    assert NodesActuator(fleet.world.access()).apply(on_node("node.uncordon", node), "1/1/undo").status is DONE
    assert not unschedulable(fleet, node)


def test_no_engine_is_evicted_that_the_front_door_still_sends_requests(fleet: Fleet, door: DoorActuator) -> None:
    node = busiest(fleet)
    there = {pod["metadata"]["name"] for pod in fleet.on(node, "llm")}
    busy = dict.fromkeys(there, Seat("fleetwarden", 2))
    door.seats = lambda: busy  # type: ignore[method-assign] - requests that take as long as the test likes
    emptying = EmptyingActuator(fleet.world.access(), door)
    waits = emptying.apply(on_node("node.drain", node), "1/1/drain")
    assert waits.status is FAILED
    assert f"waits for {2 * len(there)} requests in flight" in waits.detail
    assert {pod["metadata"]["name"] for pod in fleet.on(node, "llm")} == there
    del door.seats
    assert drained(door) == there


def test_a_front_door_that_does_not_answer_stops_evictions(fleet: Fleet) -> None:
    node = busiest(fleet)
    nobody = DoorActuator("http://127.0.0.1:9", timeout_s=0.5)
    outcome = EmptyingActuator(fleet.world.access(), nobody).apply(on_node("node.drain", node), "1/1/drain")
    assert (outcome.status, outcome.permanent) == (FAILED, False)
    assert "nothing was evicted" in outcome.detail
    assert len(fleet.ready("llm")) == 3


def test_a_tight_budget_lets_engines_go_one_by_one(fleet: Fleet, door: DoorActuator) -> None:
    fleet.budget("llm", maxUnavailable=1)
    least = [3]
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.05):
            least[0] = min(least[0], len(fleet.ready("llm")))

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        outcome = passes(EmptyingActuator(fleet.world.access(), door), on_node("node.drain", busiest(fleet)), seconds=90)
    finally:
        over.set()
        watcher.join()
    assert outcome.status is DONE
    assert least[0] >= 2


def test_a_budget_that_forbids_everything_leaves_all_as_it_was_but_the_cordon(fleet: Fleet, door: DoorActuator) -> None:
    fleet.budget("llm", maxUnavailable=0)
    node = busiest(fleet)
    outcome = EmptyingActuator(fleet.world.access(patience_s=0.0), door).apply(on_node("node.drain", node), "1/1/drain")
    assert (outcome.status, outcome.permanent) == (FAILED, False)
    assert outcome.before["pods"] == outcome.after["pods"] == len(fleet.on(node, "llm"))
    assert "disruption budget" in outcome.detail
    assert len(fleet.ready("llm")) == 3


def test_who_uncordons_in_mid_drain_ends_it(fleet: Fleet, door: DoorActuator) -> None:
    fleet.budget("llm", maxUnavailable=0)
    node = busiest(fleet)
    emptying = EmptyingActuator(fleet.world.access(patience_s=0.0), door)
    assert emptying.apply(on_node("node.drain", node), "1/1/drain").status is FAILED
    assert drained(door)
    fleet.world.patch_node(node, {"spec": {"unschedulable": None}})
    outcome = emptying.apply(on_node("node.drain", node), "1/1/drain/2")
    assert (outcome.status, outcome.permanent) == (FAILED, True)
    assert "uncordoned by somebody" in outcome.detail
    assert not unschedulable(fleet, node)
    assert drained(door) == set()
    assert len(fleet.ready("llm")) == 3


def test_a_node_that_vanishes_in_mid_drain_leaves_no_engine_out_of_rotation(fleet: Fleet, door: DoorActuator) -> None:
    fleet.budget("llm", maxUnavailable=0)
    node = busiest(fleet)
    emptying = EmptyingActuator(fleet.world.access(patience_s=0.0), door)
    assert emptying.apply(on_node("node.drain", node), "1/1/drain").status is FAILED
    fleet.kubelet.remove_node(node)
    outcome = emptying.apply(on_node("node.drain", node), "1/1/drain/2")
    assert (outcome.status, outcome.permanent) == (FAILED, True)
    assert "is gone" in outcome.detail
    assert drained(door) == set()
    fleet.until_ready("llm", 3)


def test_a_drain_goes_on_after_the_server_was_away(fleet: Fleet, door: DoorActuator, control_plane: ControlPlane) -> None:
    node = busiest(fleet)
    fleet.world.frozen = fleet.world.map()
    emptying = EmptyingActuator(fleet.world.access(deadline_s=1.0), door)
    control_plane.api_server.kill()
    away = emptying.apply(on_node("node.drain", node), "1/1/drain")
    assert (away.status, away.permanent) == (FAILED, False)
    control_plane.restart_api_server()
    fleet.until_ready("llm", 3)
    assert passes(emptying, on_node("node.drain", node), "1/1/later").status is DONE
    until(lambda: not fleet.on(node, "llm"), 5, "the node is empty")


def test_two_incidents_drain_one_node_and_one_of_them_lets_go(fleet: Fleet, door: DoorActuator) -> None:
    node = busiest(fleet)
    emptying, nodes = EmptyingActuator(fleet.world.access(), door), NodesActuator(fleet.world.access())
    results: list[OutcomeStatus] = []

    def drain(incident: str) -> None:
        results.append(passes(emptying, on_node("node.drain", node), f"{incident}/1/drain").status)

    threads = [threading.Thread(target=drain, args=(incident,)) for incident in ("1", "2")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [DONE, DONE]
    assert nodes.apply(on_node("node.uncordon", node), "1/1/undo").status is DONE
    assert unschedulable(fleet, node)
    assert nodes.apply(on_node("node.uncordon", node), "2/1/undo").status is DONE
    assert not unschedulable(fleet, node)
    assert drained(door) == set()


def test_pods_of_daemon_sets_stay_and_pods_of_nobody_are_told(fleet: Fleet, door: DoorActuator) -> None:
    node = busiest(fleet)
    alone = {"metadata": {"name": "alone", "labels": {"app": "alone"}}, "spec": {**process(), "nodeName": node}}
    fleet.world.client.create(fleet.world.pod_path(""), alone)
    template = {"metadata": {"labels": {"app": "exporter"}}, "spec": process()}
    del template["spec"]["containers"][0]["resources"]  # an exporter asks for no GPU, which may all be given out
    selector = {"matchLabels": {"app": "exporter"}}
    fleet.run("daemonsets", {"metadata": {"name": "exporter"}, "spec": {"selector": selector, "template": template}})
    fleet.until_ready("exporter", 2)
    fleet.until_ready("alone", 1)
    outcome = passes(EmptyingActuator(fleet.world.access(), door), on_node("node.drain", node))
    assert (outcome.status, outcome.permanent, outcome.after["pods"]) == (FAILED, True, 1)
    assert "nothing would start it anew" in outcome.detail
    assert len(fleet.ready("exporter")) == 2
    assert not fleet.on(node, "llm")
