"""What a simulated engine exposes, against an exposition recorded from vLLM 0.32.0. The official parser is the judge."""

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import REGISTRY, Counter
from prometheus_client.parser import text_string_to_metric_families
from served_engine import Served, Start

from serving.simulator.measures import Histogram, token_buckets

RECORDED = Path(__file__).parents[1] / "recordings" / "vllm-0.32-a" / "exposition-0.32.0.txt"
# Labels whose values are the engine's own; of all others the values must be the recorded ones.
OWN_VALUES = {"model_name", "version", "patchlevel"}


def families_of(text: str) -> dict[str, Any]:
    return {family.name: family for family in text_string_to_metric_families(text)}


def label_names(family: Any) -> dict[str, set[tuple[str, ...]]]:
    found = defaultdict(set)
    for sample in family.samples:
        found[sample.name].add(tuple(sorted(sample.labels)))
    return dict(found)


def label_values(family: Any) -> set[tuple[str, frozenset[tuple[str, str]]]]:
    return {
        (sample.name, frozenset((key, text) for key, text in sample.labels.items() if key not in OWN_VALUES))
        for sample in family.samples
    }


@pytest.fixture
async def exposed(start: Start) -> dict[str, Any]:
    """The families of an engine of the recorded size that has served a little, whole, streamed and refused."""
    served: Served = await start(max_model_len=2048)
    assert (await served.complete())[0] == 200
    assert (await served.complete(max_tokens=-1))[0] == 400
    return families_of(await served.exposition())


@pytest.fixture
def recorded() -> dict[str, Any]:
    """The families of the recording."""
    return families_of(RECORDED.read_text())


async def test_the_same_families_with_the_same_types_and_help(exposed: dict[str, Any], recorded: dict[str, Any]) -> None:
    assert set(exposed) == set(recorded)
    assert {name: family.type for name, family in exposed.items()} == {name: each.type for name, each in recorded.items()}
    helps = {name: family.documentation for name, family in exposed.items()}
    assert helps == {name: each.documentation for name, each in recorded.items()}


async def test_every_family_has_the_same_samples_and_label_names(exposed: dict[str, Any], recorded: dict[str, Any]) -> None:
    for name, family in recorded.items():
        assert label_names(exposed[name]) == label_names(family), name


async def test_the_values_of_labels_are_the_same_buckets_included(exposed: dict[str, Any], recorded: dict[str, Any]) -> None:
    # The context length is the recorded one, so even the bounds of token counts and the cache's labels agree.
    for name, family in recorded.items():
        assert label_values(exposed[name]) == label_values(family), name


async def test_the_text_itself_is_the_same_but_for_the_numbers(start: Start) -> None:
    def without_numbers(text: str) -> list[str]:
        return [line if line.startswith("#") else line.rsplit(" ", 1)[0] for line in text.splitlines()]

    served = await start(max_model_len=2048, model="tiny")
    await served.complete(model="tiny")
    await served.complete(model="tiny", max_tokens=-1)
    ours, theirs = without_numbers(await served.exposition()), without_numbers(RECORDED.read_text())
    # The process's own part depends on the interpreter that runs the test.
    first = "# HELP vllm:estimated_flops_per_gpu_total"
    begin = [next(index for index, line in enumerate(lines) if line.startswith(first)) for lines in (ours, theirs)]
    assert ours[begin[0] :] == theirs[begin[1] :]


async def test_counters_and_histograms_add_up_after_traffic(start: Start) -> None:
    served = await start()
    for length in (1, 5, 30):
        status, answer = await served.complete(prompt="one two three four", max_tokens=length)
        assert (status, answer["usage"]["completion_tokens"]) == (200, length)
    assert await served.value("vllm:request_success_total", finished_reason="length") == 3
    assert await served.value("vllm:generation_tokens_total") == 36
    assert await served.value("vllm:prompt_tokens_total") == 12
    assert await served.value("vllm:prompt_tokens_by_source_total", source="local_compute") == 12
    assert await served.value("vllm:time_to_first_token_seconds_count") == 3
    assert await served.value("vllm:inter_token_latency_seconds_count") == 0 + 4 + 29
    assert await served.value("vllm:iteration_tokens_total_count") == 36
    assert await served.value("vllm:iteration_tokens_total_sum") == 48
    assert await served.value("vllm:request_generation_tokens_sum") == 36
    assert await served.value("vllm:request_params_max_tokens_bucket", le="5.0") == 2
    for name in ("e2e_request_latency", "request_queue_time", "request_prefill_time", "request_decode_time"):
        assert await served.value(f"vllm:{name}_seconds_count") == 3
    whole = await served.value("vllm:request_inference_time_seconds_sum")
    parts = [await served.value(f"vllm:request_{part}_time_seconds_sum") for part in ("prefill", "decode")]
    assert whole == pytest.approx(sum(parts))
    assert await served.value("vllm:num_requests_running") == 0
    assert await served.value("vllm:kv_cache_usage_perc") == 0


async def test_http_requests_are_counted_by_handler_but_not_those_of_probes(start: Start) -> None:
    served = await start()
    await served.complete()
    await served.complete(model="other")
    await served.get("/version")
    samples = await served.samples()
    counted = {dict(labels)["handler"] for name, labels in samples if name == "http_requests_total"}
    assert counted == {"/v1/completions"}
    assert await served.value("http_requests_total", handler="/v1/completions", method="POST", status="2xx") == 1
    assert await served.value("http_requests_total", handler="/v1/completions", method="POST", status="4xx") == 1


async def test_a_model_name_with_quotes_stays_one_label(start: Start) -> None:
    served = await start(model='a "b" \\c')
    families = families_of(await served.exposition())
    assert families["vllm:num_requests_running"].samples[0].labels["model_name"] == 'a "b" \\c'


def test_token_buckets_follow_the_context_length() -> None:
    assert token_buckets(2048) == (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000)
    assert token_buckets(5000)[-1] == 5000
    assert token_buckets(9)[-1] == 5


def test_a_value_on_a_bound_belongs_to_its_bucket() -> None:
    histogram = Histogram((1, 2))
    for value in (1, 1.5, 2, 3):
        histogram.observe(value)
    assert histogram.counts == [1, 2, 1]
    assert (histogram.count, histogram.total) == (4, 7.5)


async def test_metrics_of_other_code_in_the_process_do_not_leak_in(start: Start) -> None:
    stranger = Counter("stranger_things", "A counter that some library put into the global registry")
    try:
        assert "stranger" not in await (await start()).exposition()
    finally:
        REGISTRY.unregister(stranger)
