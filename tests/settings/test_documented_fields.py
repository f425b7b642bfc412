"""The documents name every field with its default, and no field that is not there."""

import re
from pathlib import Path

import pytest
from documented import default, fields
from pydantic import BaseModel

from agent.settings import WardenSettings
from serving.fleet.fleet_file import FleetFile

DOCS = Path(__file__).parents[2] / "docs"
ROW = re.compile(r"^\| `([^`]+)` \| (.+) \| (.+) \|$", re.MULTILINE)
# Computed at run time, or not visible.
ELSEWHERE = {
    "state_dir": "`$XDG_STATE_HOME/fleetwarden/local`",
    **{f"kubernetes.{part}_labels": "see below" for part in ("rack", "switch", "nvlink")},
    "policy.freezes[].because": "empty",
}


@pytest.mark.parametrize(("document", "model"), [("fleet-file.md", FleetFile), ("settings.md", WardenSettings)])
def test_a_document_names_every_field_with_its_default(document: str, model: type[BaseModel]) -> None:
    rows = {field: (meaning, says) for field, meaning, says in ROW.findall((DOCS / document).read_text())}
    known = {path: ELSEWHERE.get(path, default(info)) for path, info in fields(model)}
    assert {field: says for field, (_, says) in rows.items()} == known
    assert all(meaning.strip() for meaning, _ in rows.values())


@pytest.mark.parametrize("document", ["fleet-file.md", "settings.md"])
def test_links_of_a_document_lead_somewhere(document: str) -> None:
    for target in re.findall(r"\]\((\.\./[^)]+)\)", (DOCS / document).read_text()):
        assert (DOCS / target).exists()
