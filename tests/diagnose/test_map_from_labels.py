"""The map of a fleet from nothing but labels, and parameters for a slower pace."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.checkup.cadence import for_cadence
from agent.checkup.mapping import Mapped, from_labels
from detectors.parameters import Parameters, load_parameters
from serving.fleet.entity import Entity, EntityKind
from serving.fleet.topology import Relation
from serving.telemetry.prometheus_targets import EngineFinder

Labels = dict[str, str]


def series(name: str = "vllm:num_requests_running", **labels: str) -> Labels:
    return {"__name__": name, "job": "vllm", "model_name": "m", **labels}


def names(mapped: Mapped) -> list[str]:
    return [engine.name for engine in mapped.topology.engines]


def test_engines_are_told_apart_by_instance() -> None:
    mapped = from_labels(
        [series(instance="10.0.0.1:8000"), series(instance="10.0.0.2:8000"), series(instance="10.0.0.1:8000")]
    )
    assert names(mapped) == ["10.0.0.1:8000", "10.0.0.2:8000"]
    assert mapped.topology.facts(mapped.topology.engines[0]).model == "m"


def test_pods_name_their_engines_and_nodes_and_hardware_are_taken_from_labels() -> None:
    mapped = from_labels([series(instance="10.0.0.1:8000", pod="vllm-0", node="gpu-7", gpu_type="H100")])
    (engine,) = mapped.topology.engines
    assert engine.name == "vllm-0"
    assert mapped.topology.facts(engine).hardware == "H100"
    assert mapped.topology.related(engine, Relation.RUNS_ON) == (Entity(EntityKind.NODE, "gpu-7"),)
    assert mapped.clues == {"hardware"}


def test_engines_of_two_clusters_with_one_address_stay_two() -> None:
    mapped = from_labels([series(instance="10.0.0.1:8000", cluster="a"), series(instance="10.0.0.1:8000", cluster="b")])
    assert len(names(mapped)) == 2
    assert len(set(names(mapped))) == 2


def test_one_engine_scraped_by_two_jobs_stays_one() -> None:
    assert len(names(from_labels([series(instance="h:1"), series(instance="h:1", job="again")]))) == 1


def test_ranks_of_one_engine_stay_one_engine() -> None:
    assert len(names(from_labels([series(instance="h:1", engine="0"), series(instance="h:1", engine="1")]))) == 1


def test_the_front_doors_names_are_used_where_a_label_has_them() -> None:
    door = {"__name__": "door:inflight_requests", "job": "door", "instance": "d:1", "replica": "vllm-0"}
    mapped = from_labels([series(instance="h:1", replica="vllm-0"), door])
    assert names(mapped) == ["vllm-0"]
    assert mapped.has_door


def test_a_front_door_of_strangers_is_left_out_and_said() -> None:
    door = {"__name__": "door:inflight_requests", "job": "door", "instance": "d:1", "replica": "vllm-0"}
    mapped = from_labels([series(instance="h:1"), door])
    assert not mapped.has_door
    assert "vllm-0" in mapped.notes[0]


def test_a_target_beside_the_engines_that_was_never_up_is_an_engine_too() -> None:
    down = {"__name__": "up", "job": "vllm", "instance": "h:2"}
    other = {"__name__": "up", "job": "node", "instance": "h:3"}
    mapped = from_labels([series(instance="h:1"), down, other])
    assert names(mapped) == ["h:1", "h:2"]
    assert mapped.topology.facts(mapped.topology.engines[1]).model == "m"


def test_series_without_any_telling_label_are_one_engine_and_that_is_said() -> None:
    mapped = from_labels([{"__name__": "vllm:num_requests_running", "model_name": "m"}])
    assert names(mapped) == ["m"]
    assert any("tells engines apart" in note for note in mapped.notes)


def test_no_series_of_an_engine_is_no_map() -> None:
    with pytest.raises(ValueError, match="no series of a vLLM engine"):
        from_labels([{"__name__": "up", "job": "node", "instance": "h:1"}])


_LABEL_SETS = st.fixed_dictionaries(
    {},
    optional={
        name: st.sampled_from(["a", "b", "c:1"]) for name in ("instance", "pod", "replica", "cluster", "namespace", "node")
    },
)


@given(st.lists(_LABEL_SETS, min_size=1, max_size=8))
def test_every_series_is_found_again_on_the_map_that_it_made(labels: list[Mapping[str, str]]) -> None:
    made = [series(**each) for each in labels]
    mapped = from_labels(made)
    finder = EngineFinder(mapped.topology)
    assert len(set(names(mapped))) == len(names(mapped))
    if all("instance" in each for each in labels):
        assert all(finder.row(each) is not None for each in made)


def test_at_the_shipped_pace_the_shipped_parameters_hold() -> None:
    shipped = load_parameters()
    assert for_cadence(shipped, 2.0) is shipped


@given(st.floats(2.6, 120.0))
def test_a_slower_pace_stretches_spans_and_changes_no_bar(cadence: float) -> None:
    shipped = load_parameters()
    slower = for_cadence(shipped, cadence)
    assert Parameters.model_validate(slower.model_dump()) == slower
    for family, before in shipped.model_dump().items():
        after = slower.model_dump()[family]
        assert all(after[name] >= value for name, value in before.items())
        changed = {name for name, value in before.items() if after[name] != value}
        assert not changed & {name for name in before if "ratio" in name or "share" in name or "least" in name}
    assert slower.load.queue_hold >= shipped.load.least_readings * cadence
    assert slower.progress.fresh > 2 * cadence
