"""Rollouts and scaling on a real control plane, and their rules without one."""

from typing import Any

import pytest
from acting_benches import World, pod_spec, workload
from control_plane.kubelet.kubelet import ProcessKubelet
from control_plane.waiting import until
from fleet_bench import Fleet, process

from actuators.action import Action, OutcomeStatus, Scalar
from actuators.kubernetes.object_change import Refused
from actuators.kubernetes.revisions import Revision, last_good
from actuators.kubernetes.rollouts import RolloutsActuator, rolled_back
from actuators.kubernetes.scaling import ScalingActuator
from actuators.kubernetes.workloads import lost_in_rollout
from serving.fleet.entity import Entity, EntityKind
from serving.kubernetes.client import path_of

DONE, FAILED = OutcomeStatus.DONE, OutcomeStatus.FAILED
NEW_BEFORE_OLD = {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}
real = pytest.mark.real_kubernetes


def on_model(verb: str, model: str = "llm", **arguments: Scalar) -> Action:
    return Action(verb, Entity(EntityKind.MODEL, model), arguments)


def revision(number: int, mark: str, ready: int = 0) -> Revision:
    return Revision(number, mark, {"image": mark}, ready)


def test_the_last_good_revision_is_the_newest_that_was_not_found_bad_serving_ones_first() -> None:
    history = [revision(1, "a"), revision(2, "b"), revision(3, "c")]
    assert last_good(history, ()) == history[1]
    assert last_good(history, ("b",)) == history[0]
    assert last_good([revision(1, "a", ready=2), *history[1:]], ()) == revision(1, "a", ready=2)
    assert last_good(history[:1], ()) is None
    assert last_good((), ()) is None


def test_what_was_rolled_back_from_is_not_gone_forth_to() -> None:
    live: dict[str, Any] = {"metadata": {"name": "llm"}, "spec": {"template": {"image": "b"}}}
    change = rolled_back(live, (revision(1, "a"), revision(2, "b")))
    assert not isinstance(change, Refused)
    assert change.wanted["spec"]["template"] == {"image": "a"}
    again = rolled_back(dict(change.wanted), (revision(2, "b"), revision(3, "a")))
    assert isinstance(again, Refused)
    assert again.permanent


@pytest.mark.parametrize(
    ("strategy", "replicas", "lost"),
    [
        ({}, 2, 0),  # a quarter of two, rounded down
        ({}, 8, 2),
        ({"type": "Recreate"}, 3, 3),
        ({"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}, 8, 0),
        ({"rollingUpdate": {"maxUnavailable": "10%", "maxSurge": 0}}, 5, 1),
        ({"rollingUpdate": {"maxUnavailable": 1}}, 5, 1),
    ],
)
def test_how_many_pods_a_rollout_may_lack(strategy: dict[str, Any], replicas: int, lost: int) -> None:
    assert lost_in_rollout({"replicas": replicas, "strategy": strategy}) == lost


@pytest.fixture
def scaling(world: World) -> ScalingActuator:
    return ScalingActuator(world.access())


@pytest.fixture
def rollouts(world: World) -> RolloutsActuator:
    return RolloutsActuator(world.access())


@pytest.fixture
def deployment(world: World) -> str:
    """A Deployment whose pods find no node."""
    path = path_of("apps/v1", "deployments", namespace=world.namespace)
    world.client.create(path, workload("llm", 2, pod_spec(), strategy=NEW_BEFORE_OLD))
    return f"{path}/llm"


def replicas(world: World, path: str) -> int:
    return int(world.client.get(path)["spec"]["replicas"])


@real
def test_a_workload_is_scaled_once_for_one_key_and_back(world: World, scaling: ScalingActuator, deployment: str) -> None:
    more = on_model("workload.scale", replicas=4, most=4)
    assert scaling.rehearse(more).after["replicas"] == 4
    assert replicas(world, deployment) == 2
    outcome = scaling.apply(more, "1/1/scale")
    assert (outcome.status, outcome.before["replicas"], replicas(world, deployment)) == (DONE, 2, 4)
    world.client.patch(deployment, {"spec": {"replicas": 3}})
    assert scaling.apply(more, "1/1/scale").status is DONE
    assert replicas(world, deployment) == 3
    assert scaling.look_up(more, "1/1/scale").before["replicas"] == 2


@real
def test_bounds_are_kept(world: World, scaling: ScalingActuator, deployment: str) -> None:
    for arguments in ({"replicas": 0}, {"replicas": 9, "most": 8}, {"replicas": 2, "least": 3}):
        outcome = scaling.apply(on_model("workload.scale", **arguments), str(arguments))
        assert (outcome.status, outcome.permanent) == (FAILED, True)
    assert replicas(world, deployment) == 2


@real
def test_an_autoscaler_is_never_fought(world: World, scaling: ScalingActuator, deployment: str) -> None:
    hpas = path_of("autoscaling/v2", "horizontalpodautoscalers", namespace=world.namespace)
    aim = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "llm"}
    spec = {"scaleTargetRef": aim, "minReplicas": 2, "maxReplicas": 5}
    world.client.create(hpas, {"metadata": {"name": "auto"}, "spec": spec})
    refused = scaling.apply(on_model("workload.scale", replicas=4), "1/1/scale")
    assert (refused.status, refused.permanent) == (FAILED, True)
    assert "HorizontalPodAutoscaler auto" in refused.detail
    assert replicas(world, deployment) == 2
    told = on_model("workload.scale", replicas=4, through_autoscaler=True)
    outcome = scaling.apply(told, "1/2/scale")
    assert (outcome.status, outcome.before["replicas"], outcome.after["replicas"]) == (DONE, 2, 4)
    assert world.client.get(f"{hpas}/auto")["spec"]["minReplicas"] == 4
    too_many = scaling.apply(on_model("workload.scale", replicas=6, through_autoscaler=True), "1/3/scale")
    assert (too_many.status, too_many.permanent) == (FAILED, True)


@real
def test_what_keda_owns_is_left_to_keda(world: World, scaling: ScalingActuator, deployment: str) -> None:
    hpas = path_of("autoscaling/v2", "horizontalpodautoscalers", namespace=world.namespace)
    owner = {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "name": "by-queue", "uid": "u", "controller": True}
    aim = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "llm"}
    world.client.create(
        hpas, {"metadata": {"name": "keda", "ownerReferences": [owner]}, "spec": {"scaleTargetRef": aim, "maxReplicas": 5}}
    )
    for through in (False, True):
        outcome = scaling.apply(on_model("workload.scale", replicas=4, through_autoscaler=through), f"1/{through}/scale")
        assert (outcome.status, outcome.permanent) == (FAILED, True)
        assert "ScaledObject by-queue" in outcome.detail
    assert replicas(world, deployment) == 2


@real
def test_what_something_else_keeps_is_not_changed(world: World, scaling: ScalingActuator, deployment: str) -> None:
    owner = {"apiVersion": "serving.example/v1", "kind": "InferenceService", "name": "above", "uid": "u", "controller": True}
    world.client.patch(deployment, {"metadata": {"ownerReferences": [owner]}})
    outcome = scaling.apply(on_model("workload.scale", replicas=4), "1/1/scale")
    assert (outcome.status, outcome.permanent) == (FAILED, True)
    assert "InferenceService above" in outcome.detail


@real
def test_a_restart_brings_the_new_before_the_old(world: World, kubelet: ProcessKubelet, rollouts: RolloutsActuator) -> None:
    fleet = Fleet(world, kubelet)
    fleet.add_nodes("a")
    fleet.run("deployments", workload("llm", 2, process(), strategy=NEW_BEFORE_OLD))
    old = {pod["metadata"]["uid"] for pod in fleet.until_ready("llm", 2)}
    least = [2]

    def restarted() -> bool:
        ready = fleet.ready("llm")
        least[0] = min(least[0], len(ready))
        return len(ready) == 2 and not old & {pod["metadata"]["uid"] for pod in ready}

    restart = on_model("rollout.restart")
    until(lambda: rollouts.rehearse(restart).status is DONE, 20, "the first rollout is over")
    assert rollouts.apply(restart, "1/1/restart").status is DONE
    until(restarted, 60, lambda: fleet.told("llm"))
    assert least == [2]
    until(lambda: rollouts.rehearse(restart).status is DONE, 20, "the rollout is over")
    generation = world.client.get(path_of("apps/v1", "deployments", "llm", namespace=world.namespace))["metadata"][
        "generation"
    ]
    assert rollouts.apply(restart, "1/1/restart").status is DONE
    again = world.client.get(path_of("apps/v1", "deployments", "llm", namespace=world.namespace))["metadata"]["generation"]
    assert again == generation


@real
def test_a_rollout_that_would_end_engines_first_is_refused(
    world: World, rollouts: RolloutsActuator, deployment: str
) -> None:
    world.client.patch(deployment, {"spec": {"strategy": {"rollingUpdate": {"maxUnavailable": 1}}}})
    outcome = rollouts.apply(on_model("rollout.restart"), "1/1/restart")
    assert (outcome.status, outcome.permanent) == (FAILED, True)
    assert "set maxUnavailable to 0" in outcome.detail


@real
@pytest.mark.parametrize("plural", ["deployments", "statefulsets"])
def test_a_bad_rollout_is_taken_back_and_stays_back(world: World, rollouts: RolloutsActuator, plural: str) -> None:
    path = path_of("apps/v1", plural, namespace=world.namespace)
    world.client.create(path, workload("llm", 1, pod_spec(containers=[{"name": "main", "image": "good"}])))
    revisions = path_of(
        "apps/v1", "replicasets" if plural == "deployments" else "controllerrevisions", namespace=world.namespace
    )
    until(lambda: len(world.client.list_all(revisions).items) == 1, 20, "the first revision is there")
    bad = {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "bad", "env": [{"name": "A"}]}]}}}}
    world.client.patch(f"{path}/llm", bad)
    until(lambda: len(world.client.list_all(revisions).items) == 2, 20, "the second revision is there")
    back = on_model("rollout.rollback")
    rehearsed, outcome = rollouts.rehearse(back), rollouts.apply(back, "1/1/back")
    assert (outcome.status, outcome.before, outcome.after) == (DONE, rehearsed.before, rehearsed.after)
    (container,) = world.client.get(f"{path}/llm")["spec"]["template"]["spec"]["containers"]
    assert (container["image"], "env" in container) == ("good", False)
    until(lambda: rollouts.rehearse(back).permanent, 20, "there is nothing to go back to any more")
    assert rollouts.look_up(back, "1/1/back").status is DONE


@real
def test_a_model_that_nobody_serves_is_told(rollouts: RolloutsActuator) -> None:
    outcome = rollouts.apply(on_model("rollout.rollback", "nothing"), "1/1/back")
    assert (outcome.status, outcome.permanent) == (FAILED, True)
