"""Tokens per expert of a simulated engine: what is asked decides where they go, and the real counter's series show them."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from served_engine import Served, Start

from serving.load.arrivals import LoadPlan, arrivals
from serving.load.patterns import PATTERNS
from serving.simulator.experts import ExpertCounts, experts_of
from serving.simulator.settings import SimulatorSettings
from serving.simulator.words import voice_of
from serving.telemetry.experts import TOKENS, loads_of
from serving.telemetry.exposition import ExpositionParser

HEALTHY, HOT = 1.8, 5.5  # a real model of this shape: 1.2 to 1.6, and 6.5 to 7.0


def imbalance(pattern: str, seed: int) -> list[float]:
    """The most tokens of an expert over the mean, by layer, after what a pattern asks."""
    counts = ExpertCounts(2, 16, 2)
    plan = LoadPlan(PATTERNS[pattern], "http://127.0.0.1:1", "m", rps=4, seconds=30, seed=seed)
    for number, arrival in enumerate(arrivals(plan)):
        counts.begin(str(number), arrival.prompt, voice_of(arrival.prompt, 0))
        counts.count({str(number): len(arrival.prompt)})
        for _ in range(arrival.max_tokens):
            counts.count({str(number): 1})
    return [max(row) * len(row) / sum(row) for row in counts.counts]


@pytest.mark.parametrize("seed", range(5))
def test_prompts_of_one_token_load_few_experts_and_mixed_ones_all(seed: int) -> None:
    assert max(imbalance("steady", seed)) < HEALTHY
    assert min(imbalance("hot-expert", seed)) > HOT


def test_the_hot_prompts_repeat_one_token_in_all_requests_after_a_beginning_of_their_own() -> None:
    plan = LoadPlan(PATTERNS["hot-expert"], "http://127.0.0.1:1", "m", seconds=20)
    prompts = [arrival.prompt for arrival in arrivals(plan)]
    assert len({token for prompt in prompts for token in prompt[2:]}) == 1
    assert len({prompt[:2] for prompt in prompts}) > len(prompts) / 2  # a prefix cache finds nothing to share


@given(
    layer=st.integers(0, 255),
    token=st.integers(0, 2**20),
    context=st.integers(0, 256),
    sizes=st.tuples(st.integers(1, 300), st.integers(1, 64)),
)
def test_a_token_always_goes_to_the_same_experts_each_once(
    layer: int, token: int, context: int, sizes: tuple[int, int]
) -> None:
    experts, active = max(sizes), min(sizes)
    chosen = experts_of(layer, token, context, experts, active)
    assert chosen == experts_of.__wrapped__(layer, token, context, experts, active)
    assert len(set(chosen)) == active
    assert all(0 <= expert < experts for expert in chosen)


@given(steps=st.lists(st.integers(1, 40), max_size=20), seed=st.integers(0, 99))
def test_every_computed_token_is_counted_in_every_layer_at_each_of_its_experts(steps: list[int], seed: int) -> None:
    counts = ExpertCounts(3, 8, 2)
    counts.begin("a", Random(seed).choices(range(250), k=30), seed)
    for step in steps:
        counts.count({"a": step, "unknown": 5})
    counts.end("a")
    counts.count({"a": 7})
    assert [sum(row) for row in counts.counts] == [2 * sum(steps)] * 3


async def test_an_engine_with_experts_shows_their_tokens_and_a_dense_one_does_not(start: Start) -> None:
    served: Served = await start(num_experts=4, num_experts_per_tok=1, moe_layers=2)
    assert (await served.complete(prompt=[7] * 20, max_tokens=5))[0] == 200
    loads = loads_of(ExpositionParser({TOKENS}).parse(await served.exposition())[TOKENS])
    assert set(loads) == {(layer, expert) for layer in range(2) for expert in range(4)}
    assert [sum(value for (at, _), value in loads.items() if at == layer) for layer in range(2)] == [24, 24]

    dense: Served = await start()
    assert "fleetwarden:" not in await dense.exposition()


def test_more_experts_for_a_token_than_there_are_is_refused() -> None:
    with pytest.raises(ValidationError, match=r"num_experts_per_tok \(3\) must not be above num_experts \(2\)"):
        SimulatorSettings(name="a", port=0, num_experts=2, num_experts_per_tok=3)
