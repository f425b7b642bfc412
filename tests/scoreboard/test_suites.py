"""Trials are drawn from ranges, the same for the same seed."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from agent.scoreboard.suite import Drawn, Range, Tables, draw_suite, load_tables
from agent.scoreboard.trial import FaultSpec, TrialKind, TrialSpec
from agent.scoreboard.truth import load_truth
from serving.virtual.faults.catalogue import DECOYS, FAULTS

TABLES = load_tables()


def _bare(spec: TrialSpec) -> tuple[object, ...]:
    return (spec.kind, spec.seed, spec.fleet, spec.faults, spec.lasts)


def test_the_same_seed_draws_the_same_trials_and_another_seed_others() -> None:
    first = draw_suite("quick", 1, 3, TABLES)
    assert first == draw_suite("quick", 1, 3, TABLES)
    assert {_bare(spec) for spec in first}.isdisjoint(_bare(spec) for spec in draw_suite("quick", 1, 4, TABLES))


def test_more_seeds_only_add_trials() -> None:
    few, many = draw_suite("quick", 1, 5, TABLES), draw_suite("quick", 3, 5, TABLES)
    assert [_bare(spec) for spec in many[: len(few)]] == [_bare(spec) for spec in few]
    assert [spec.number for spec in many] == list(range(len(many)))


def test_no_two_trials_share_their_randomness() -> None:
    seeds = [spec.seed for spec in draw_suite("full", 3, 0, TABLES)]
    assert len(set(seeds)) == len(seeds)


def test_twenty_seeds_of_the_full_suite_are_two_thousand_of_each_kind() -> None:
    kinds = Counter(spec.kind for spec in draw_suite("full", 20, 0, TABLES))
    assert kinds[TrialKind.FAULT] + kinds[TrialKind.PAIR] >= 2_000
    assert kinds[TrialKind.DECOY] + kinds[TrialKind.DECOY_PAIR] >= 2_000
    assert kinds[TrialKind.HEALTHY] >= 20


def test_every_fault_and_every_decoy_is_drawn_and_the_truth_about_each_is_known() -> None:
    truth = load_truth()
    assert set(TABLES.faults) == set(truth.faults)
    assert set(TABLES.decoys) == set(truth.decoys)
    drawn = draw_suite("quick", 1, 0, TABLES)
    alone = {spec.faults[0].name for spec in drawn if len(spec.faults) == 1}
    assert alone == set(TABLES.faults) | set(TABLES.decoys)


def test_the_tables_fit_the_catalogue_of_the_fleet_in_virtual_time() -> None:
    for table, catalogue in ((TABLES.faults, FAULTS), (TABLES.decoys, DECOYS)):
        assert set(table) == set(catalogue)
        for name, drawn in table.items():
            assert set(drawn.numbers) <= set(catalogue[name].defaults)
            assert set(drawn.onsets) <= set(catalogue[name].onsets)
            assert float(drawn.lasts.least).is_integer()


def test_two_at_once_are_two_different_ones() -> None:
    pairs = [spec for spec in draw_suite("full", 2, 0, TABLES) if spec.kind in {TrialKind.PAIR, TrialKind.DECOY_PAIR}]
    assert all(len({fault.name for fault in spec.faults}) == 2 for spec in pairs)


@given(st.integers(0, 10_000))
def test_every_parameter_lies_within_its_range(seed: int) -> None:
    for spec in draw_suite("quick", 1, seed, TABLES):
        for fault in spec.faults:
            drawn = (TABLES.faults | TABLES.decoys)[fault.name]
            _fits(fault, drawn)
            assert fault.at + fault.lasts <= spec.lasts


def _fits(fault: FaultSpec, drawn: Drawn) -> None:
    assert TABLES.begins.least <= fault.at <= TABLES.begins.most
    assert drawn.lasts.least <= fault.lasts <= drawn.lasts.most
    assert 0.0 <= fault.aim < 1.0
    assert fault.onset in drawn.onsets
    assert drawn.hits.least <= fault.hits <= drawn.hits.most
    assert [name for name, _ in fault.parameters] == [*drawn.numbers]
    for name, value in fault.parameters:
        assert drawn.numbers[name].least - 1e-4 <= value <= drawn.numbers[name].most + 1e-4


@given(st.integers(0, 2**32), st.floats(0.01, 10.0), st.floats(1.0, 50.0))
def test_a_range_on_a_scale_of_ratios_keeps_to_its_ends(seed: int, least: float, factor: float) -> None:
    span = Range(least=least, most=least * factor, ratio=True)
    assert least * (1 - 1e-9) <= span.draw(np.random.default_rng(seed)) <= least * factor * (1 + 1e-9)


@pytest.mark.parametrize("wrong", [{"least": 2, "most": 1}, {"least": 0, "most": 1, "ratio": True}, {"least": 1}])
def test_a_range_that_makes_no_sense_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Range.model_validate(wrong)


def test_no_seeds_and_an_unknown_suite_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one seed"):
        draw_suite("quick", 0, 0, TABLES)
    with pytest.raises(KeyError):
        draw_suite("enormous", 1, 0, TABLES)


def test_the_tables_refuse_what_they_do_not_know() -> None:
    with pytest.raises(ValidationError):
        Tables.model_validate(TABLES.model_dump() | {"typo": 1})
