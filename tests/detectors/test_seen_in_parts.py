"""A large window is seen part by part by detectors that judge each engine alone, and that must not change what they find."""

import pytest
from synthetic import NOW, Fleet

from detectors import catalogue
from detectors.catalogue import DETECTORS, detect_all
from detectors.parameters import load_parameters


def _ill() -> Fleet:
    """Twelve engines of which most have something, in every part of the fleet."""
    fleet = Fleet(engines=12, seed=4)
    fleet.standing[1, fleet.last(40)] = True
    fleet.up[3, fleet.last(40)] = 0.0
    fleet.took[3, fleet.last(40)] = 0.002
    fleet.kv[5, fleet.last(60)] = 0.98
    fleet.preempted[5, fleet.last(80)] = 2.0
    fleet.leaving[7, fleet.last(40)] = 0.9
    fleet.start[9, fleet.last(30)] = NOW - 30.0
    fleet.standing[11, slice(-40, -10)] = True
    return fleet


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_what_is_found_does_not_depend_on_the_size_of_the_parts(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    window, parameters = _ill().window(), load_parameters(None)
    whole = detect_all(window, parameters)
    monkeypatch.setattr(catalogue, "LEAST_ROWS", rows)
    monkeypatch.setattr(catalogue, "SAMPLES_AT_ONCE", 1)
    in_parts = detect_all(_ill().window(), parameters)

    assert not whole.failed
    assert not in_parts.failed
    alone = frozenset[str]().union(*(detector.finds for detector in DETECTORS if detector.alone))
    assert {finding.entity.name for finding in whole.findings if finding.symptom in alone} >= {"e-1", "e-3", "e-5", "e-7"}
    assert sorted(map(repr, in_parts.findings)) == sorted(map(repr, whole.findings))


def test_the_parts_of_a_window_hold_each_engine_once_with_its_own_rows_and_facts() -> None:
    window = Fleet(engines=7, groups=2).window()
    parts = list(window.parts(3))

    assert [part.rows for part in parts] == [3, 3, 1]
    assert [engine for part in parts for engine in part.topology.engines] == list(window.topology.engines)
    second = parts[1]
    assert second.topology.row_of == {"e-3": 0, "e-4": 1, "e-5": 2}
    assert second.topology.facts(second.topology.engines[1]) == window.topology.facts(window.topology.engines[4])
    assert (second.values("engine.steps") == window.values("engine.steps")[3:6]).all()
    assert second.topology.peer_group.tolist() == [0, 1, 0]
