"""docs/replay.md tells every key that scripts may rely on, and no other."""

import re
from pathlib import Path

import pytest
from pydantic import BaseModel

from agent.replay.hands import Pretence
from agent.replay.judge import AFTERMATH, FaultRow, Totals
from agent.replay.past import CHUNK
from agent.replay.rows import NamedCause, RivalRow, Row, WouldDo
from agent.track import TrackParameters
from serving.telemetry.recorder import Manifest

PAGE = (Path(__file__).parents[2] / "docs" / "replay.md").read_text("utf-8")
WORDS = set(re.findall(r"`([a-z_0-9]+)`", PAGE))


@pytest.mark.parametrize("record", [Row, NamedCause, RivalRow, WouldDo, FaultRow, Totals, Manifest])
def test_every_key_is_told(record: type[BaseModel]) -> None:
    assert set(record.model_fields) <= WORDS


def test_every_key_of_the_tables_exists() -> None:
    tables = re.findall(r"^\| (`[^|]*) \|", PAGE, re.MULTILINE)
    told = {word for row in tables for word in re.findall(r"`([a-z_0-9]+)`", row)}
    assert told == set(Row.model_fields) | set(Totals.model_fields)


def test_the_numbers_it_names_are_those_that_hold() -> None:
    pretence, tracking = Pretence(), TrackParameters()
    assert f"under way for {pretence.repair:.0f} s ({pretence.probe:.0f} s for" in PAGE
    assert f"untouched incident needs to heal ({tracking.healed_after:.0f} s)" in PAGE
    assert f"within {AFTERMATH:.0f} s after it" in PAGE
    assert f"{CHUNK} steps at a time" in PAGE
