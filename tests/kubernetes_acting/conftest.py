"""Benches of the contract suite over a real API server, and a world for each test."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from acting_benches import World, world_in
from actuator_contract import Bench, Snapshot
from control_plane.server import ControlPlane

from actuators.action import Action
from actuators.kubernetes.nodes import NodesActuator
from serving.fleet.entity import Entity, EntityKind

NODES = ("contract-free", "contract-other", "contract-person")
OWN_TAINTS = ("fleetwarden.dev/unwell", "by-somebody")


@contextmanager
def nodes_bench(plane: ControlPlane) -> Iterator[Bench]:
    """Nodes that no kubelet keeps; the third was cordoned and tainted by somebody."""
    with world_in(plane, "default") as world:
        for name in NODES:
            world.add_node(name)
        theirs = {"key": "by-somebody", "effect": "NoSchedule"}
        world.patch_node(NODES[2], {"spec": {"unschedulable": True, "taints": [theirs]}})

        def snapshot() -> Snapshot:
            found = {}
            for name in NODES:
                spec = world.node(name).get("spec", {})
                taints = {taint["key"] for taint in spec.get("taints", ())} & set(OWN_TAINTS)
                found[name] = (spec.get("unschedulable", False), sorted(taints))
            return found

        targets = [Entity(EntityKind.NODE, name) for name in (*NODES, "nobody")]
        actions = [Action(verb, target) for target in targets for verb in ("node.cordon", "node.uncordon")]
        actions += [Action(verb, target) for target in targets[:1] for verb in ("node.taint", "node.untaint")]
        actions += [Action("node.untaint", targets[2], {"taint": "by-somebody:NoSchedule"})]
        actions += [Action("node.taint", targets[1], {"taint": "no taint"})]
        yield Bench(NodesActuator(world.access()), tuple(actions), snapshot, examples=12)


BENCHES = {"nodes": nodes_bench}


@pytest.fixture(scope="module", params=BENCHES)
def bench(request: pytest.FixtureRequest, control_plane: ControlPlane) -> Iterator[Bench]:
    with BENCHES[request.param](control_plane) as made:
        yield made


@pytest.fixture
def world(control_plane: ControlPlane, namespace: str) -> Iterator[World]:
    with world_in(control_plane, namespace) as made:
        yield made
