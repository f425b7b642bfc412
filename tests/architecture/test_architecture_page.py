"""ARCHITECTURE.md is held to the tree, so that a newcomer can trust it."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "ARCHITECTURE.md").read_text()
ROOMS = ("serving", "detectors", "actuators", "runbooks", "agent")


def _paths() -> list[str]:
    quoted = re.findall(r"`([a-z_]+(?:/[A-Za-z0-9_.]+)*)`", PAGE)
    return [path for path in quoted if path.split("/")[0] in (*ROOMS, "docs")]


@pytest.mark.parametrize("path", sorted(set(_paths())))
def test_every_path_the_page_names_exists(path: str) -> None:
    assert (ROOT / path).exists()


def test_every_room_and_every_package_in_it_is_on_the_page() -> None:
    packages = {
        str(init.parent.relative_to(ROOT))
        for room in ROOMS
        for init in (ROOT / room).rglob("__init__.py")
        if "migrations" not in init.parts
    }
    assert packages <= set(_paths())


def test_the_page_draws_the_same_direction_of_imports_as_the_contract() -> None:
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]
    assert " -> ".join(contract["layers"]) in PAGE


def test_every_decision_page_is_listed() -> None:
    index = (ROOT / "docs/adr/README.md").read_text()
    pages = {page.name for page in (ROOT / "docs/adr").glob("0*.md")}
    assert pages == set(re.findall(r"\((0[^)]*\.md)\)", index))


def test_every_package_says_what_does_not_belong_there() -> None:
    silent = [
        str(init.relative_to(ROOT))
        for room in ROOMS
        for init in (ROOT / room).rglob("__init__.py")
        if "migrations" not in init.parts and "not belong" not in init.read_text()
    ]
    assert silent == []
