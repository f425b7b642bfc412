"""Cordons on a real API server: other people's hands, other incidents, a server that is slow, away or restarted."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from acting_benches import CLOCK, World, world_in
from control_plane.server import ControlPlane

from actuators.action import Action, Outcome, OutcomeStatus
from actuators.kubernetes.access import Access
from actuators.kubernetes.ledger import records
from actuators.kubernetes.nodes import NodesActuator
from actuators.kubernetes.object_change import ObjectChange
from serving.clock import FakeClock
from serving.fleet.entity import Entity, EntityKind
from serving.kubernetes.client import path_of
from serving.kubernetes.cluster_error import ClusterError
from serving.kubernetes.connection import connect

pytestmark = pytest.mark.real_kubernetes
DONE, FAILED, UNKNOWN = OutcomeStatus.DONE, OutcomeStatus.FAILED, OutcomeStatus.UNKNOWN


@pytest.fixture
def node(world: World) -> str:
    name = f"{world.namespace}-node"
    world.add_node(name)
    return name


@pytest.fixture
def actuator(world: World) -> NodesActuator:
    return NodesActuator(world.access(deadline_s=1.0))


def act(verb: str, node: str) -> Action:
    return Action(verb, Entity(EntityKind.NODE, node))


def closed(world: World, node: str) -> bool:
    return bool(world.node(node)["spec"].get("unschedulable"))


@contextmanager
def frozen(plane: ControlPlane) -> Iterator[None]:
    plane.api_server.freeze()
    try:
        yield
    finally:
        plane.api_server.thaw()


def test_an_event_on_the_node_tells_what_was_done(world: World, actuator: NodesActuator, node: str) -> None:
    actuator.apply(act("node.cordon", node), "7/1/cordon")
    events = world.client.list_all(path_of("events.k8s.io/v1", "events", namespace="default")).items
    (event,) = [one for one in events if one["regarding"].get("name") == node and one["reason"] == "NodeCordon"]
    assert (event["reportingController"], event["action"]) == ("fleetwarden.dev/warden", "node.cordon")
    assert "7/1/cordon" in event["note"]
    assert event["metadata"]["managedFields"][0]["manager"] == "fleetwarden"


def test_two_incidents_on_one_node_let_go_of_it_one_by_one(world: World, actuator: NodesActuator, node: str) -> None:
    threads = [
        threading.Thread(target=actuator.apply, args=(act("node.cordon", node), f"{number}/1/cordon")) for number in (1, 2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    first = actuator.apply(act("node.uncordon", node), "1/1/undo")
    assert first.status is DONE
    assert "stays cordoned for 2" in first.detail
    assert closed(world, node)
    assert actuator.apply(act("node.uncordon", node), "2/1/undo").status is DONE
    assert not closed(world, node)


def test_a_persons_uncordon_stands_against_the_incident_that_had_cordoned(
    world: World, actuator: NodesActuator, node: str
) -> None:
    actuator.apply(act("node.cordon", node), "1/1/cordon")
    world.patch_node(node, {"spec": {"unschedulable": None}})
    again = actuator.apply(act("node.cordon", node), "1/2/cordon")
    assert (again.status, again.permanent) == (FAILED, True)
    assert not closed(world, node)
    assert actuator.apply(act("node.uncordon", node), "1/2/undo").status is DONE


def test_a_person_who_cordons_after_us_keeps_the_node(world: World, actuator: NodesActuator, node: str) -> None:
    actuator.apply(act("node.cordon", node), "1/1/cordon")
    world.patch_node(node, {"spec": {"unschedulable": None}})
    world.patch_node(node, {"spec": {"unschedulable": True}})
    undone = actuator.apply(act("node.uncordon", node), "1/1/undo")
    assert (undone.status, undone.permanent) == (FAILED, True)
    assert closed(world, node)


def test_what_changes_between_reading_and_writing_is_planned_anew(
    world: World, actuator: NodesActuator, node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, turns = ObjectChange._read, []

    def meddled(self: ObjectChange) -> dict[str, object]:
        live = read(self)
        turns.append(1)
        if len(turns) == 1:
            world.patch_node(node, {"spec": {"unschedulable": True}})
        return live

    monkeypatch.setattr(ObjectChange, "_read", meddled)
    outcome = actuator.apply(act("node.cordon", node), "1/1/cordon")
    assert (outcome.status, len(turns)) == (DONE, 2)
    assert outcome.before == outcome.after  # the person was faster, so there is nothing to take back
    assert "fleetwarden.dev/cordoned-by" not in world.node(node)["metadata"]["annotations"]


def test_an_answer_that_is_lost_is_looked_up(
    world: World, actuator: NodesActuator, node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = ObjectChange._write

    def lost(self: ObjectChange, *arguments: object, **more: object) -> None:
        write(self, *arguments, **more)
        raise ClusterError(0, "Timeout", "no answer in time")

    monkeypatch.setattr(ObjectChange, "_write", lost)
    assert actuator.apply(act("node.cordon", node), "1/1/cordon").status is DONE
    assert closed(world, node)


def test_a_frozen_server_leaves_nothing_half_done(
    control_plane: ControlPlane, world: World, actuator: NodesActuator, node: str
) -> None:
    world.frozen = world.map()
    with frozen(control_plane):
        outcome = actuator.apply(act("node.cordon", node), "1/1/cordon")
        assert (outcome.status, outcome.permanent) == (FAILED, False)  # it could not even be read
        assert actuator.look_up(act("node.cordon", node), "1/1/cordon").status is UNKNOWN
    assert not closed(world, node)
    assert actuator.look_up(act("node.cordon", node), "1/1/cordon").status is FAILED
    assert actuator.apply(act("node.cordon", node), "1/1/cordon/2").status is DONE


def test_a_write_that_the_server_took_before_it_froze_is_found_later(
    control_plane: ControlPlane, world: World, actuator: NodesActuator, node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.frozen = world.map()
    write = ObjectChange._write

    def then_frozen(self: ObjectChange, *arguments: object, **more: object) -> None:
        write(self, *arguments, **more)
        control_plane.api_server.freeze()
        raise ClusterError(0, "Timeout", "no answer in time")

    monkeypatch.setattr(ObjectChange, "_write", then_frozen)
    try:
        outcome: Outcome = actuator.apply(act("node.cordon", node), "1/1/cordon")
        assert outcome.status is UNKNOWN
    finally:
        control_plane.api_server.thaw()
    found = actuator.look_up(act("node.cordon", node), "1/1/cordon")
    assert (found.status, found.after["unschedulable"]) == (DONE, True)


def test_a_restarted_server_makes_no_difference(
    control_plane: ControlPlane, world: World, actuator: NodesActuator, node: str
) -> None:
    actuator.apply(act("node.cordon", node), "1/1/cordon")
    world.frozen = world.map()
    control_plane.api_server.kill()
    away = actuator.apply(act("node.uncordon", node), "1/1/undo")
    assert (away.status, away.permanent) == (FAILED, False)
    control_plane.restart_api_server()
    assert closed(world, node)
    assert actuator.apply(act("node.uncordon", node), "1/1/undo/2").status is DONE
    assert actuator.look_up(act("node.cordon", node), "1/1/cordon").status is DONE


def test_who_does_not_lead_writes_nothing(world: World, node: str) -> None:
    deposed = NodesActuator(Access(world.client, world.map, world.clock, permit=lambda _: None))
    outcome = deposed.apply(act("node.cordon", node), "1/1/cordon")
    assert (outcome.status, outcome.permanent) == (FAILED, False)
    assert "another warden leads" in outcome.detail
    assert not closed(world, node)


def test_an_unreadable_record_stops_the_warden(world: World, actuator: NodesActuator, node: str) -> None:
    world.patch_node(node, {"metadata": {"annotations": {"fleetwarden.dev/operations": "{"}}})
    outcome = actuator.apply(act("node.cordon", node), "1/1/cordon")
    assert (outcome.status, outcome.permanent) == (FAILED, True)
    assert not closed(world, node)


def test_a_missing_right_is_named(control_plane: ControlPlane, world: World, node: str) -> None:
    user = control_plane.service_account(world.namespace, "powerless")
    with world_in(control_plane, world.namespace, user) as theirs:
        theirs.frozen = world.map()
        outcome = NodesActuator(theirs.access()).apply(act("node.cordon", node), "1/1/cordon")
    assert (outcome.status, outcome.permanent) == (FAILED, True)
    assert 'cannot get resource "nodes"' in outcome.detail
    assert "rights.yaml" in outcome.detail


def test_a_clock_that_is_wrong_does_not_show_in_the_record(control_plane: ControlPlane, world: World, node: str) -> None:
    late = FakeClock(CLOCK.now() - 7200)
    cluster = connect(control_plane.kubeconfig(), clock=late)
    NodesActuator(Access(cluster, world.map, late)).apply(act("node.cordon", node), "1/1/cordon")
    cluster.close()
    (record,) = records(world.node(node))
    assert record.at == pytest.approx(CLOCK.now(), abs=3)
