"""A request through the door: passed on, streamed back, tried again where nobody has seen a byte, and counted."""

import asyncio

import aiohttp
import orjson
import pytest
from door_ring import CHUNKS, MakeRing, Upstream, until

from serving.gateway.ejection import EjectionPolicy
from serving.gateway.retry_budget import RetryBudget

NEVER_EJECT = EjectionPolicy(connection_failures=1000, failures=1000)


async def test_a_request_is_passed_on_and_its_answer_passed_back(make_ring: MakeRing) -> None:
    ring = await make_ring(one := Upstream("one"))
    async with ring.client.post(f"{ring.door.url}/v1/chat/completions?a=b%20c", data=b'{"model":"m", "x": 1 }') as response:
        assert response.status == 200
        assert await response.json() == {"engine": "one"}
        assert response.headers["X-Engine-Says"] == "hello"
        assert response.headers["X-Served-By"] == "one"
    assert one.bodies == [b'{"model":"m", "x": 1 }']
    assert one.seen[0].raw_path == "/v1/chat/completions?a=b%20c"
    assert await ring.metric("door:requests_finished_total", "one", "ok") == 1
    assert await ring.metric("door:inflight_requests", "one") == 0
    assert await ring.metric("door:request_seconds_count", "one") == 1
    assert await ring.metric("door:time_to_first_byte_seconds_count", "one") == 0


async def test_a_stream_comes_through_byte_by_byte_as_it_is_made(make_ring: MakeRing) -> None:
    ring = await make_ring(one := Upstream("one", hang_after_first_byte=True))
    body = {"model": "m", "stream": True}
    async with ring.client.post(f"{ring.door.url}/v1/completions", json=body) as response:
        assert await response.content.readany() == CHUNKS[0]
        assert await ring.metric("door:inflight_requests", "one") == 1
        assert await ring.metric("door:time_to_first_byte_seconds_count", "one") == 1
        one.release.set()
        assert await response.content.read() == b"".join(CHUNKS[1:])
        assert response.content_type == "text/event-stream"
    assert await ring.metric("door:requests_finished_total", "one", "ok") == 1
    assert (await ring.metrics())['door:user_time_to_first_byte_seconds_count{model="m"}'] == 1


async def test_request_id_and_traceparent_are_kept_or_made(make_ring: MakeRing) -> None:
    ring = await make_ring(one := Upstream("one"))
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    await ring.complete(headers={"X-Request-Id": "mine", "traceparent": trace, "Connection": "X-Hop", "X-Hop": "secret"})
    await ring.complete(headers={"X-Request-Id": "with a space", "traceparent": "nonsense"})
    kept, made = one.seen[0].headers, one.seen[1].headers
    assert (kept["X-Request-Id"], kept["traceparent"]) == ("mine", trace)
    assert "X-Hop" not in kept
    assert len(made["X-Request-Id"]) == 32
    assert made["traceparent"].startswith("00-")
    assert made["traceparent"].endswith("-01")


@pytest.mark.parametrize("fault", ["break_before_first_byte", "hang_before_headers", "hang_before_first_byte"])
async def test_a_try_without_a_first_byte_is_made_again_on_another_engine(make_ring: MakeRing, fault: str) -> None:
    one, two = Upstream("one"), Upstream("two")
    setattr(one, fault, True)
    ring = await make_ring(one, two, first_byte_s=0.2, ejection=NEVER_EJECT)
    answers = [await ring.complete(stream=True) for _ in range(8)]
    assert answers == [(200, b"".join(CHUNKS))] * 8
    retried = await ring.metric("door:retries_total", "one")
    assert retried == len(one.seen) > 0
    result = "connection" if fault.startswith("break") else "timeout"
    assert await ring.metric("door:requests_finished_total", "one", result) == retried
    assert await ring.metric("door:requests_started_total", "two") == 8
    assert (await ring.metrics())['door:user_requests_total{model="m",result="ok"}'] == 8


@pytest.mark.parametrize("manner", [{"status": 500}, {"status": 503}, {"error_event_first": 500}])
async def test_an_error_of_the_engine_is_tried_elsewhere(make_ring: MakeRing, manner: dict[str, int]) -> None:
    ring = await make_ring(one := Upstream("one", **manner), Upstream("two"), ejection=NEVER_EJECT)  # type: ignore[arg-type]
    assert [await ring.complete(stream=True) for _ in range(8)] == [(200, b"".join(CHUNKS))] * 8
    result = f"http_{manner.get('status', 500)}"
    assert await ring.metric("door:requests_finished_total", "one", result) == len(one.seen) > 0


async def test_the_clients_own_mistake_is_not_tried_again(make_ring: MakeRing) -> None:
    one, two = Upstream("one", status=400), Upstream("two", status=400)
    ring = await make_ring(one, two)
    status, body = await ring.complete()
    assert status == 400
    assert orjson.loads(body)["error"]["message"].startswith("from ")
    assert len(one.seen) + len(two.seen) == 1


async def test_an_engines_last_error_reaches_the_client_with_its_headers(make_ring: MakeRing) -> None:
    ring = await make_ring(Upstream("one", status=503))
    async with ring.client.post(f"{ring.door.url}/v1/completions", json={"model": "m"}) as response:
        assert response.status == 503
        assert response.headers["Retry-After"] == "7"
        assert (await response.json())["error"]["message"] == "from one"


async def test_after_the_first_byte_nothing_is_tried_again_and_the_client_sees_the_break(make_ring: MakeRing) -> None:
    one, two = Upstream("one", break_after_first_byte=True), Upstream("two", break_after_first_byte=True)
    ring = await make_ring(one, two)
    with pytest.raises(aiohttp.ClientPayloadError):
        await ring.complete(stream=True)
    assert len(one.seen) + len(two.seen) == 1
    broken = sum([await ring.metric("door:requests_finished_total", name, "connection") for name in ("one", "two")])
    assert broken == 1


async def test_an_error_event_in_a_stream_is_passed_on_and_counted_as_the_engines(make_ring: MakeRing) -> None:
    ring = await make_ring(Upstream("one", error_event_last=500))
    status, body = await ring.complete(stream=True)
    assert status == 200
    assert b'"error"' in body
    assert await ring.metric("door:requests_finished_total", "one", "http_500") == 1


async def test_the_retry_budget_bounds_second_tries(make_ring: MakeRing) -> None:
    one, two = Upstream("one", status=500), Upstream("two", status=500)
    ring = await make_ring(one, two, ejection=NEVER_EJECT, retries=RetryBudget(tokens=0, ratio=0.25, burst=5))
    for _ in range(20):
        assert (await ring.complete())[0] == 500
    assert len(one.seen) + len(two.seen) == 20 + 5


async def test_a_whole_answer_may_take_longer_than_a_first_byte_may(make_ring: MakeRing) -> None:
    ring = await make_ring(one := Upstream("one", hang_before_headers=True), first_byte_s=0.05)
    asking = asyncio.create_task(ring.complete(stream=False))
    await until(lambda: len(one.seen) == 1)
    await asyncio.sleep(0.2)
    one.release.set()
    assert (await asking)[0] == 200


async def test_the_request_limit_ends_a_hung_stream(make_ring: MakeRing) -> None:
    ring = await make_ring(one := Upstream("one", hang_after_first_byte=True), request_s=0.2)
    with pytest.raises(aiohttp.ClientPayloadError):
        await ring.complete(stream=True)
    await until(lambda: one.left == 1)
    assert await ring.metric("door:requests_finished_total", "one", "timeout") == 1


async def test_a_timeout_without_another_engine_is_told_in_openais_shape(make_ring: MakeRing) -> None:
    ring = await make_ring(Upstream("one", hang_before_first_byte=True), first_byte_s=0.1)
    status, body = await ring.complete(stream=True)
    assert status == 504
    assert set(orjson.loads(body)["error"]) == {"message", "type", "param", "code"}
    assert (await ring.metrics())['door:user_requests_total{model="m",result="timeout"}'] == 1


@pytest.mark.parametrize("fault", ["hang_before_headers", "hang_before_first_byte", "hang_after_first_byte"])
async def test_a_client_that_leaves_ends_its_request_at_the_engine(make_ring: MakeRing, fault: str) -> None:
    one = Upstream("one")
    setattr(one, fault, True)
    ring = await make_ring(one)
    asking = asyncio.create_task(ring.complete(stream=True))
    await until(lambda: len(one.seen) == 1)
    asking.cancel()
    await until(lambda: one.left == 1)

    async def counted() -> bool:
        return await ring.metric("door:requests_finished_total", "one", "client_closed") == 1

    await until(counted)
    assert await ring.metric("door:inflight_requests", "one") == 0
    assert await ring.metric("door:ejected", "one") == 0


async def test_a_slow_reader_holds_the_engine_back(make_ring: MakeRing) -> None:
    total = 64 << 20
    ring = await make_ring(one := Upstream("one", chunks=(b"x" * (1 << 20),) * (total >> 20)))
    async with ring.client.post(f"{ring.door.url}/v1/completions", json={"model": "m", "stream": True}) as response:
        first = await response.content.readany()
        level = -1
        while one.written != level:
            level = one.written
            await asyncio.sleep(0.2)
        assert level < total
        assert len(first) + len(await response.content.read()) == total


async def test_a_dead_engine_is_ejected_and_users_do_not_notice(make_ring: MakeRing) -> None:
    ring = await make_ring(one := Upstream("one"), Upstream("two"), Upstream("three"))
    await one.stop()
    assert [(await ring.complete())[0] for _ in range(30)] == [200] * 30
    assert await ring.metric("door:ejected", "one") == 1
    assert await ring.metric("door:requests_finished_total", "one", "connection") == 2


async def test_the_last_engine_of_a_model_is_never_ejected(make_ring: MakeRing) -> None:
    ring = await make_ring(one := Upstream("one"))
    await one.stop()
    assert [(await ring.complete())[0] for _ in range(10)] == [502] * 10
    assert await ring.metric("door:ejected", "one") == 0
    await one.start(int(one.url.rpartition(":")[2]))
    assert (await ring.complete())[0] == 200


async def test_an_engine_that_is_undrained_starts_with_a_clean_slate(make_ring: MakeRing) -> None:
    ring = await make_ring(one := Upstream("one"), Upstream("two"))
    await one.stop()
    await asyncio.gather(*(ring.complete() for _ in range(10)))
    assert await ring.metric("door:ejected", "one") == 1
    await ring.order("one/drain", key="k1")
    await one.start(int(one.url.rpartition(":")[2]))
    await ring.order("one/undrain", key="k2")
    assert await ring.metric("door:ejected", "one") == 0


async def test_full_engines_are_not_ejected_for_saying_so(make_ring: MakeRing) -> None:
    ring = await make_ring(Upstream("one", status=503), Upstream("two"))
    for _ in range(20):
        assert (await ring.complete())[0] == 200
    assert await ring.metric("door:ejected", "one") == 0


async def test_what_has_not_happened_is_zero_and_not_missing(make_ring: MakeRing) -> None:
    ring = await make_ring(Upstream("one"))
    series = {name.partition("{")[0] for name in await ring.metrics()}
    for result in ("ok", "timeout", "connection", "client_closed", "http_400", "http_500"):
        assert await ring.metric("door:requests_finished_total", "one", result) == 0
    assert series >= {
        *("door:requests_started_total", "door:inflight_requests", "door:drained", "door:ejected", "door:retries_total"),
        *("door:time_to_first_byte_seconds_bucket", "door:request_seconds_bucket", "process_start_time_seconds"),
    }
    assert not any(name.endswith("_created") for name in series)


async def test_several_models_are_routed_by_name(make_ring: MakeRing) -> None:
    ring = await make_ring(Upstream("one", model="a"), Upstream("two", model="b"))
    assert [orjson.loads((await ring.complete(model=m))[1])["engine"] for m in "abab"] == ["one", "two"] * 2
    status, body = await ring.complete(model="c")
    assert (status, orjson.loads(body)["error"]["code"]) == (404, "model_not_found")
    async with ring.client.get(f"{ring.door.url}/v1/models") as response:
        assert [model["id"] for model in (await response.json())["data"]] == ["a", "b"]


@pytest.mark.parametrize(("data", "says"), [(b"{nonsense", "not JSON"), (b"[1]", "JSON object"), (b"{}", "names no model")])
async def test_what_cannot_be_routed_is_refused_with_the_reason(make_ring: MakeRing, data: bytes, says: str) -> None:
    ring = await make_ring(Upstream("one", model="a"), Upstream("two", model="b"))
    async with ring.client.post(
        f"{ring.door.url}/v1/completions", data=data, headers={"Content-Type": "application/json"}
    ) as response:
        assert response.status == 400
        assert says in (await response.json())["error"]["message"]


async def test_with_one_model_engines_judge_the_name_themselves(make_ring: MakeRing) -> None:
    ring = await make_ring(Upstream("one"))
    assert (await ring.complete(model="an-alias"))[0] == 200


@pytest.mark.parametrize("path", ["/sleep", "/pause", "/v1/load_lora_adapter", "/collective_rpc", "/v1/..%2fsleep"])
async def test_routes_that_are_not_for_users_stay_inside(make_ring: MakeRing, path: str) -> None:
    ring = await make_ring(one := Upstream("one"))
    async with ring.client.post(f"{ring.door.url}{path}", json={}) as response:
        assert response.status == 404
        assert (await response.json())["error"]["code"] == "unknown_route"
    assert not one.seen


async def test_a_body_over_the_limit_is_refused(make_ring: MakeRing) -> None:
    ring = await make_ring(Upstream("one"), body_bytes=1000)
    async with ring.client.post(f"{ring.door.url}/v1/completions", data=b"x" * 5000) as response:
        assert response.status == 413
