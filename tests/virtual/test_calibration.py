"""Under the requests and faults of a recording of real vLLM, a fleet in virtual time shows the same shapes within bounds."""

from pathlib import Path

import pytest
from bounds import Bound, Bounds, load_bounds
from calibrate import Comparison, compare
from pydantic import ValidationError

RECORDINGS = Path(__file__).parents[1] / "recordings"
TABLE = load_bounds()
LEAST_BOUNDS = 3  # telling signals of a part


@pytest.fixture(scope="module")
def compared() -> dict[str, Comparison]:
    return {name: compare(RECORDINGS / name, TABLE) for name in TABLE.parts}


CASES = [(name, part) for name, parts in TABLE.parts.items() for part in ("baseline", *parts)]


@pytest.mark.parametrize(("name", "part"), CASES, ids=[f"{name}-{part}" for name, part in CASES])
def test_signals_change_as_they_did_in_the_recording(compared: dict[str, Comparison], name: str, part: str) -> None:
    rows = [row for row in compared[name].rows if row.part == part]
    assert len(rows) >= LEAST_BOUNDS
    outside = [
        f"{row.signal} {row.of} {row.what}: {row.ratio:.2f} not in {row.low:.2f}..{row.high:.2f}"
        for row in rows
        if not row.holds
    ]
    assert outside == []


def test_frozen_refused_silent_and_full_are_so_on_both_sides(compared: dict[str, Comparison]) -> None:
    facts = [fact for one in compared.values() for fact in one.facts]
    assert {fact.fact for fact in facts} == {"frozen", "refused", "silent", "batch full", "cache full"}
    assert [f"{fact.part}: {fact.fact}" for fact in facts if not fact.holds] == []


def test_facts_are_told_of_the_targets_and_not_of_the_others(compared: dict[str, Comparison]) -> None:
    for one in compared.values():
        for side in (one.real, one.virtual):
            hung = [(part, told["frozen"]) for part, told in side.facts.items() if part.fault.endswith("_hang")]
            for part, frozen in hung:
                others = [row for row in range(len(frozen)) if row not in part.rows(len(frozen))]
                assert not frozen[others].any()


def test_a_wrong_table_is_refused() -> None:
    with pytest.raises(ValidationError, match="there is no signal 'stepps/s'"):
        Bound(signal="stepps/s", after=2.0)
    with pytest.raises(ValidationError, match="holds 1, or nothing says why"):
        Bound(signal="steps/s", after=(0.5, 2.0), why="a known difference that is none")
    with pytest.raises(ValidationError, match="nothing says why"):
        Bound(signal="steps/s", after=(2.0, 3.0))
    raw = TABLE.model_dump(by_alias=True)
    raw["parts"]["vllm-0.32-a"]["idle"]["facts"] = ["frosen"]
    with pytest.raises(ValidationError, match="there is no fact 'frosen'"):
        Bounds.model_validate(raw)
