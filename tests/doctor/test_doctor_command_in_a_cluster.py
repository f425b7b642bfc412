"""`fleetwarden doctor` over a fleet that lies in a real cluster, with the account of a warden."""

from pathlib import Path

import orjson
import pytest
import typer
import yaml
from control_plane.kubelet.kubelet import ProcessKubelet
from control_plane.kubelet.node import NodeSpec
from control_plane.manifests import vllm_container
from control_plane.server import ControlPlane
from control_plane.waiting import until
from kubernetes import client
from typer.testing import CliRunner

from agent.cli.doctor import doctor
from serving.kubernetes.rights import load_base_rights

pytestmark = pytest.mark.real_kubernetes


def engines(plane: ControlPlane, namespace: str, replicas: int) -> None:
    """Engines of a StatefulSet, all ready."""
    labels = {"app": "vllm"}
    pod = {"metadata": {"labels": labels}, "spec": {"terminationGracePeriodSeconds": 1, "containers": [vllm_container()]}}
    spec = {"replicas": replicas, "serviceName": "e", "selector": {"matchLabels": labels}, "template": pod}
    spec["podManagementPolicy"] = "Parallel"
    apps = client.AppsV1Api(plane.api_client())
    apps.create_namespaced_stateful_set(namespace, {"metadata": {"name": "e"}, "spec": spec})
    until(
        lambda: apps.read_namespaced_stateful_set("e", namespace).status.ready_replicas == replicas,
        *(60.0, "the engines are ready"),
    )


def reader(plane: ControlPlane, namespace: str) -> Path:
    """The kubeconfig of an account that may read and no more."""
    user = plane.service_account(namespace, "warden")
    access = client.RbacAuthorizationV1Api(plane.api_client())
    rules = [rule.model_dump(mode="json", exclude={"scope"}) for rule in load_base_rights().read]
    access.create_cluster_role({"metadata": {"name": f"read-{namespace}"}, "rules": rules})
    ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": f"read-{namespace}"}
    subject = {"kind": "ServiceAccount", "name": "warden", "namespace": namespace}
    access.create_cluster_role_binding({"metadata": {"name": f"read-{namespace}"}, "roleRef": ref, "subjects": [subject]})
    return plane.kubeconfig(user)


def test_a_fleet_in_a_cluster_is_examined_engine_by_engine_and_right_by_right(
    control_plane: ControlPlane, kubelet: ProcessKubelet, namespace: str, tmp_path: Path
) -> None:
    kubelet.add_node(NodeSpec("doctor-node", gpus=2))
    engines(control_plane, namespace, 2)
    cluster = {"selector": "app=vllm", "namespaces": [namespace], "kubeconfig": str(reader(control_plane, namespace))}
    door = {"name": "door", "url": "http://127.0.0.1:9", "admin_url": "http://127.0.0.1:10"}  # runbooks need one; it is down
    fleet = {"fleet": "test", "kubernetes": cluster, "gateway": door}
    (tmp_path / "fleet.yaml").write_text(yaml.safe_dump(fleet))
    grants = [{"runbook": "engine-hung", "autonomy": "auto"}]
    settings = {"state_dir": "state", "fleet": "fleet.yaml", "http": {"port": 0}, "policy": {"grants": grants}}
    (tmp_path / "warden.yaml").write_text(yaml.safe_dump(settings))
    app = typer.Typer()
    app.command()(doctor)
    told = CliRunner().invoke(app, ["--config", str(tmp_path / "warden.yaml"), "--json"])
    assert told.exit_code == 1, told.output
    checks = orjson.loads(told.stdout)["checks"]
    answers = [check for check in checks if check["check"] == "engine.answers"]
    assert [(check["subject"], check["state"]) for check in answers] == [("e-0", "ok"), ("e-1", "ok")]
    (missing,) = [check for check in checks if check["check"] == "cluster.rights" and check["subject"] == "restart"]
    assert missing["details"]["line"] == '- {apiGroups: [""], resources: ["pods"], verbs: [patch, delete]}'
    assert missing["details"]["namespace"] == namespace
