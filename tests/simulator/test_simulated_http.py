"""The HTTP routes of a simulated engine, against what vLLM answers."""

import asyncio
import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from served_engine import Served, Start, eventually

OPENAPI = Path(__file__).parents[1] / "recordings" / "vllm-0.32-a" / "openapi.json.gz"
ONE_WORD = [7]


async def events(served: Served, path: str, body: dict[str, Any]) -> list[Any]:
    """All chunks of a stream; the last is the string [DONE]."""
    found = []
    async with served.session.post(served.url + path, json={"model": "sim", "stream": True, **body}) as answer:
        assert answer.status == 200
        assert answer.headers["Content-Type"] == "text/event-stream; charset=utf-8"
        async for line in answer.content:
            if line.strip():
                text = line.decode().removeprefix("data: ").strip()
                found.append(text if text == "[DONE]" else json.loads(text))
    return found


async def test_a_completion_has_vllms_shape(served: Served) -> None:
    status, answer = await served.complete(prompt="hello there friend", max_tokens=6)
    assert status == 200
    assert answer["object"] == "text_completion"
    assert answer["id"].startswith("cmpl-")
    assert answer["choices"][0]["finish_reason"] == "length"
    assert len(answer["choices"][0]["text"].split()) == 6
    assert answer["usage"] == {
        "prompt_tokens": 3,
        "total_tokens": 9,
        "completion_tokens": 6,
        "prompt_tokens_details": None,
    }


async def test_a_streamed_completion_says_the_same_as_a_whole_one(served: Served) -> None:
    body = {"prompt": "hello there", "max_tokens": 7, "stream_options": {"include_usage": True}}
    chunks = await events(served, "/v1/completions", body)
    _, whole = await served.complete(**body)
    assert chunks[-1] == "[DONE]"
    assert chunks[-2]["choices"] == []
    assert chunks[-2]["usage"] == {"prompt_tokens": 2, "total_tokens": 9, "completion_tokens": 7}
    tokens = chunks[:-2]
    assert "".join(each["choices"][0]["text"] for each in tokens) == whole["choices"][0]["text"]
    assert [each["choices"][0]["finish_reason"] for each in tokens] == [None] * 6 + ["length"]
    assert len({each["id"] for each in tokens}) == 1


async def test_a_streamed_chat_opens_with_the_role(served: Served) -> None:
    body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 3}
    chunks = await events(served, "/v1/chat/completions", body)
    status, whole = await served.post("/v1/chat/completions", {"model": "sim", **body})
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    said = "".join(each["choices"][0]["delta"].get("content", "") for each in chunks[:-1])
    assert (status, said) == (200, whole["choices"][0]["message"]["content"])
    assert chunks[0]["object"] == "chat.completion.chunk"
    assert whole["object"] == "chat.completion"
    assert whole["id"].startswith("chatcmpl-")


async def test_a_chat_without_a_limit_may_fill_the_context(start: Start) -> None:
    served = await start(max_model_len=64, num_gpu_blocks=10)
    body = {"model": "sim", "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]}
    _, answer = await served.post("/v1/chat/completions", body)
    assert answer["usage"]["total_tokens"] == 64


async def test_continuous_usage_counts_up(served: Served) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    chunks = await events(served, "/v1/completions", {"prompt": "a b", "max_tokens": 3, "stream_options": options})
    assert [each["usage"]["completion_tokens"] for each in chunks[:-1]] == [1, 2, 3, 3]


@pytest.mark.parametrize(
    ("prompt", "choices", "tokens"),
    [("three small words", 1, 3), ([1, 2, 3, 4], 1, 4), (["one", "two words"], 2, 3), ([[1, 2], [3]], 2, 3)],
)
async def test_prompts_come_as_text_or_tokens_one_or_many(served: Served, prompt: object, choices: int, tokens: int) -> None:
    status, answer = await served.complete(prompt=prompt)
    assert status == 200
    assert [each["index"] for each in answer["choices"]] == list(range(choices))
    assert answer["usage"]["prompt_tokens"] == tokens
    assert answer["usage"]["completion_tokens"] == 4 * choices


async def test_the_same_seed_says_the_same(start: Start) -> None:
    texts = []
    for seed in (1, 1, 2):
        served = await start(seed=seed)
        texts.append((await served.complete(max_tokens=20))[1]["choices"][0]["text"])
    assert texts[0] == texts[1] != texts[2]


async def test_a_stop_string_ends_the_text(served: Served) -> None:
    _, whole = await served.complete(max_tokens=30)
    word = whole["choices"][0]["text"].split()[4]
    _, stopped = await served.complete(max_tokens=30, stop=[word])
    choice = stopped["choices"][0]
    assert choice["finish_reason"] == "stop"
    assert word in choice["text"]
    assert len(choice["text"].split()) <= 5
    assert await served.value("vllm:request_success_total", finished_reason="stop") == 1


async def test_too_long_a_context_is_the_clients_mistake(start: Start) -> None:
    served = await start(max_model_len=100)
    status, answer = await served.complete(prompt=ONE_WORD * 100)
    assert status == 400
    assert answer["error"]["type"] == "BadRequestError"
    assert answer["error"]["code"] == 400
    assert answer["error"]["param"] == "input_tokens"
    assert answer["error"]["message"].startswith(
        "This model's maximum context length is 100 tokens. However, your prompt contains 100 input tokens"
    )
    assert (await served.complete(prompt=ONE_WORD * 99, max_tokens=50))[1]["usage"]["completion_tokens"] == 1


@pytest.mark.parametrize(
    ("body", "status", "kind", "param"),
    [
        ({"model": "other"}, 404, "NotFoundError", "model"),
        ({"max_tokens": 0}, 400, "BadRequestError", "max_tokens"),
        ({"max_tokens": 100_000}, 400, "BadRequestError", "max_tokens"),
        ({"prompt": []}, 400, "BadRequestError", "prompt"),
        ({"prompt": {"text": 1}}, 400, "Bad Request", "body.prompt"),
        ({"max_tokens": "many"}, 400, "Bad Request", "body.max_tokens"),
        ({"messages": 1, "prompt": None}, 400, "Bad Request", "body.prompt"),
    ],
)
async def test_refusals_have_vllms_body(served: Served, body: dict[str, Any], status: int, kind: str, param: str) -> None:
    code, answer = await served.complete(**body)
    assert (code, answer["error"]["type"], answer["error"]["param"]) == (status, kind, param)
    assert answer["error"]["code"] == status
    assert answer["error"]["message"]


async def test_bodies_that_are_not_json_are_refused(served: Served) -> None:
    for data, headers in ((b"{", {"Content-Type": "application/json"}), (b"{}", {"Content-Type": "text/plain"})):
        async with served.session.post(served.url + "/v1/completions", data=data, headers=headers) as answer:
            assert answer.status == 400
            assert (await answer.json())["error"]["type"] == "Bad Request"


async def test_unknown_paths_get_vllms_body(served: Served) -> None:
    status, answer = await served.get("/nowhere")
    assert (status, answer["error"]["message"]) == (404, "Not Found")


async def test_plain_routes_answer_as_vllms(served: Served) -> None:
    assert (await served.get("/version"))[1] == {"version": "0.32.0"}
    assert (await served.get("/load"))[1] == {"server_load": 0}
    _, models = await served.get("/v1/models")
    assert [(each["id"], each["max_model_len"], each["owned_by"]) for each in models["data"]] == [("sim", 4096, "vllm")]
    for path in ("/health", "/ping"):
        async with served.session.get(served.url + path) as answer:
            assert (answer.status, await answer.read()) == (200, b"")


async def test_tokenize_counts_as_generation_does(served: Served) -> None:
    text = "some words, and a verylongwordindeed"
    _, tokenized = await served.post("/tokenize", {"model": "sim", "prompt": text, "return_token_strs": True})
    _, answer = await served.complete(prompt=text)
    assert tokenized["count"] == len(tokenized["tokens"]) == answer["usage"]["prompt_tokens"]
    assert "".join(tokenized["token_strs"]) == text
    assert tokenized["max_model_len"] == 4096
    _, chat = await served.post("/tokenize", {"messages": [{"role": "user", "content": "hi"}]})
    assert chat["count"] > 1
    assert (await served.post("/tokenize", {}))[0] == 400


async def test_a_given_request_id_is_used_and_echoed(served: Served) -> None:
    headers = {"X-Request-Id": "mine"}
    async with served.session.post(served.url + "/v1/completions", json={"prompt": "hi"}, headers=headers) as answer:
        assert answer.headers["X-Request-Id"] == "mine"
        assert (await answer.json())["id"] == "cmpl-mine"


async def test_one_id_twice_in_flight_is_two_requests(start: Start) -> None:
    served = await start()
    headers = {"X-Request-Id": "twin"}
    body = {"prompt": "hi", "max_tokens": 50}
    answers = await asyncio.gather(*(served.post("/v1/completions", body, headers=headers) for _ in range(2)))
    assert [(status, answer["usage"]["completion_tokens"]) for status, answer in answers] == [(200, 50)] * 2


async def test_a_client_that_leaves_a_stream_aborts_its_request(start: Start) -> None:
    served = await start(count_client_aborts=True)
    body = {"model": "sim", "prompt": "hi", "max_tokens": 4000, "stream": True}
    answer = await served.session.post(served.url + "/v1/completions", json=body)
    await answer.content.readline()
    await served.reads("vllm:num_requests_running", 1)
    answer.close()
    await served.reads("vllm:num_requests_running", 0)
    assert await served.value("vllm:kv_cache_usage_perc") == 0
    assert await served.value("vllm:request_success_total", finished_reason="abort") == 1
    assert await served.value("vllm:request_success_total", finished_reason="length") == 0
    assert served.engine.driver.frontend.in_flight == ()


async def test_a_client_that_leaves_before_the_answer_is_counted_as_vllm_0_32_does(served: Served) -> None:
    await served.crawl()
    asking = asyncio.create_task(served.complete())
    await served.reads("vllm:time_to_first_token_seconds_count", 1)
    asking.cancel()
    await served.reads("vllm:num_requests_running", 0)
    await served.reads("http_requests_total", 1, handler="/v1/completions", method="POST", status="4xx")
    # That version forgets such requests without counting them; the recordings read 0 here too.
    assert await served.value("vllm:request_success_total", finished_reason="abort") == 0


async def test_requests_above_the_queue_limit_get_503(start: Start) -> None:
    served = await start(max_num_queued_reqs=2)
    await served.crawl()
    long = [asyncio.create_task(served.complete(max_tokens=30)) for _ in range(2)]
    await served.reads("vllm:num_requests_running", 2)
    status, answer = await served.complete()
    assert status == 503
    assert answer["error"]["type"] == "Service Unavailable"
    assert answer["error"]["message"].startswith("The engine is currently busy")
    assert await served.value("vllm:admission_rejections_total", reason="max_num_queued_reqs") == 1
    await served.hurry()
    assert [status for status, _ in await asyncio.gather(*long)] == [200, 200]
    assert (await served.complete())[0] == 200


async def test_too_many_prompt_tokens_before_prefill_get_503(start: Start) -> None:
    served = await start(max_num_queued_tokens=50)
    await served.inject(fault="engine-hang")
    waiting = asyncio.create_task(served.complete(prompt=ONE_WORD * 60))

    async def refused() -> bool:
        probe = asyncio.create_task(served.complete())
        done, _ = await asyncio.wait([probe], timeout=0.2)
        if not done:
            probe.cancel()
        return bool(done) and probe.result()[0] == 503

    await eventually(refused, "a request is refused for the prefill backlog")
    await served.clear("engine-hang")
    assert (await waiting)[0] == 200


async def test_priority_from_body_or_header_decides_who_goes_first(start: Start) -> None:
    served = await start(max_num_seqs=1, scheduling_policy="priority")
    order = []

    async def ask(name: str, priority: int, header: str | None) -> None:
        headers = {} if header is None else {"X-Vllm-Priority": header}
        await served.post("/v1/completions", {"prompt": "hi", "max_tokens": 30, "priority": priority}, headers=headers)
        order.append(name)

    await served.crawl()
    first = asyncio.create_task(ask("running", 0, None))
    await served.reads("vllm:num_requests_running", 1)
    await served.inject(fault="engine-hang")
    rest = [asyncio.create_task(ask(*each)) for each in (("low", 5, None), ("middle", 5, "3"), ("high", 1, None))]

    async def all_here() -> bool:
        return len(served.engine.driver.frontend.in_flight) == 4

    await eventually(all_here, "all requests have arrived")
    await served.clear("engine-hang")
    await served.hurry()
    await asyncio.gather(first, *rest)
    assert order == ["running", "high", "middle", "low"]


async def test_a_request_with_a_grammar_is_deferred_first(start: Start) -> None:
    served = await start(grammar_seconds=30)
    format_ = {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}}
    asking = asyncio.create_task(served.complete(response_format=format_))
    await served.reads("vllm:num_requests_waiting_by_reason", 1, reason="deferred")
    assert await served.value("vllm:num_requests_waiting_by_reason", reason="capacity") == 0
    assert await served.value("vllm:num_requests_waiting") == 1
    asking.cancel()
    await served.reads("vllm:num_requests_waiting", 0)


async def test_a_repeated_prompt_is_found_in_the_prefix_cache(start: Start) -> None:
    served = await start(block_size=16, num_gpu_blocks=400)
    for _ in range(2):
        await served.complete(prompt=list(range(100)))
    assert await served.value("vllm:prefix_cache_queries_total") == 200
    assert await served.value("vllm:prefix_cache_hits_total") == 96
    assert await served.value("vllm:prompt_tokens_by_source_total", source="local_cache_hit") == 96
    assert await served.value("vllm:prompt_tokens_cached_by_source_total", source="device") == 96
    assert (await served.post("/reset_prefix_cache"))[1] == {"success": True}
    await served.complete(prompt=list(range(100)))
    assert await served.value("vllm:prefix_cache_hits_total") == 96


async def test_load_is_tracked_when_asked_for(start: Start) -> None:
    served = await start(enable_server_load_tracking=True)
    asking = asyncio.create_task(served.complete(max_tokens=2000))
    await served.reads("vllm:num_requests_running", 1)
    assert (await served.get("/load"))[1] == {"server_load": 1}
    asking.cancel()


async def test_every_simulated_route_is_one_of_vllms(served: Served) -> None:
    theirs = json.loads(gzip.decompress(OPENAPI.read_bytes()))["paths"]
    for route in served.engine.application().router.routes():
        path = route.resource.canonical
        if not path.startswith("/sim/") and route.method != "HEAD":
            assert route.method.lower() in theirs[path], f"{route.method} {path}"
