"""Pause, sleep and abort: the routes of vLLM's development mode on a simulated engine."""

import asyncio
from typing import Any

import pytest
from served_engine import Served, Start


async def running(served: Served, **body: Any) -> "asyncio.Task[tuple[int, Any]]":
    """A request that is being served, so slowly that it has long to go until the engine is told to hurry."""
    await served.crawl()
    task = asyncio.create_task(served.complete(**{"max_tokens": 100} | body))
    await served.reads("vllm:num_requests_running", 1)
    return task


async def test_a_pause_aborts_what_runs_and_holds_what_comes(served: Served) -> None:
    asking = await running(served)
    assert await served.post("/pause") == (200, {"status": "paused"})
    assert (await served.get("/is_paused"))[1] == {"is_paused": True}
    status, answer = await asking
    assert (status, answer["choices"][0]["finish_reason"]) == (200, "abort")
    assert await served.value("vllm:request_success_total", finished_reason="abort") == 1
    held = asyncio.create_task(served.complete())
    await asyncio.sleep(0.05)
    assert not held.done()
    assert await served.post("/resume") == (200, {"status": "resumed"})
    assert (await held)[0] == 200
    assert (await served.get("/is_paused"))[1] == {"is_paused": False}


async def test_a_pause_that_keeps_freezes_requests(served: Served) -> None:
    asking = await running(served)
    assert (await served.post("/pause?mode=keep"))[0] == 200
    await served.hurry()
    frozen = await served.value("vllm:generation_tokens_total")
    await asyncio.sleep(0.05)
    assert await served.value("vllm:generation_tokens_total") == frozen
    await served.post("/resume")
    status, answer = await asking
    assert (status, answer["usage"]["completion_tokens"]) == (200, 100)


async def test_a_pause_that_waits_answers_when_all_is_done(served: Served) -> None:
    asking = await running(served)
    pausing = asyncio.create_task(served.post("/pause?mode=wait"))
    await asyncio.sleep(0.05)
    assert not pausing.done()
    await served.hurry()
    assert (await pausing)[0] == 200
    assert await served.value("vllm:num_requests_running") == 0
    assert (await asking)[1]["choices"][0]["finish_reason"] == "length"


async def test_a_sleeping_engine_says_so_until_it_is_woken(served: Served) -> None:
    assert await served.post("/sleep?level=1") == (200, {"status": "sleeping", "level": 1})
    assert (await served.get("/is_sleeping"))[1] == {"is_sleeping": True}
    assert await served.value("vllm:engine_sleep_state", sleep_state="awake") == 0
    assert await served.value("vllm:engine_sleep_state", sleep_state="weights_offloaded") == 1
    assert await served.post("/wake_up") == (200, {"status": "awake", "tags": None})
    assert (await served.get("/is_sleeping"))[1] == {"is_sleeping": False}
    assert await served.value("vllm:engine_sleep_state", sleep_state="awake") == 1
    assert (await served.complete())[0] == 200


async def test_abort_requests_ends_those_named_or_all(served: Served) -> None:
    asking = await running(served, request_id="one")
    assert (await served.post("/abort_requests", {"request_ids": ["cmpl-one-0"]}))[1] == {"status": "aborted", "aborted": 1}
    assert (await asking)[1]["choices"][0]["finish_reason"] == "abort"
    await served.reads("vllm:num_requests_running", 0)
    asking = await running(served)
    assert (await served.post("/abort_requests", {}))[1] == {"status": "aborted", "aborted": 1}
    assert (await asking)[0] == 200


async def test_a_hung_engine_cannot_be_paused_until_it_goes_on(served: Served) -> None:
    await served.inject(fault="engine-hang")
    pausing = asyncio.create_task(served.post("/pause"))
    await asyncio.sleep(0.05)
    assert not pausing.done()
    await served.clear("engine-hang")
    assert (await pausing)[0] == 200


@pytest.mark.parametrize(
    ("path", "param"),
    [("/pause?mode=stop", "query.mode"), ("/sleep?level=3", "query.level"), ("/pause?clear_cache=2", "query.clear_cache")],
)
async def test_bad_parameters_are_refused(served: Served, path: str, param: str) -> None:
    status, answer = await served.post(path)
    assert (status, answer["error"]["param"]) == (400, param)


@pytest.mark.parametrize("body", [b"no", b"[]", b'{"request_ids": [1]}'])
async def test_bad_abort_bodies_are_refused(served: Served, body: bytes) -> None:
    async with served.session.post(served.url + "/abort_requests", data=body) as answer:
        assert answer.status == 400


async def test_without_development_mode_there_are_no_such_routes(start: Start) -> None:
    served = await start(dev_mode=False)
    assert (await served.post("/pause"))[0] == 404
    assert (await served.complete())[0] == 200
