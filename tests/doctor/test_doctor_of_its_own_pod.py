"""The warden's own Deployment: several replicas must share a journal, and elect."""

from pathlib import Path

import pytest
from control_plane.server import ControlPlane
from control_plane.waiting import until
from kubernetes import client

from agent.doctor import cluster_self
from agent.doctor.cluster_self import Place, own_place
from agent.doctor.findings import Check, State
from serving.clock import SystemClock
from serving.kubernetes.connection import connect


def test_outside_of_a_cluster_there_is_no_own_pod(tmp_path: Path) -> None:
    file = tmp_path / "namespace"
    file.write_text("ops")
    assert own_place({}, file) is None
    inside = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "HOSTNAME": "warden-7d9-abc"}
    assert own_place(inside, file) == Place("ops", "warden-7d9-abc")


@pytest.mark.real_kubernetes
@pytest.mark.parametrize(
    ("replicas", "share", "state", "says"),
    [
        (1, {"sqlite": True, "elects": False}, State.OK, "1 replica"),
        (2, {"sqlite": False, "elects": True}, State.OK, "2 replicas"),
        (2, {"sqlite": True, "elects": True}, State.PROBLEM, "a journal each, in SQLite"),
        (2, {"sqlite": False, "elects": False}, State.PROBLEM, "no election"),
    ],
)
def test_replicas_share_a_journal_and_elect(
    control_plane: ControlPlane, namespace: str, replicas: int, share: dict[str, bool], state: State, says: str
) -> None:
    pod = deployed(control_plane, namespace, replicas)
    (check,) = examined(control_plane, Place(namespace, pod), **share)
    assert (check.subject, check.state) == ("warden", state)
    assert says in check.says


@pytest.mark.real_kubernetes
def test_where_the_own_workload_cannot_be_read_nothing_is_said(control_plane: ControlPlane, namespace: str) -> None:
    pod = deployed(control_plane, namespace, 2)
    nobody = control_plane.service_account(namespace, "nobody")
    assert examined(control_plane, Place(namespace, pod), nobody, sqlite=True, elects=True) == []
    assert examined(control_plane, Place(namespace, "another"), sqlite=True, elects=True) == []


def examined(plane: ControlPlane, place: Place, user: str = "admin", *, sqlite: bool, elects: bool) -> list[Check]:
    cluster = connect(plane.kubeconfig(user), clock=SystemClock())
    try:
        return cluster_self.examine(cluster, place, sqlite=sqlite, elects=elects)
    finally:
        cluster.close()


def deployed(plane: ControlPlane, namespace: str, replicas: int) -> str:
    """Make the Deployment; the name of one of its pods, which nobody runs."""
    labels = {"app": "warden"}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "warden", "image": "warden:1"}]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": pod}
    api = plane.api_client()
    client.AppsV1Api(api).create_namespaced_deployment(namespace, {"metadata": {"name": "warden"}, "spec": spec})
    core = client.CoreV1Api(api)
    until(lambda: core.list_namespaced_pod(namespace).items, 20.0, "the Deployment has a pod")
    return str(core.list_namespaced_pod(namespace).items[0].metadata.name)
