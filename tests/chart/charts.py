"""Rendering the chart in tests, and looking into what comes out."""

import json
from pathlib import Path
from typing import Any

import yaml
from helm_chart.program import CHART, run

Json = dict[str, Any]
NAMESPACE = "ops"
BASE: Json = {"image": {"repository": "registry.example.com/fleetwarden"}, "journal": {"postgres": {"secret": "db"}}}
SQLITE: Json = {"replicas": 1, "journal": {"kind": "sqlite"}}


def render(folder: Path, values: Json | None = None, *options: str, base: Json = BASE) -> list[Json]:
    """Every object of the chart with these values on top of the least that it needs. Raises HelmError."""
    file = folder / "values.yaml"
    file.write_text(json.dumps(merged(base, values or {})))
    text = run("template", "fw", str(CHART), "--namespace", NAMESPACE, "--values", str(file), *options)
    return [document for document in yaml.safe_load_all(text) if document]


def merged(one: Json, other: Json) -> Json:
    """`other` on top of `one`, section by section."""
    both = {key: merged(one[key], other[key]) for key in one.keys() & other.keys() if isinstance(one[key], dict)}
    return one | other | both


def of_kind(objects: list[Json], *kinds: str) -> list[Json]:
    return [one for one in objects if one["kind"] in kinds]


def only(objects: list[Json], kind: str) -> Json:
    (found,) = of_kind(objects, kind)
    return found


def warden_pod(objects: list[Json]) -> Json:
    spec: Json = only(objects, "Deployment")["spec"]["template"]["spec"]
    return spec


def granted(objects: list[Json]) -> dict[str, set[tuple[str, str, str, str]]]:
    """Rights by name of the bound role: namespace (empty: everywhere), verb, group, resource."""
    roles = {
        (one["kind"], one["metadata"].get("namespace", ""), one["metadata"]["name"]): one["rules"]
        for one in objects
        if "rules" in one and "roleRef" not in one
    }
    found: dict[str, set[tuple[str, str, str, str]]] = {}
    for binding in of_kind(objects, "RoleBinding", "ClusterRoleBinding"):
        space, ref = binding["metadata"].get("namespace", ""), binding["roleRef"]
        for rule in roles[ref["kind"], space, ref["name"]]:
            found.setdefault(ref["name"].rpartition(":")[2], set()).update(
                (space, verb, group, resource)
                for verb in rule["verbs"]
                for group in rule["apiGroups"]
                for resource in rule["resources"]
            )
    return found
