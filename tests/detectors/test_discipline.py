"""What must hold whatever the numbers are: no engine is special, nothing missing breaks a detector, no noise is an alarm."""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from synthetic import Fleet

from detectors.catalogue import DETECTORS, Detector, detect_all
from detectors.finding import Finding, Symptom
from detectors.parameters import DEFAULT, Parameters, load_parameters
from serving.fleet.topology import Topology
from serving.telemetry.columns import HistogramMatrix, SignalMatrix
from serving.telemetry.registry import load_registry
from serving.telemetry.window import Window
from serving.yaml_file import FileError

PARAMETERS = load_parameters()
Key = tuple[Symptom, str, float]


def _troubled(seed: int) -> Window:
    """A fleet with one of many troubles on each of its engines, chosen by the seed."""
    fleet = Fleet(engines=6, seconds=240, seed=seed)
    rng = np.random.default_rng(seed)
    for row in range(fleet.engines):
        lately = fleet.last(float(rng.choice([10, 30, 70])))
        match int(rng.integers(0, 8)):
            case 0:
                fleet.standing[row, lately] = True
            case 1:
                fleet.up[row, lately] = 0.0
            case 2:
                fleet.itl[row, lately] *= 3.0
            case 3:
                fleet.ttft[row, lately] = 1.0
            case 4:
                fleet.kv[row, lately], fleet.waiting[row, lately] = 0.95, 5.0
            case 5:
                fleet.leaving[row, lately] = 0.9
            case 6:
                fleet.gap_share[row, lately] = 0.03
            case _:
                pass
    return fleet.window()


def _keys(findings: tuple[Finding, ...]) -> set[Key]:
    return {(one.symptom, str(one.entity), round(one.severity, 6)) for one in findings}


def _permuted(window: Window, order: list[int]) -> Window:
    topology = window.topology
    facts = [topology.facts(topology.engines[row]) for row in order]
    relations = [(subject, key, other) for subject, other, key in topology.graph.edges(keys=True) if key != "serves"]
    signals = {name: SignalMatrix(m.values[order], m.sampled_at[order]) for name, m in window.signals.items()}
    histograms = {
        name: HistogramMatrix(m.bounds, m.counts[order], m.sums[order], m.sampled_at[order])
        for name, m in window.histograms.items()
    }
    return replace(window, topology=Topology(facts, relations), signals=signals, histograms=histograms)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), order=st.permutations(range(6)))
def test_engines_in_another_order_show_the_same(seed: int, order: list[int]) -> None:
    window = _troubled(seed)
    there, here = detect_all(window, PARAMETERS), detect_all(_permuted(window, order), PARAMETERS)
    assert there.failed == here.failed == ()
    assert _keys(there.findings) == _keys(here.findings)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 10_000), share=st.sampled_from([0.1, 0.5, 0.9, 1.0]), lost=st.data())
def test_missing_samples_never_break_a_detector(seed: int, share: float, lost: st.DataObject) -> None:
    window = _troubled(seed)
    rng = np.random.default_rng(seed)
    names = lost.draw(st.sets(st.sampled_from(sorted(window.signals)), max_size=8))
    gone = rng.random((window.rows, len(window.times))) < share
    signals = {
        name: SignalMatrix(np.where(gone, np.nan, m.values), np.where(gone, np.nan, m.sampled_at))
        for name, m in window.signals.items()
        if name not in names
    }
    histograms = {
        name: HistogramMatrix(
            m.bounds,
            np.where(gone[:, :, None], np.nan, m.counts),
            np.where(gone, np.nan, m.sums),
            np.where(gone, np.nan, m.sampled_at),
        )
        for name, m in window.histograms.items()
    }
    detection = detect_all(replace(window, signals=signals, histograms=histograms), PARAMETERS)
    assert detection.failed == ()
    for finding in detection.findings:
        assert np.isfinite(finding.severity)
        assert np.isfinite(finding.since)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_samples_that_stay_away_are_no_symptom_of_an_engine(seed: int) -> None:
    """Missing is never zero: with every engine signal gone, nothing is said of an engine's work."""
    window = _troubled(seed)
    kept = {name: matrix for name, matrix in window.signals.items() if not name.startswith(("engine.", "scrape."))}
    found = detect_all(replace(window, signals=kept, histograms={}), PARAMETERS).findings
    allowed = {
        Symptom.CLIENTS_LEAVING,
        Symptom.REQUESTS_FAILING,
        Symptom.ARRIVALS_RAISED,
        Symptom.SERVED_BELOW_ARRIVALS,
    }
    assert {finding.symptom for finding in found} <= allowed


@pytest.mark.parametrize(("engines", "groups", "spread"), [(2000, 250, 0.15), (600, 200, 0.35)])
def test_thousands_of_healthy_engines_raise_no_alarm(engines: int, groups: int, spread: float) -> None:
    fleet = Fleet(engines=engines, groups=groups, seconds=240, spread=spread, seed=7)
    detection = detect_all(fleet.window(), PARAMETERS)
    assert detection.failed == ()
    assert [(one.symptom, str(one.entity), one.evidence[0].says) for one in detection.findings] == []


def test_a_detector_that_raises_costs_its_own_part_only(parameters: Parameters) -> None:
    def broken(*_: object) -> tuple[Finding, ...]:
        raise ZeroDivisionError("by zero")

    fleet = Fleet()
    fleet.standing[1, fleet.last(20)] = True
    bad = Detector("bad", frozenset(), frozenset(), frozenset(), broken)
    detection = detect_all(fleet.window(), parameters, (bad, *DETECTORS))
    assert [(failure.detector, failure.error) for failure in detection.failed] == [("bad", "ZeroDivisionError: by zero")]
    assert Symptom.STEPS_FROZEN in {one.symptom for one in detection.findings}


def test_detectors_declare_signals_that_the_registry_knows_and_together_find_every_symptom() -> None:
    known = set(load_registry().signals)
    for detector in DETECTORS:
        assert detector.needs | detector.helped_by <= known, detector.name
    assert {symptom for detector in DETECTORS for symptom in detector.finds} == set(Symptom)


def test_what_a_detector_finds_is_what_it_declares(parameters: Parameters) -> None:
    for seed in range(12):
        window = _troubled(seed)
        for detector in DETECTORS:
            assert {one.symptom for one in detector.run(window, parameters)} <= detector.finds, detector.name


def test_cost_grows_with_engines_in_memory_not_with_their_square(parameters: Parameters) -> None:
    """Two fleets of different size are looked at by the same number of array operations: no loop over engines."""
    calls = [_count_calls(lambda window=window: detect_all(window, parameters)) for window in (_healthy(20), _healthy(200))]
    assert calls[1] <= calls[0] * 1.5


def _healthy(engines: int) -> Window:
    return Fleet(engines=engines, seconds=120).window()


def _count_calls(run: Callable[[], object]) -> int:
    count = 0

    def tick(*_: object) -> None:
        nonlocal count
        count += 1

    sys.setprofile(tick)
    try:
        run()
    finally:
        sys.setprofile(None)
    return count


def test_a_misspelt_parameter_is_told_with_its_line(tmp_path: Path) -> None:
    text = DEFAULT.read_text().replace("  hold: 8.0", "  holds: 8.0")
    path = tmp_path / "parameters.yaml"
    path.write_text(text)
    with pytest.raises(FileError) as refused:
        load_parameters(path)
    told = str(refused.value)
    assert "progress.holds" in told
    assert "did you mean hold?" in told
