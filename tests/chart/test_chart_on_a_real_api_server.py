"""What the chart makes is taken by a real API server, and the rights that it binds are those that the table promises."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
import yaml
from charts import BASE, NAMESPACE, SQLITE, Json, merged, of_kind, render, warden_pod
from control_plane.access import ADMIN
from control_plane.server import ControlPlane
from helm_chart.manifests import FOLDER
from helm_chart.program import CHART, run
from kubernetes import client

from actuators.kubernetes.rights import load_rights
from serving.kubernetes.rights import Right, Scope, load_base_rights

pytestmark = [pytest.mark.real_kubernetes, pytest.mark.usefixtures("helm")]
ACCOUNT = f"system:serviceaccount:{NAMESPACE}:fw-fleetwarden"
FAMILIES = load_rights().families
FULL: Json = {
    "actions": {name: {"enabled": True} for name in FAMILIES},
    "networkPolicy": {"from": [{"namespaceSelector": {}}], "egress": {"restricted": True}},
    "monitoring": {"dashboard": {"enabled": True}},
    "detectors": {"kv": {"full": 0.99}},
    "runbooks": {"own": "name: own\n"},
    "secrets": [{"secret": "chat", "key": "hook", "file": "slack"}],
    "fleet": {"telemetry": {"otlp": {"host": "0.0.0.0"}}},  # noqa: S104 - in the pod
    "priorityClassName": "system-cluster-critical",
    "tolerations": [{"key": "dedicated", "operator": "Exists"}],
}


@pytest.fixture(scope="module", autouse=True)
def api(control_plane: ControlPlane) -> Iterator[client.ApiClient]:
    made = control_plane.api_client()
    core = client.CoreV1Api(made)
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    for name in (NAMESPACE, "serving"):
        core.create_namespace({"metadata": {"name": name, "labels": labels}})
    yield made
    for name in (NAMESPACE, "serving"):
        core.delete_namespace(name)


def applied(plane: ControlPlane, one: Json, *, dry: bool) -> Json:
    """One object by server-side apply, strictly: unknown fields are refused."""
    group, _, version = one["apiVersion"].rpartition("/")
    space = one["metadata"].get("namespace")
    plural = {"NetworkPolicy": "networkpolicies"}.get(one["kind"], f"{one['kind'].lower()}s")
    path = (f"/apis/{group}/{version}" if group else f"/api/{version}") + (f"/namespaces/{space}" if space else "")
    answer = requests.patch(
        f"{plane.url}{path}/{plural}/{one['metadata']['name']}",
        params={"fieldManager": "chart", "fieldValidation": "Strict"} | ({"dryRun": "All"} if dry else {}),
        headers={
            "Authorization": f"Bearer {plane.access.token(ADMIN)}",
            "Content-Type": "application/apply-patch+yaml",
        },
        data=json.dumps(one),
        verify=str(plane.access.certificate),
        timeout=30,
    )
    assert answer.ok, answer.text
    made: Json = answer.json()
    return made


@pytest.mark.parametrize("values", [{}, SQLITE, FULL], ids=["two-replicas", "one-replica", "everything"])
def test_the_api_server_takes_every_object(control_plane: ControlPlane, tmp_path: Path, values: Json) -> None:
    objects = render(tmp_path, values)
    applied(control_plane, *of_kind(objects, "ServiceAccount"), dry=False)  # no pod is taken without its account
    for one in objects:
        assert applied(control_plane, one, dry=True)["kind"] == one["kind"]


def test_the_api_server_takes_the_plain_manifests(control_plane: ControlPlane) -> None:
    for path in (FOLDER / "fleetwarden.yaml", FOLDER / "one-replica.yaml", *(FOLDER / "rights").iterdir()):
        for one in yaml.safe_load_all(path.read_text()):
            space = {"namespace": NAMESPACE} if "namespace" in one["metadata"] else {}
            assert applied(control_plane, one | {"metadata": one["metadata"] | space}, dry=True)


def test_the_wardens_pod_is_admitted_where_only_restricted_pods_are(
    control_plane: ControlPlane, api: client.ApiClient, tmp_path: Path
) -> None:
    objects = render(tmp_path)
    applied(control_plane, *of_kind(objects, "ServiceAccount"), dry=False)
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "warden"}, "spec": warden_pod(objects)}
    made = client.CoreV1Api(api).create_namespaced_pod(NAMESPACE, pod, dry_run="All")
    assert made.spec.security_context.run_as_non_root
    pod["spec"]["securityContext"] = {}
    with pytest.raises(client.ApiException, match="violates PodSecurity"):
        client.CoreV1Api(api).create_namespaced_pod(NAMESPACE, pod, dry_run="All")


@pytest.mark.parametrize("namespaces", [[], ["serving"]], ids=["everywhere", "one-namespace"])
def test_bound_rights_are_those_of_the_table(
    control_plane: ControlPlane, api: client.ApiClient, tmp_path: Path, namespaces: list[str]
) -> None:
    fleet: Json = {"fleet": {"kubernetes": {"namespaces": namespaces}}}
    rights = load_rights()
    read = [one for rule in load_base_rights().read for one in rule.rights]
    change = {name: [one for rule in family.rules for one in rule.rights] for name, family in FAMILIES.items()}
    every = {one for ones in change.values() for one in ones} - set(read)
    reading, switched = render(tmp_path, fleet), render(tmp_path, fleet | {"actions": {"restart": {"enabled": True}}})
    try:
        bind(control_plane, reading)
        account = reviewer(control_plane)
        assert lacking(account, read, "serving") == set()
        assert lacking(account, every, "serving") == every
        bind(control_plane, switched)
        wanted = {*change["restart"], *(one for rule in rights.shared for one in rule.rights)}
        assert lacking(account, wanted, "serving") == set()
        assert lacking(account, every - wanted, "serving") == every - wanted
        elsewhere = {one for one in change["restart"] if one.scope is Scope.NAMESPACES}
        assert lacking(account, elsewhere, "default") == (elsewhere if namespaces else set())
    finally:
        unbind(api, switched)


def test_helm_installs_upgrades_and_leaves_nothing_but_the_journal(
    control_plane: ControlPlane, api: client.ApiClient, tmp_path: Path
) -> None:
    file = tmp_path / "values.yaml"
    environment = {"KUBECONFIG": str(control_plane.kubeconfig())}
    place = ("--namespace", NAMESPACE)
    access, apps = client.RbacAuthorizationV1Api(api), client.AppsV1Api(api)

    def roles() -> set[str]:
        found = access.list_cluster_role(label_selector="app.kubernetes.io/instance=real").items
        return {one.metadata.name.rpartition(":")[2] for one in found}

    file.write_text(json.dumps(merged(BASE, SQLITE)))
    told = run("install", "real", str(CHART), *place, "--values", str(file), environment=environment)
    assert "It has no right to change anything" in told
    assert apps.read_namespaced_deployment("real-fleetwarden", NAMESPACE).spec.replicas == 1
    assert roles() == {"read"}
    file.write_text(json.dumps(merged(BASE, {**SQLITE, "actions": {"restart": {"enabled": True}}})))
    told = run("upgrade", "real", str(CHART), *place, "--values", str(file), environment=environment)
    assert "It has the rights to: restart" in told
    assert roles() == {"read", "restart", "events"}
    run("uninstall", "real", *place, environment=environment)
    assert roles() == set()
    claims = client.CoreV1Api(api).list_namespaced_persistent_volume_claim(NAMESPACE).items
    assert [claim.metadata.name for claim in claims] == ["real-fleetwarden-journal"]


def bind(plane: ControlPlane, objects: list[Json]) -> None:
    for one in of_kind(objects, "ServiceAccount", "Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"):
        applied(plane, one, dry=False)


def unbind(api: client.ApiClient, objects: list[Json]) -> None:
    access = client.RbacAuthorizationV1Api(api)
    gone = {(one["kind"], one["metadata"].get("namespace", ""), one["metadata"]["name"]) for one in objects}
    for kind, space, name in gone:
        if kind == "ClusterRoleBinding":
            access.delete_cluster_role_binding(name)
        elif kind == "RoleBinding":
            access.delete_namespaced_role_binding(name, space)


def reviewer(control_plane: ControlPlane) -> client.AuthorizationV1Api:
    user = control_plane.service_account(NAMESPACE, "fw-fleetwarden")
    assert user == ACCOUNT
    return client.AuthorizationV1Api(control_plane.api_client(user))


def lacking(account: client.AuthorizationV1Api, rights: "set[Right] | list[Right]", namespace: str) -> set[Right]:
    """Which of the rights the account has not, by the API server's own word."""
    missing = set()
    for one in rights:
        resource, _, sub = one.resource.partition("/")
        asked = client.V1ResourceAttributes(
            verb=one.verb,
            group=one.group,
            resource=resource,
            subresource=sub,
            namespace=namespace if one.scope is Scope.NAMESPACES else "",
        )
        spec = client.V1SelfSubjectAccessReviewSpec(resource_attributes=asked)
        answer = account.create_self_subject_access_review(client.V1SelfSubjectAccessReview(spec=spec))
        if not answer.status.allowed:
            missing.add(one)
    return missing
