"""What the chart makes of its values."""

from pathlib import Path

import pytest
import yaml
from charts import NAMESPACE, SQLITE, granted, of_kind, only, render, warden_pod
from helm_chart.assembly import files as made_files
from helm_chart.manifests import files as manifests
from helm_chart.program import CHART, HelmError, run

from actuators.kubernetes.rights import Family, load_rights
from agent.settings_file import load_settings
from serving.fleet.fleet_file import FleetFile
from serving.fleet.kubernetes_entry import KubernetesEntry
from serving.kubernetes.rights import Scope, load_base_rights

pytestmark = pytest.mark.usefixtures("helm")
FAMILIES = load_rights().families


def test_what_is_made_from_other_files_is_up_to_date() -> None:
    stale = [path.name for path, text in made_files().items() if not path.exists() or path.read_text() != text]
    assert stale == [], "run `make chart`"


def test_the_plain_manifests_are_the_charts() -> None:
    made = manifests()
    stale = [str(path) for path, text in made.items() if not path.exists() or path.read_text() != text]
    assert stale == [], "run `make chart`"
    assert set(next(iter(made)).parent.rglob("*.yaml")) == set(made)


def test_helm_finds_nothing_to_complain_of(tmp_path: Path) -> None:
    (tmp_path / "values.yaml").write_text("{image: {repository: r}, journal: {postgres: {secret: s}}}")
    told = run("lint", str(CHART), "--strict", "--values", str(tmp_path / "values.yaml"))
    assert "0 chart(s) failed" in told


def test_the_values_name_every_family_and_switch_none_on() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert values["actions"] == {name: {"enabled": False} for name in FAMILIES}


def test_by_default_it_may_only_read_and_hold_its_lease(tmp_path: Path) -> None:
    rights = granted(render(tmp_path))
    assert set(rights) == {"read", "own"}
    assert {verb for _, verb, _, _ in rights["read"]} == {"get", "list", "watch"}
    assert {(space, resource) for space, _, _, resource in rights["own"]} == {(NAMESPACE, "leases")}


def test_what_it_may_read_is_what_the_table_says(tmp_path: Path) -> None:
    expected = {("", one.verb, one.group, one.resource) for rule in load_base_rights().read for one in rule.rights}
    assert granted(render(tmp_path))["read"] == expected


@pytest.mark.parametrize(("name", "family"), FAMILIES.items())
def test_a_family_that_is_switched_on_gets_its_rights_and_no_other(tmp_path: Path, name: str, family: Family) -> None:
    before = granted(render(tmp_path))
    after = granted(render(tmp_path, {"actions": {name: {"enabled": True}}}))
    assert set(after) - set(before) == {name, "events"}
    assert after[name] == {("", one.verb, one.group, one.resource) for rule in family.rules for one in rule.rights}


def test_with_namespaces_only_what_lies_in_none_is_granted_everywhere(tmp_path: Path) -> None:
    values = {
        "fleet": {"kubernetes": {"namespaces": ["serving", "batch"]}},
        "actions": {name: {"enabled": True} for name in FAMILIES},
    }
    rights = granted(render(tmp_path, values))
    rules = [*load_base_rights().read, *load_rights().shared, *(rule for one in FAMILIES.values() for rule in one.rules)]
    wide = {one.resource for rule in rules if rule.scope is Scope.CLUSTER for one in rule.rights}
    for part in rights.keys() - {"own"}:
        everywhere = {resource for space, _, _, resource in rights[part] if not space}
        assert everywhere <= wide
        assert {space for space, *_ in rights[part]} - {""} <= {"serving", "batch"}
    assert {(space, resource) for space, _, _, resource in rights["restart"]} == {("serving", "pods"), ("batch", "pods")}


def test_without_rbac_no_right_is_bound(tmp_path: Path) -> None:
    assert granted(render(tmp_path, {"rbac": {"create": False}})) == {}


def test_the_container_is_locked_down(tmp_path: Path) -> None:
    objects = render(tmp_path)
    for pod in (warden_pod(objects), only(objects, "Pod")["spec"]):
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["enableServiceLinks"] is False
        (container,) = pod["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert all(one["value"].startswith("/") for one in container.get("env", []))  # paths, no secrets
        assert "envFrom" not in container


def test_secrets_are_files_that_the_settings_name(tmp_path: Path) -> None:
    slack = {"sinks": {"slack": {"webhook_url_file": "secrets/slack"}}}
    objects = render(tmp_path, {"settings": slack, "secrets": [{"secret": "chat", "key": "hook", "file": "slack"}]})
    (config,) = [volume for volume in warden_pod(objects)["volumes"] if volume["name"] == "config"]
    files = {
        item["path"]: source["secret"]["name"]
        for source in config["projected"]["sources"]
        if "secret" in source
        for item in source["secret"]["items"]
    }
    assert files == {"secrets/journal-url": "db", "secrets/slack": "chat"}
    assert of_kind(objects, "Secret") == []


def test_settings_are_those_of_the_values_and_the_warden_reads_them(tmp_path: Path) -> None:
    values = {
        "settings": {"loop": {"interval": 5}, "policy": {"grants": [{"runbook": "engine-hung", "autonomy": "auto"}]}},
        "runbooks": {"own": "name: own\n"},
        "detectors": {"kv": {"full": 0.99}},
    }
    data = only(render(tmp_path, values), "ConfigMap")["data"]
    for name in ("warden.yaml", "fleet.yaml"):
        (tmp_path / name).write_text(data[name])
    settings = load_settings(tmp_path / "warden.yaml")
    assert settings.loop.interval == 5
    assert settings.http.host == "0.0.0.0"  # noqa: S104 - compared only
    assert settings.fleet_file == tmp_path / "fleet.yaml"
    assert FleetFile.read(settings.fleet_file).kubernetes == KubernetesEntry(selector="app.kubernetes.io/name=vllm")
    assert settings.journal.url_file == tmp_path / "secrets" / "journal-url"
    assert (settings.election.kind, settings.election.name) == ("lease", "fw-fleetwarden")
    assert settings.runbooks == [tmp_path / "runbooks"]
    assert data["runbook-own.yaml"].strip() == "name: own"


def test_changed_settings_make_new_pods(tmp_path: Path) -> None:
    def sum_of(seconds: int) -> str:
        objects = render(tmp_path, {"settings": {"loop": {"interval": seconds}}})
        return str(only(objects, "Deployment")["spec"]["template"]["metadata"]["annotations"]["checksum/config"])

    assert sum_of(5) != sum_of(6)


def test_one_replica_keeps_its_journal_on_a_volume_that_outlives_it(tmp_path: Path) -> None:
    objects = render(tmp_path, SQLITE)
    deployment, claim = only(objects, "Deployment"), only(objects, "PersistentVolumeClaim")
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}
    assert claim["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    (state,) = [volume for volume in warden_pod(objects)["volumes"] if volume["name"] == "state"]
    assert state["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    assert of_kind(objects, "PodDisruptionBudget") == []
    assert set(granted(objects)) == {"read"}  # one warden needs no Lease


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"replica": 2}, "additional properties 'replica' not allowed"),
        ({"replicas": 0}, "minimum: got 0, want 1"),
        ({"journal": {"kind": "mysql"}}, "value must be one of 'postgres', 'sqlite'"),
        ({"journal": {"kind": "sqlite"}}, "replicas share their journal in PostgreSQL"),
        ({"journal": {"postgres": {"secret": ""}}}, "journal.postgres.secret is empty"),
        ({"image": {"repository": ""}}, "image.repository is empty"),
        ({"image": {"digest": "sha256:1"}}, "does not match pattern"),
        ({"actions": {"reboot": {"enabled": True}}}, "additional properties 'reboot' not allowed"),
        ({"actions": {"restart": {"enabled": "yes"}}}, "got string, want boolean"),
        ({"settings": {"loop": {"intervall": 5}}}, "additional properties 'intervall' not allowed"),
        ({"settings": {"policy": {"autonomy": "always"}}}, "'observe', 'recommend', 'approve', 'auto'"),
        ({"settings": {"journal": {"path": "x"}}}, "additional properties 'journal' not allowed"),
        (
            {"settings": {"sinks": {"slack": {"webhook_url": "https://x"}}}},
            "additional properties 'webhook_url' not allowed",
        ),
        ({"fleet": {"fleat": "x"}}, "additional properties 'fleat' not allowed"),
        ({"fleet": {"kubernetes": {"selectors": "x"}}}, "additional properties 'selectors' not allowed"),
        ({"secrets": [{"secret": "s", "key": "k", "file": "../etc"}]}, "does not match pattern"),
        ({"secrets": [{"secret": "s", "key": "k", "file": "journal-url"}]}, "are the chart's own"),
    ],
)
def test_wrong_values_are_refused_with_a_reason(tmp_path: Path, values: dict[str, object], says: str) -> None:
    with pytest.raises(HelmError) as refused:
        render(tmp_path, values)
    assert says in str(refused.value)


def test_restricted_egress_leaves_names_and_the_listed_ports(tmp_path: Path) -> None:
    policy = only(render(tmp_path), "NetworkPolicy")["spec"]
    assert policy["policyTypes"] == ["Ingress"]
    values = {"networkPolicy": {"egress": {"restricted": True, "ports": [443, 8000]}}}
    policy = only(render(tmp_path, values), "NetworkPolicy")["spec"]
    assert [port["port"] for rule in policy["egress"] for port in rule["ports"]] == [53, 53, 443, 8000]
