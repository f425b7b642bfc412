"""The plain manifests of deploy/manifests, rendered from the chart: `make chart` writes them, a test compares."""

import re
import sys
from collections.abc import Mapping
from pathlib import Path

from control_plane.programs import MissingProgramsError

from actuators.kubernetes.rights import load_rights
from helm_chart.program import CHART, run

FOLDER = CHART.parents[1] / "manifests"
NAME = "fleetwarden"
IMAGE = "registry.example.com/fleetwarden"
POSTGRES = ("journal.postgres.secret=fleetwarden-journal",)
SQLITE = ("replicas=1", "journal.kind=sqlite")
SHARED = f"name: {NAME}:{NAME}:events"
MONITORING = ("serviceMonitor", "prometheusRule", "dashboard")
NAMESPACE = f"""apiVersion: v1
kind: Namespace
metadata:
  name: {NAME}
  labels:
    pod-security.kubernetes.io/enforce: restricted
"""


def files() -> Mapping[Path, str]:
    """Every manifest and what it must hold. Raises HelmError, MissingProgramsError."""
    head = f"Change the image {IMAGE}, and the fleet file and the settings in the ConfigMap."
    made = {
        "fleetwarden.yaml": _said(
            f"Two replicas that share a journal in PostgreSQL. It reads and recommends.\n# {head} Make the Secret of "
            "docs/install.md first.",
            NAMESPACE + rendered(POSTGRES),
        ),
        "one-replica.yaml": _said(
            f"One replica with its journal on a volume. It reads and recommends.\n# {head}", NAMESPACE + rendered(SQLITE)
        ),
        "monitoring.yaml": _said(
            "For the Prometheus operator and Grafana's sidecar: who is scraped, alerts, a dashboard.",
            rendered((*POSTGRES, *(f"monitoring.{one}.enabled=true" for one in MONITORING)), only="monitoring"),
        ),
    }
    return {FOLDER / name: text for name, text in {**made, **_rights()}.items()}


def _rights() -> dict[str, str]:
    """A file for each family, so that taking one back leaves the others, and one for what they share."""
    base = _documents(rendered(POSTGRES, only="rights"))
    made: dict[str, str] = {}
    shared: list[str] = []
    for name, family in load_rights().families.items():
        granted = _documents(rendered((*POSTGRES, f"actions.{name}.enabled=true"), only="rights"))
        more = [document for document in granted if document not in base]
        shared = [document for document in more if SHARED in document]
        own = "".join(f"---\n{document}" for document in more if document not in shared)
        made[f"rights/{name}.yaml"] = _said(f"The warden may {family.says} ({', '.join(family.verbs)}).", own)
    says = "The warden may write events about what it touches. Apply it with any of the others."
    return {**made, "rights/events.yaml": _said(says, "".join(f"---\n{document}" for document in shared))}


def rendered(values: tuple[str, ...], only: str = "") -> str:
    """The chart with some values, as plain YAML without marks of Helm."""
    given = [part for value in (f"image.repository={IMAGE}", *values) for part in ("--set", value)]
    only_one = ["--show-only", f"templates/{only}.yaml"] if only else []
    text = run("template", NAME, str(CHART), "--namespace", NAME, "--no-hooks", *given, *only_one)
    text = re.sub(r"^# Source: .*\n", "", text, flags=re.MULTILINE)
    text = re.sub(
        r"^ *(app\.kubernetes\.io/managed-by: Helm|helm\.sh/.*|annotations:\n(?= *helm\.sh/))\n?",
        "",
        text,
        flags=re.MULTILINE,
    )
    return "".join(f"---\n{document}" for document in _documents(text))


def _documents(text: str) -> list[str]:
    parts = re.split(r"^---\n", text, flags=re.MULTILINE)
    return [re.sub(r"\n{2,}", "\n", part).lstrip("\n") for part in parts if part.strip()]


def _said(what: str, text: str) -> str:
    return f"# {what}\n# Rendered from deploy/helm/fleetwarden by `make chart`.\n{text}"


def main() -> int:
    """Write every manifest. Exit status: 0 done, 1 helm is missing."""
    try:
        made = files()
    except MissingProgramsError as missing:
        sys.stderr.write(f"{missing}\n")
        return 1
    for old in FOLDER.rglob("*.yaml"):
        if old not in made:
            old.unlink()
    for path, text in made.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
