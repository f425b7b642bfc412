"""Tokens per expert as four columns: the same however they were fetched, whatever restarts, and little of the past."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from stand_ins import Servers, answering, fleet

from serving.clock import FakeClock, SystemClock
from serving.telemetry.experts import HALF_LIFE, REDUCED, TOKENS, ExpertLoads, Key, loads_of, only_counts_experts
from serving.telemetry.prometheus import Answers, PrometheusSource
from serving.telemetry.registry import Registry
from serving.telemetry.scrape import EXTRA_FAILED, EXTRA_RECOVERED, ScrapeLimits, ScrapeSource

ENGINE = "vllm:iteration_tokens_total_count 7\nprocess_start_time_seconds 1\n"


def loads(*layers: list[float]) -> dict[Key, float]:
    return {(layer, expert): value for layer, row in enumerate(layers) for expert, value in enumerate(row)}


def exposed(counts: dict[Key, float], rank: int = 0) -> str:
    return "".join(
        f'{TOKENS}{{layer="{layer}",expert="{expert}",rank="{rank}"}} {value}\n' for (layer, expert), value in counts.items()
    )


def test_the_worst_layer_and_its_hottest_expert_are_told() -> None:
    seen = ExpertLoads()
    assert seen.take("a", loads([0, 0, 0, 0], [0, 0, 0, 0]), 0.0) == {}
    told = seen.take("a", loads([10, 10, 10, 10], [4, 30, 4, 2]), 2.0)
    assert told == {"experts.imbalance": 3.0, "experts.per_expert": 10.0, "experts.layer": 1.0, "experts.expert": 1.0}


def test_what_was_counted_fades_by_half_in_a_half_life() -> None:
    seen = ExpertLoads()
    seen.take("a", loads([0, 0]), 0.0)
    seen.take("a", loads([100, 0]), 1.0)
    told = seen.take("a", loads([100, 50]), 1.0 + HALF_LIFE)
    assert told["experts.imbalance"] == pytest.approx(1.0)
    assert told["experts.per_expert"] == pytest.approx(50.0)


def test_a_first_look_says_nothing_for_the_counts_may_be_of_any_age() -> None:
    assert ExpertLoads().take("a", loads([1e9, 0]), 0.0) == {}


def test_a_restart_counts_what_the_new_process_counted() -> None:
    seen = ExpertLoads()
    seen.take("a", loads([1000, 1000]), 0.0)
    told = seen.take("a", loads([30, 10]), 2.0)
    assert (told["experts.imbalance"], told["experts.per_expert"]) == (1.5, 20.0)


def test_a_sample_that_comes_again_changes_nothing() -> None:
    seen = ExpertLoads()
    seen.take("a", loads([0, 0]), 0.0)
    told = seen.take("a", loads([3, 1]), 2.0)
    assert seen.take("a", loads([300, 1]), 2.0) == told
    assert seen.take("a", loads([300, 1]), 1.0) == told


def test_an_expert_that_appears_later_has_not_grown_yet() -> None:
    seen = ExpertLoads()
    seen.take("a", loads([0, 0]), 0.0)
    seen.take("a", loads([10, 10]), 2.0)
    told = seen.take("a", loads([10, 10, 5000]), 2.000001)
    assert told["experts.imbalance"] == pytest.approx(1.5)
    assert told["experts.expert"] in {0.0, 1.0}


def test_a_layer_that_routes_few_tokens_is_not_the_worst() -> None:
    seen = ExpertLoads()
    seen.take("a", loads([0, 0], [0, 0]), 0.0)
    assert seen.take("a", loads([50, 50], [0, 3]), 2.0)["experts.imbalance"] == 1.0


@given(
    grown=st.lists(st.lists(st.integers(0, 1000), min_size=6, max_size=6), min_size=1, max_size=8),
    seconds=st.floats(0.5, 60),
)
def test_an_imbalance_lies_between_even_and_all_to_one(grown: list[list[int]], seconds: float) -> None:
    seen, counts = ExpertLoads(), np.zeros(6)
    seen.take("a", loads(list(counts[:3]), list(counts[3:])), 0.0)
    for number, more in enumerate(grown, start=1):
        counts += more
        told = seen.take("a", loads(list(counts[:3]), list(counts[3:])), number * seconds)
        if told:
            assert 1.0 - 1e-9 <= told["experts.imbalance"] <= 3.0 + 1e-9
            assert told["experts.per_expert"] > 0


def test_ranks_are_summed_and_series_without_numbers_are_left_out() -> None:
    series = [
        ({"layer": "0", "expert": "1", "rank": "0"}, 3.0),
        ({"layer": "0", "expert": "1", "rank": "1"}, 4.0),
        ({"layer": "0", "expert": "other"}, 5.0),
        ({"expert": "1"}, 5.0),
        ({"layer": "0", "expert": "0"}, float("nan")),
    ]
    assert loads_of(series) == {(0, 1): 7.0}


def test_a_target_that_only_counts_experts_is_told_from_an_engine() -> None:
    assert only_counts_experts({TOKENS: [], "up": []})
    assert not only_counts_experts({TOKENS: [], "vllm:num_requests_running": []})
    assert not only_counts_experts({"up": []})


def test_the_scrape_reads_the_counters_beside_an_engines_own_metrics(servers: Servers, registry: Registry) -> None:
    engine, own = servers.start(answering(ENGINE)), servers.start(answering(ENGINE + exposed(loads([0, 0]))))
    first, second = (
        servers.start(answering(exposed(loads([0, 0])))),
        servers.start(answering(exposed(loads([0, 0]), rank=1))),
    )
    topology = fleet(a=engine.url, b=own.url, c=engine.url)
    more = {"a": (f"{first.url}/metrics", f"{second.url}/metrics")}
    source = ScrapeSource(SystemClock(), registry, extra_urls=more)
    try:
        assert "experts.tokens" in source.read(topology, 0.0, 5.0).values
        for server, rank in ((first, 0), (second, 1)):
            server.handler = answering(exposed(loads([30, 10]), rank=rank))
        own.handler = answering(ENGINE + exposed(loads([5, 5])))
        reading = source.read(topology, 0.0, 5.0)
    finally:
        source.close()
    np.testing.assert_array_equal(reading.values["experts.tokens"], [80.0, 10.0, np.nan])
    np.testing.assert_allclose(reading.values["experts.imbalance"], [1.5, 1.0, np.nan])
    assert not reading.failures


def test_a_counter_that_does_not_answer_costs_its_series_only_and_is_told_once(servers: Servers, registry: Registry) -> None:
    engine, extra = servers.start(answering(ENGINE)), servers.start(answering(exposed(loads([1, 1]))))
    source = ScrapeSource(
        SystemClock(), registry, limits=ScrapeLimits(timeout=2.0), extra_urls={"a": (f"{extra.url}/metrics",)}
    )
    try:
        servers.stop(extra)
        broken, again = (source.read(fleet(a=engine.url), 0.0, 5.0) for _ in range(2))
        servers.restart(extra)
        back = source.read(fleet(a=engine.url), 0.0, 5.0)
    finally:
        source.close()
    assert [(event.kind, event.entity.name) for event in broken.events] == [(EXTRA_FAILED, "a")]
    assert (broken.values["scrape.up"][0], broken.values["engine.steps"][0], dict(broken.failures)) == (1.0, 7.0, {})
    assert again.events == ()
    assert [event.kind for event in back.events] == [EXTRA_RECOVERED]


def test_a_prometheus_gives_the_same_columns_and_the_counters_being_down_is_not_the_engines(registry: Registry) -> None:
    source = PrometheusSource(FakeClock(1_000.0), registry, "http://127.0.0.1:1")
    topology = fleet(a="http://10.0.0.1:8000")
    engine = {"job": "vllm", "instance": "10.0.0.1:8000", "replica": "a"}
    counter = {"job": "experts", "instance": "10.0.0.1:9000", "replica": "a"}

    def told(counts: dict[Key, float], at: float) -> Answers:
        scalars = [
            ({"__name__": "up", **engine}, 1.0),
            ({"__name__": "up", **counter}, 0.0),
            ({"__name__": "vllm:iteration_tokens_total_count", **engine}, 9.0),
        ]
        scalars += [
            ({"__name__": TOKENS, **counter, "layer": str(layer), "expert": str(expert), "rank": "0"}, value)
            for (layer, expert), value in counts.items()
        ]
        return Answers(scalars, [], [(engine, at), (counter, at)])

    try:
        source.reading(topology, told(loads([0, 0]), 990.0))
        reading = source.reading(topology, told(loads([30, 10]), 992.0))
    finally:
        source.close()
    assert reading.values["scrape.up"][0] == 1.0
    assert {name: reading.values[name][0] for name in REDUCED} == {
        "experts.imbalance": 1.5,
        "experts.per_expert": 20.0,
        "experts.layer": 0.0,
        "experts.expert": 0.0,
    }
