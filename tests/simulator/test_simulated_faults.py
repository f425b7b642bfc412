"""Faults of a simulated engine: what they look like from outside, and that each can be undone."""

import asyncio
from typing import Any

import aiohttp
import pytest
from served_engine import Served, Start, eventually

from serving.simulator.faults import KINDS, ReversibleFault

SOON = aiohttp.ClientTimeout(total=0.3)


async def in_flight(served: Served, count: int) -> None:
    async def there() -> bool:
        return len(served.engine.driver.frontend.in_flight) == count

    await eventually(there, f"{count} requests are in flight")


def ask(served: Served, count: int = 1, **body: Any) -> "list[asyncio.Task[tuple[int, Any]]]":
    return [asyncio.create_task(served.complete(**body)) for _ in range(count)]


@pytest.mark.parametrize("fault", ["engine-hang", "worker-hang"])
async def test_a_hung_engine_looks_idle_and_healthy_while_requests_pile_up(served: Served, fault: str) -> None:
    await served.complete()
    steps = await served.value("vllm:iteration_tokens_total_count")
    files = await served.value("process_open_fds")
    assert (await served.inject(fault=fault))[0] == 200
    waiting = ask(served, 6)
    await in_flight(served, 6)
    assert await served.value("vllm:iteration_tokens_total_count") == steps
    for gauge in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"):
        assert await served.value(f"vllm:{gauge}") == 0
    # Client and server share this process: each new connection has two ends in it.
    assert await served.value("process_open_fds") >= files + 6
    async with served.session.get(served.url + "/health") as answer:
        assert answer.status == 200
    assert await served.clear(fault) == (200, {"fault": fault, "cleared": True})
    assert [status for status, _ in await asyncio.gather(*waiting)] == [200] * 6


async def test_a_busy_engine_that_hangs_leaves_its_last_gauges_standing(served: Served) -> None:
    await served.crawl()
    waiting = ask(served, 3, max_tokens=100)
    await served.reads("vllm:num_requests_running", 3)
    await served.inject(fault="engine-hang")
    before = await served.samples()
    await asyncio.sleep(0.1)
    after = await served.samples()
    for name in ("num_requests_running", "generation_tokens_total", "iteration_tokens_total_count", "kv_cache_usage_perc"):
        key = (f"vllm:{name}", frozenset())
        assert after[key] == before[key]
    assert after["vllm:num_requests_running", frozenset()] == 3
    await served.clear("engine-hang")
    await served.hurry()
    assert [answer["usage"]["completion_tokens"] for _, answer in await asyncio.gather(*waiting)] == [100] * 3


async def test_a_stream_of_a_hung_engine_is_open_and_silent(served: Served) -> None:
    await served.inject(fault="engine-hang")
    body = {"model": "sim", "prompt": "hi", "stream": True}
    async with served.session.post(served.url + "/v1/completions", json=body) as answer:
        assert answer.status == 200
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(answer.content.readline(), 0.1)


async def test_a_slow_worker_takes_longer_for_each_token(start: Start) -> None:
    served = await start(step_jitter=0)
    await served.complete(max_tokens=30)
    quick = await served.value("vllm:inter_token_latency_seconds_sum")
    await served.inject(fault="slow-worker", factor=5)
    await served.complete(max_tokens=30)
    slow = await served.value("vllm:inter_token_latency_seconds_sum") - quick
    assert slow == pytest.approx(5 * quick, rel=0.05)
    await served.clear("slow-worker")
    assert served.engine.driver.engine.slowdown == 1


async def test_a_gc_stall_pauses_all_requests_together(served: Served) -> None:
    await served.inject(fault="gc-stall", pause_s=0.12, every_s=0.4)
    answers = await asyncio.gather(*ask(served, 4, max_tokens=300))
    assert [status for status, _ in answers] == [200] * 4
    longer = await served.value("vllm:inter_token_latency_seconds_count")
    longer -= await served.value("vllm:inter_token_latency_seconds_bucket", le="0.1")
    assert longer >= 4
    await served.clear("gc-stall")
    assert served.engine.driver.engine.stalls is None


async def test_a_hung_api_accepts_and_answers_nothing_while_the_engine_goes_on(served: Served) -> None:
    await served.crawl()
    waiting = ask(served, 2, max_tokens=100)
    await served.reads("vllm:num_requests_running", 2)
    await served.inject(fault="api-hang")
    await served.hurry()
    for path in ("/metrics", "/health"):
        with pytest.raises(TimeoutError):
            async with served.session.get(served.url + path, timeout=SOON):
                pass
    scheduler = served.engine.driver.engine.scheduler

    async def done() -> bool:
        return scheduler.unfinished == 0

    await eventually(done, "the engine has finished its requests behind the hung API")
    assert not any(task.done() for task in waiting)
    status, listing = await served.get("/sim/faults")
    assert (status, [each["fault"] for each in listing["active"]]) == (200, ["api-hang"])
    assert (await served.clear("api-hang"))[0] == 200
    assert [status for status, _ in await asyncio.gather(*waiting)] == [200, 200]
    assert await served.value("vllm:generation_tokens_total") == 200


async def test_requests_sent_to_a_hung_api_are_served_when_it_goes_on(served: Served) -> None:
    await served.inject(fault="api-hang")
    waiting = ask(served)
    await asyncio.sleep(0.05)
    assert served.engine.driver.frontend.in_flight == ()
    await served.clear("api-hang")
    assert (await waiting[0])[0] == 200


async def test_fewer_blocks_bring_preemptions(start: Start) -> None:
    served = await start(block_size=16, num_gpu_blocks=300, max_model_len=512)
    await served.inject(fault="engine-hang")
    waiting = ask(served, 4, prompt=[1] * 60, max_tokens=200)
    await in_flight(served, 4)
    await served.inject(fault="kv-shrink", blocks=20)
    await served.clear("engine-hang")

    async def preempted() -> bool:
        return await served.value("vllm:num_preemptions_total") > 0

    await eventually(preempted, "a request is preempted")
    await served.clear("kv-shrink")
    assert [answer["usage"]["completion_tokens"] for _, answer in await asyncio.gather(*waiting)] == [200] * 4
    assert await served.value("vllm:kv_cache_usage_perc") == 0


async def test_the_listing_says_what_is_at_work_and_what_could_be(served: Served) -> None:
    assert (await served.get("/sim/faults"))[1]["active"] == []
    await served.inject(fault="slow-worker", factor=2)
    await served.inject(fault="slow-worker", factor=3)
    listing = (await served.get("/sim/faults"))[1]
    assert [(each["fault"], each["factor"]) for each in listing["active"]] == [("slow-worker", 3)]
    assert set(listing["known"]) == set(KINDS)
    assert served.engine.driver.engine.slowdown == 3


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"fault": "prefill-flood"}, "no fault is called 'prefill-flood'; a simulated engine knows api-hang"),
        ({}, "no fault is called None"),
        ({"fault": 3}, "no fault is called 3"),
        ([], "a fault is a JSON object"),
        ({"fault": "slow-worker", "factor": "big"}, "slow-worker: factor: "),
        ({"fault": "slow-worker", "factor": 0.5}, "slow-worker: factor: "),
        ({"fault": "slow-worker", "speed": 2}, "slow-worker: speed: Extra inputs"),
        ({"fault": "gc-stall", "pause_s": 3, "every_s": 2}, "gc-stall: Value error, pause_s (3.0) must be shorter"),
        ({"fault": "kv-shrink"}, "kv-shrink: blocks: Field required"),
        ({"fault": "engine-hang", "seconds": 3}, "engine-hang: seconds: Extra inputs"),
    ],
)
async def test_a_bad_fault_is_refused_in_words_and_nothing_happens(served: Served, given: object, words: str) -> None:
    status, answer = await served.post("/sim/faults", given)
    assert status == 400
    assert answer["error"].startswith(words)
    assert (await served.get("/sim/faults"))[1]["active"] == []


async def test_a_body_that_is_not_json_is_refused(served: Served) -> None:
    async with served.session.post(served.url + "/sim/faults", data=b"{") as answer:
        assert answer.status == 400
        assert (await answer.json())["error"].startswith("the body is not JSON")


async def test_clearing_twice_is_fine_and_clearing_the_unknown_is_not(served: Served) -> None:
    await served.inject(fault="engine-hang")
    assert (await served.clear("engine-hang"))[1]["cleared"] is True
    assert (await served.clear("engine-hang")) == (200, {"fault": "engine-hang", "cleared": False})
    assert (await served.clear("nonsense"))[0] == 400


@pytest.mark.parametrize("name", sorted(name for name, kind in KINDS.items() if issubclass(kind, ReversibleFault)))
async def test_an_engine_whose_fault_was_undone_serves_as_before(served: Served, name: str) -> None:
    parameters = {"kv-shrink": {"blocks": 1}}.get(name, {})
    assert (await served.inject(fault=name, **parameters))[0] == 200
    assert (await served.clear(name))[0] == 200
    assert (await served.complete(prompt=[1] * 300, max_tokens=20))[1]["usage"]["completion_tokens"] == 20
    driver = served.engine.driver
    assert driver.engine.scheduler.pool.capacity == driver.engine.shape.usable_blocks
    assert (driver.engine.halted, driver.engine.slowdown, driver.engine.stalls) == (False, 1.0, None)
    assert driver.answering.is_set()
