"""The catalogue: complete, consistent, and strict about what it is asked."""

import pytest

from serving.engines.specs import EngineKind
from serving.faults.catalogue import FaultUsageError, catalogue, fault_named
from serving.simulator.faults import KINDS

NAMES = {
    *("engine-hang", "worker-hang", "api-hang", "engine-kill", "worker-kill", "api-kill", "slow-worker", "gc-stall"),
    *("prefill-flood", "kv-flood", "surge", "endless-generation", "hot-expert", "mass-cancel", "impatient-clients"),
}


def test_every_fault_is_there_and_says_what_it_looks_like() -> None:
    assert set(catalogue()) == NAMES
    assert all(fault.summary and fault.shows for fault in catalogue().values())
    assert all(fault.causes or "engine is healthy" in fault.shows for fault in catalogue().values())


@pytest.mark.parametrize("kind", [EngineKind.VLLM, EngineKind.SIMULATED])
def test_every_fault_applies_to_real_and_simulated_engines_alike(kind: EngineKind) -> None:
    assert all(fault.way(kind).means for fault in catalogue().values())


def test_what_simulated_engines_are_asked_for_is_what_they_know() -> None:
    asked = {fault.ways[EngineKind.SIMULATED].simulator for fault in catalogue().values() if fault.ways}
    assert asked - {None} <= set(KINDS)


def test_parameters_get_defaults_and_may_come_as_text() -> None:
    assert fault_named("gc-stall").bind({"pause_s": "0.5"}) == {"pause_s": 0.5, "every_s": 3.0}


@pytest.mark.parametrize("value", ["long", "0.01", "99", "nan", "", True])
def test_a_parameter_out_of_bounds_is_refused_with_its_bounds(value: object) -> None:
    with pytest.raises(FaultUsageError, match=r"gc-stall: pause_s .* from 0\.05 to 5 s"):
        fault_named("gc-stall").bind({"pause_s": value})


def test_an_unknown_parameter_is_refused_with_the_known_ones() -> None:
    with pytest.raises(FaultUsageError, match="no parameter 'pause'; its parameters: pause_s, every_s"):
        fault_named("gc-stall").bind({"pause": 1})


def test_an_unknown_fault_is_refused_with_the_likely_one_and_the_list() -> None:
    with pytest.raises(FaultUsageError, match=r"did you mean engine-hang.*api-kill"):
        fault_named("engine-hand")


def test_a_fault_that_does_not_fit_the_kind_of_engine_says_which_kinds_it_fits() -> None:
    with pytest.raises(FaultUsageError, match="vllm, simulated"):
        fault_named("gc-stall").way(EngineKind.PROGRAM)
