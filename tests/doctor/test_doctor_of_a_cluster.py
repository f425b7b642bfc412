"""The cluster examined with accounts of many and of few rights, against a real API server."""

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from control_plane.server import ControlPlane
from kubernetes import client

from actuators.kubernetes.rights import load_rights
from agent.doctor import cluster
from agent.doctor.cluster import Wanted
from agent.doctor.findings import Check, State
from serving.clock import SystemClock
from serving.fleet.kubernetes_entry import KubernetesEntry
from serving.kubernetes.rights import Rule, Scope, load_base_rights

pytestmark = pytest.mark.real_kubernetes
RESTART = Wanted(frozenset({"process.restart", "door.drain"}))
READ, CHANGE = load_base_rights().read, load_rights()
_numbers = count()


class Account:
    """A service account whose rights a test gives, and the fleet in its namespace."""

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        self.namespace = namespace
        self._plane = plane
        self._name = f"warden-{next(_numbers)}"
        self.user = plane.service_account(namespace, self._name)
        self._access = client.RbacAuthorizationV1Api(plane.api_client())
        self._bound: list[str] = []

    def may(self, *rules: Rule) -> None:
        """Bind rules everywhere."""
        name = f"{self._name}-{next(_numbers)}"
        given = [rule.model_dump(mode="json", exclude={"scope"}) for rule in rules]
        self._access.create_cluster_role({"metadata": {"name": name}, "rules": given})
        subject = {"kind": "ServiceAccount", "name": self._name, "namespace": self.namespace}
        ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
        self._access.create_cluster_role_binding({"metadata": {"name": name}, "roleRef": ref, "subjects": [subject]})
        self._bound.append(name)

    def may_here(self, *rules: Rule) -> None:
        """Bind rules in the fleet's namespace alone."""
        given = [rule.model_dump(mode="json", exclude={"scope"}) for rule in rules]
        role = {"metadata": {"name": f"{self._name}-{next(_numbers)}"}, "rules": given}
        self._access.create_namespaced_role(self.namespace, role)
        ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role["metadata"]["name"]}
        subject = {"kind": "ServiceAccount", "name": self._name, "namespace": self.namespace}
        self._access.create_namespaced_role_binding(
            self.namespace, {"metadata": role["metadata"], "roleRef": ref, "subjects": [subject]}
        )

    def entry(self, **given: Any) -> KubernetesEntry:
        return KubernetesEntry(**{"selector": "app=vllm", "kubeconfig": self._plane.kubeconfig(self.user), **given})

    def checks(self, wanted: Wanted = Wanted(), **given: Any) -> list[Check]:  # noqa: B008 - frozen
        return cluster.examine(self.entry(**given), wanted, SystemClock())

    def wrong(self, wanted: Wanted = Wanted(), **given: Any) -> list[Check]:  # noqa: B008 - frozen
        return [
            check
            for check in self.checks(wanted, **given)
            if check.check == "cluster.rights" and check.state is not State.OK
        ]

    def remove(self) -> None:
        for name in self._bound:
            self._access.delete_cluster_role_binding(name)
            self._access.delete_cluster_role(name)


@pytest.fixture
def account(control_plane: ControlPlane, namespace: str) -> Iterator[Account]:
    made = Account(control_plane, namespace)
    yield made
    made.remove()


def of(checks: list[Check], name: str) -> Check:
    (found,) = [check for check in checks if check.check == name]
    return found


def test_an_account_that_may_read_needs_no_more_while_nothing_may_act(account: Account) -> None:
    account.may(*READ)
    checks = account.checks()
    assert account.wrong() == []
    assert of(checks, "cluster.answers").state is State.OK
    assert of(checks, "cluster.version").details["version"].startswith("v1.")
    assert of(checks, "cluster.clock").state is State.OK


def test_an_account_without_rights_is_told_each_line_to_add(account: Account) -> None:
    told = {check.details["line"]: check for check in account.wrong()}
    line = '- {apiGroups: [""], resources: ["pods"], verbs: [get, list, watch]}'
    assert told[line].says == "may not get, list, watch pods in the whole cluster, which it needs to see the fleet"
    assert told[line].todo == f"add to its ClusterRole: {line}"
    assert '- {apiGroups: ["discovery.k8s.io"], resources: ["endpointslices"], verbs: [get, list, watch]}' in told


def test_the_lines_that_the_doctor_names_are_all_that_is_missing(account: Account) -> None:
    wanted = Wanted(frozenset({"process.restart", "node.cordon", "rollout.rollback"}), lease_namespace=account.namespace)
    for check in account.wrong(wanted):
        found = check.details
        rule = Rule(
            apiGroups=(found["group"],), resources=(found["resource"],), verbs=tuple(found["verbs"]), scope=Scope.CLUSTER
        )
        (account.may_here if found["namespace"] else account.may)(rule)
    assert account.wrong(wanted) == []


def test_a_runbook_that_may_act_asks_for_its_family_alone(account: Account) -> None:
    account.may(*READ)
    wrong = account.wrong(RESTART)
    assert {check.subject for check in wrong} == {"restart", "events"}
    (restart,) = [check for check in wrong if check.subject == "restart"]
    assert restart.details["verbs"] == ["patch", "delete"]
    assert "process.restart" in restart.says
    assert "set actions.restart.enabled=true in the chart" in restart.todo
    account.may(*CHANGE.families["restart"].rules, *CHANGE.shared)
    assert account.wrong(RESTART) == []


def test_groups_that_the_cluster_does_not_have_are_not_asked_for(account: Account) -> None:
    groups = {check.details["group"] for check in account.wrong(Wanted(frozenset({"workload.scale"})))}
    assert "autoscaling" in groups
    assert groups.isdisjoint({"keda.sh", "leaderworkerset.x-k8s.io"})


def test_rights_in_the_fleets_namespace_suffice_where_it_has_one(account: Account) -> None:
    account.may(*(rule for rule in READ if rule.scope is Scope.CLUSTER))
    account.may_here(*READ)
    assert account.wrong(namespaces=[account.namespace]) == []
    everywhere = [check.details for check in account.wrong() if check.details["resource"] == "pods"]
    assert [found["namespace"] for found in everywhere] == [""]
    wrong = account.wrong(namespaces=[account.namespace, "default"])
    assert {check.details["namespace"] for check in wrong} == {"default"}
    assert all("Role in namespace default" in check.todo for check in wrong)


def test_the_lease_is_asked_for_in_its_own_namespace(account: Account) -> None:
    account.may(*READ)
    wanted = Wanted(lease_namespace=account.namespace)
    (lease,) = account.wrong(wanted)
    assert lease.details["line"] == (
        '- {apiGroups: ["coordination.k8s.io"], resources: ["leases"], verbs: [get, create, update]}'
    )
    account.may_here(*load_base_rights().own)
    assert account.wrong(wanted) == []


def test_a_token_that_is_not_known_is_the_only_thing_said(control_plane: ControlPlane, account: Account) -> None:
    path = control_plane.access.write_kubeconfig(control_plane.directory / "stranger.kubeconfig", "not-a-token")
    (check,) = account.checks(kubeconfig=path)
    assert (check.check, check.state) == ("cluster.answers", State.PROBLEM)
    assert "renew the token" in check.todo


def test_a_selector_that_finds_nothing_is_a_problem(account: Account) -> None:
    account.may(*READ)
    found = of(account.checks(), "cluster.engines")
    assert (found.state, found.subject) == (State.PROBLEM, "app=vllm")
    assert "in any namespace" in found.says


def test_pods_that_lack_something_are_named(control_plane: ControlPlane, account: Account) -> None:
    account.may(*READ)
    core = client.CoreV1Api(control_plane.api_client())
    whole: dict[str, Any] = {
        "name": "vllm",
        "image": "vllm/vllm-openai:v0.32.0",
        "ports": [{"name": "http", "containerPort": 8000}],
        "resources": {"limits": {"nvidia.com/gpu": "1"}},
        "readinessProbe": {"httpGet": {"path": "/health", "port": "http"}},
    }
    lacks = {"no-gpu": "resources", "no-port": "ports", "no-probe": "readinessProbe"}
    for name, field in lacks.items():
        container = {key: value for key, value in whole.items() if key != field}
        if field == "ports":
            container["readinessProbe"] = {"exec": {"command": ["true"]}}
        if field == "resources":
            container["readinessProbe"] = {"tcpSocket": {"port": 8000}}
        labels = {"app": "vllm"}
        core.create_namespaced_pod(
            account.namespace, {"metadata": {"name": name, "labels": labels}, "spec": {"containers": [container]}}
        )
    checks = account.checks(namespaces=[account.namespace])
    assert of(checks, "cluster.engines").says.startswith("finds 3 engines")
    assert of(checks, "cluster.gpus").details["pods"] == ["no-gpu"]
    assert of(checks, "cluster.ports").details["pods"] == ["no-port"]
    assert of(checks, "cluster.readiness").details["pods"] == ["no-probe"]
    assert len(of(checks, "cluster.owners").details["pods"]) == 3


def test_a_server_that_is_not_there_is_said_with_what_to_look_at(account: Account, tmp_path: Any) -> None:
    text = account.entry().kubeconfig.read_text()  # type: ignore[union-attr]
    path = tmp_path / "kubeconfig"
    path.write_text(text.replace(text.split("server: ")[1].split("\n")[0], "https://127.0.0.1:9"))
    (check,) = account.checks(kubeconfig=path)
    assert (check.state, check.details["reason"]) == (State.PROBLEM, "Unreachable")
