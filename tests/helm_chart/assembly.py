"""What of the chart is made from other files: `make chart` writes it, and a test holds it to its sources.

The values' schema gets the schemas of the settings, of the fleet file and of the families of actions, so that Helm refuses
what the warden would refuse; the tables of rights, the alerts and the dashboard are copied, as a chart may hold no file from
outside its folder.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from actuators.kubernetes import rights
from agent.settings import WardenSettings
from helm_chart.program import CHART
from serving.fleet.fleet_file import FleetFile
from serving.kubernetes import rights as base_rights

DEPLOY = CHART.parents[1]
COPIES: Mapping[str, Path] = {
    "rights.yaml": rights.TABLE,
    "reads.yaml": base_rights.TABLE,
    "alerts.yaml": DEPLOY / "prometheus" / "alerts.yaml",
    "dashboard.json": DEPLOY / "grafana" / "fleetwarden.json",
}
OWNED = ("fleet", "detectors", "runbooks", "state_dir", "journal", "election", "http")  # settings that the chart decides
FROM_ENVIRONMENT = {"SlackSettings": ("webhook_url",)}  # secrets, which no file may hold
Json = dict[str, Any]


def files() -> dict[Path, str]:
    """Every made file and what it must hold."""
    copied = {CHART / "files" / name: source.read_text() for name, source in COPIES.items()}
    return {CHART / "values.schema.json": json.dumps(schema(), indent=1) + "\n", **copied}


def schema() -> Json:
    """The schema of the values."""
    made: Json = yaml.safe_load((CHART.parent / "values.schema.yaml").read_text())
    parts = made["$defs"]
    settings = _settings()
    for name, whole in (("WardenSettings", settings), ("FleetFile", FleetFile.model_json_schema())):
        inner = whole.pop("$defs", {})
        parts |= {key: _bare(value) for key, value in inner.items()}
        parts[name] = _bare(whole)
    parts["WardenSettings"]["description"] = "settings of the warden (docs/settings.md) without what the chart decides"
    parts["FleetFile"]["description"] = "the fleet file (docs/fleet-file.md)"
    parts["Actions"] = _actions()
    used = {"LocalReference", "Texts", "Quantities"} | set(_used(parts, made["properties"]))
    made["$defs"] = {name: parts[name] for name in sorted(used)}
    return made


def _settings() -> Json:
    whole = WardenSettings.model_json_schema()
    for name in OWNED:
        whole["properties"].pop(name, None)
    for part, names in FROM_ENVIRONMENT.items():
        for name in names:
            del whole["$defs"][part]["properties"][name]
    return whole


def _actions() -> Json:
    switch = {"enabled": {"type": "boolean", "description": "true: bind its rights"}}
    families = {
        name: {
            "type": "object",
            "description": f"{family.says} ({', '.join(family.verbs)})",
            "additionalProperties": False,
            "properties": switch,
        }
        for name, family in rights.load_rights().families.items()
    }
    says = "rights to change things, by family; all off by default"
    return {"type": "object", "description": says, "additionalProperties": False, "properties": families}


def _bare(schema: Any) -> Any:
    """`schema` without titles (names of fields in capitals) and without formats that only pydantic knows."""
    if isinstance(schema, list):
        return [_bare(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    named = {
        key: _bare(value) for key, value in schema.items() if not (key in {"title", "format"} and isinstance(value, str))
    }
    if isinstance(schema.get("properties"), dict):  # a field may be called `title`
        named["properties"] = {key: _bare(value) for key, value in schema["properties"].items()}
    return named


def _used(parts: Json, part: Any) -> Iterator[str]:
    """Names of all definitions that `part` leads to."""
    for value in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
        yield from _used(parts, value)
    if isinstance(part, dict) and isinstance(part.get("$ref"), str):
        name = part["$ref"].removeprefix("#/$defs/")
        yield name
        yield from _used(parts, parts[name])


def main() -> int:
    """Write every made file. Exit status 0."""
    for path, text in files().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
