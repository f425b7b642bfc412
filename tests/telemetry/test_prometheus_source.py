"""Reading a Prometheus: finding engines among its series, sampling times, doubled series, and every way to fail."""

import asyncio
import copy
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from aiohttp import web
from pydantic import SecretStr
from stand_ins import Handler, Server, Servers, answering, fleet

from serving.clock import FakeClock, SystemClock
from serving.fleet.topology import EngineFacts, Topology
from serving.telemetry.history import History
from serving.telemetry.prometheus import DOUBLED, PrometheusSource, Queries
from serving.telemetry.promql import PromqlError
from serving.telemetry.reading import FailureKind, Reading
from serving.telemetry.registry import Job, Registry

CAPTURED = Path(__file__).parent / "captured" / "prometheus-2.42.json"
TINY = Topology(
    [
        EngineFacts("tiny-0", "http://127.0.0.1:8201", "tiny"),
        EngineFacts("tiny-1", "http://127.0.0.1:8202", "tiny"),
        EngineFacts("tiny-2", "http://127.0.0.1:8203", "tiny"),
    ]
)
Store = dict[str, list[dict[str, Any]]]


@pytest.fixture
def store() -> Store:
    """What a real Prometheus 2.42 answered: tiny-0 up, tiny-1 down, tiny-2 unknown, and a front door."""
    captured = orjson.loads(CAPTURED.read_bytes())
    return {name: answer["data"]["result"] for name, answer in captured.items()}


def serving(store: Store, **extra: Any) -> Handler:
    """A handler that answers the three queries from `store`."""

    async def handler(request: web.Request) -> web.Response:
        query = request.query["query"]
        part = "stamps" if "timestamp(" in query else "histograms" if "_bucket" in query else "scalars"
        answer = {"status": "success", "data": {"resultType": "vector", "result": store[part]}, **extra}
        return web.Response(body=orjson.dumps(answer), content_type="application/json")

    return handler


@pytest.fixture
def ask(registry: Registry, servers: Servers) -> Iterator[Callable[..., Reading]]:
    """Reads once from a server that runs the given handler, through a source that ends with the test."""
    sources: list[PrometheusSource] = []

    def read(handler: Handler, topology: Topology = TINY, deadline: float = 5.0, **arguments: Any) -> Reading:
        source = PrometheusSource(SystemClock(), registry, servers.start(handler).url, **arguments)
        sources.append(source)
        return source.read(topology, 0.0, deadline)

    yield read
    for source in sources:
        source.close()


def test_a_captured_answer_reads_as_canonical_signals(ask: Callable[..., Reading], store: Store) -> None:
    reading = ask(serving(store))
    assert reading.error == ""
    np.testing.assert_equal(reading.values["engine.steps"], [31480, np.nan, np.nan])
    np.testing.assert_equal(reading.values["scrape.up"], [1, 0, np.nan])
    np.testing.assert_equal(reading.values["door.in_flight"], [4, np.nan, np.nan])
    assert reading.histograms["engine.queue_time"].counts[0, -1] == 1734
    assert np.isnan(reading.histograms["engine.queue_time"].counts[1:]).all()


def test_sampling_times_are_those_of_the_scrapes_and_not_of_the_query(ask: Callable[..., Reading], store: Store) -> None:
    reading = ask(serving(store))
    np.testing.assert_allclose(reading.sampled_at, [1795977116.419, 1795977116.464, np.nan], rtol=0, atol=1e-3)
    np.testing.assert_allclose(reading.sampled_at_of["door.in_flight"][0], 1795977116.617, rtol=0, atol=1e-3)


def test_an_engine_that_is_down_or_unknown_to_the_store_is_named(ask: Callable[..., Reading], store: Store) -> None:
    failures = ask(serving(store)).failures
    assert list(failures) == ["tiny-1", "tiny-2"]
    assert "up is 0" in failures["tiny-1"].detail
    assert 'instance="127.0.0.1:8203"' in failures["tiny-2"].detail
    assert failures["tiny-2"].kind is FailureKind.OTHER


def test_the_same_scrape_seen_at_two_ticks_grows_old(ask: Callable[..., Reading], store: Store) -> None:
    history = History(TINY)
    scraped = 1795977116.419
    for tick in range(4):
        window = history.window(scraped + 1 + 2 * tick, TINY, (ask(serving(store)),))
    assert window.age("engine.steps")[0] == pytest.approx(7)
    assert np.isnan(window.latest("engine.steps", within=5)).all()


def relabelled(store: Store, change: Callable[[dict[str, str]], Mapping[str, str]]) -> Store:
    changed = copy.deepcopy(store)
    for series in changed.values():
        for item in series:
            item["metric"] = change(item["metric"])
    return changed


def test_an_engine_is_found_by_the_labels_that_the_map_gives_it(ask: Callable[..., Reading], store: Store) -> None:
    store = relabelled(store, lambda labels: {**labels, "ns": "prod"})
    topology = Topology(
        [
            EngineFacts("x", "http://nowhere:1", "tiny", labels={"instance": "127.0.0.1:8201", "ns": "prod"}),
            EngineFacts("y", "http://127.0.0.1:8201", "tiny", labels={"ns": "test"}),
        ]
    )
    np.testing.assert_equal(ask(serving(store), topology).values["engine.steps"], [31480, np.nan])


@pytest.mark.parametrize("label", ["pod", "replica"])
def test_an_engine_is_found_by_its_name_as_pod_or_replica(ask: Callable[..., Reading], store: Store, label: str) -> None:
    store = relabelled(store, lambda labels: {**labels, label: "mine"} if labels["instance"] == "127.0.0.1:8201" else labels)
    reading = ask(serving(store), fleet(mine="http://10.0.0.9:8000"))
    assert reading.values["engine.steps"][0] == 31480
    assert np.isfinite(reading.sampled_at[0])


def test_a_store_without_up_takes_sampling_times_from_the_heartbeat(ask: Callable[..., Reading], store: Store) -> None:
    store["scalars"] = [item for item in store["scalars"] if item["metric"]["__name__"] != "up"]
    store["stamps"] = [item for item in store["stamps"] if "fleetwarden_heartbeat" in item["metric"]]
    reading = ask(serving(store))
    np.testing.assert_allclose(reading.sampled_at, [1795977116.419, np.nan, np.nan], rtol=0, atol=1e-3)
    np.testing.assert_allclose(reading.sampled_at_of["door.in_flight"][0], 1795977116.617, rtol=0, atol=1e-3)


def test_samples_of_unknown_age_are_missing_in_the_window(ask: Callable[..., Reading], store: Store) -> None:
    store["stamps"] = []
    window = History(TINY).window(1795977117.0, TINY, (ask(serving(store)),))
    assert np.isnan(window.latest("engine.steps", within=1e9)).all()


def doubled(store: Store, **changed: str) -> Store:
    """The store with all of the engines' series once more under other target labels."""
    again = relabelled(store, lambda labels: {**labels, **changed} if labels["job"] == "vllm" else labels)
    return {
        part: series + [item for item in again[part] if item["metric"]["job"] == changed.get("job", "vllm")]
        for part, series in store.items()
    }


def test_an_engine_scraped_by_two_jobs_is_counted_once_and_told_once(
    registry: Registry, servers: Servers, store: Store
) -> None:
    server = servers.start(serving(doubled(store, job="again")))
    source = PrometheusSource(SystemClock(), registry, server.url)
    first, second = source.read(TINY, 0.0, 5.0), source.read(TINY, 1.0, 5.0)
    source.close()
    assert first.values["engine.steps"][0] == 31480, "not summed"
    assert first.histograms["engine.queue_time"].counts[0, -1] == 1734
    told = [event for event in first.events if event.entity == TINY.engines[0]]
    assert [event.kind for event in told] == [DOUBLED]
    assert "job again (127.0.0.1:8201)" in told[0].text
    assert "job vllm (127.0.0.1:8201), which is left out" in told[0].text
    assert second.events == ()


def test_an_engine_scraped_under_two_addresses_is_counted_once(ask: Callable[..., Reading], store: Store) -> None:
    store = relabelled(doubled(store, instance="node-7:8201"), lambda labels: {**labels, "pod": "mine"})
    reading = ask(serving(store), Topology([EngineFacts("x", "http://h", "tiny", labels={"pod": "mine", "job": "vllm"})]))
    assert reading.values["engine.steps"][0] == 31480
    assert DOUBLED in {event.kind for event in reading.events}


def test_ranks_of_one_engine_on_several_ports_are_not_taken_for_doubles(ask: Callable[..., Reading]) -> None:
    def rank(number: int, value: str) -> dict[str, Any]:
        target = {"job": "vllm", "instance": f"10.0.0.1:800{number}", "pod": "big"}
        labels = {"__name__": "vllm:num_requests_running", "engine": str(number), "model_name": "m", **target}
        return {"metric": labels, "value": [0, value]}

    def start(number: int) -> dict[str, Any]:
        target = {"job": "vllm", "instance": f"10.0.0.1:800{number}", "pod": "big"}
        return {"metric": {"__name__": "process_start_time_seconds", **target}, "value": [0, str(100 + number)]}

    def up(number: int) -> dict[str, Any]:
        return {
            "metric": {"__name__": "up", "job": "vllm", "instance": f"10.0.0.1:800{number}", "pod": "big"},
            "value": [0, "1"],
        }

    stamps = [
        {"metric": {k: v for k, v in up(n)["metric"].items() if k != "__name__"}, "value": [0, str(10 + n)]} for n in (0, 1)
    ]
    store = {"scalars": [rank(0, "2"), rank(1, "3"), up(0), up(1), start(0), start(1)], "histograms": [], "stamps": stamps}
    reading = ask(serving(store), Topology([EngineFacts("big-0", "http://10.0.0.1:8000", "m", labels={"pod": "big"})]))
    assert reading.values["engine.running"][0] == 5
    assert reading.values["engine.process_start"][0] == 101
    assert reading.sampled_at[0] == 10, "as old as the rank looked at longest ago"
    assert reading.events == ()


def test_two_front_doors_are_summed_and_one_door_scraped_twice_is_not(ask: Callable[..., Reading], store: Store) -> None:
    def with_door(**changed: str) -> Store:
        doors = relabelled(store, lambda labels: {**labels, **changed} if labels["job"] == "door" else labels)
        return {
            part: store[part] + [i for i in doors[part] if i["metric"] not in [o["metric"] for o in store[part]]]
            for part in store
        }

    two = ask(serving(with_door(instance="127.0.0.1:8090")))
    assert two.values["door.in_flight"][0] == 8
    assert two.events == ()
    twice = ask(serving(with_door(job="door-again")))
    assert twice.values["door.in_flight"][0] == 4
    assert [(event.kind, str(event.entity)) for event in twice.events] == [(DOUBLED, "gateway/door")]


def test_queries_are_few_and_hold_every_name_new_and_old_and_the_match(registry: Registry) -> None:
    queries = Queries.of(registry, {"cluster": 'eu"1'})
    together = " ".join(queries.in_order)
    asked = registry.wanted(Job.ENGINE, Job.EXPERTS, Job.DOOR, Job.SCRAPE)
    assert all(name in together for name in asked)
    assert len(queries.in_order) == 3
    assert all('cluster="eu\\"1"' in query for query in queries.in_order)


def test_the_bearer_token_is_sent_and_never_shown(servers: Servers, registry: Registry) -> None:
    server = servers.start(answering("", status=403))
    source = PrometheusSource(
        SystemClock(), registry, server.url.replace("//", "//me:hunter2@"), bearer_token=SecretStr("s3cret")
    )
    error = source.read(TINY, 0.0, 5.0).error
    source.close()
    assert server.requests[0].headers["Authorization"] == "Bearer s3cret"
    assert "bearer_token_file" in error
    assert "s3cret" not in error
    assert "hunter2" not in error


@pytest.mark.parametrize(
    ("handler", "said"),
    [
        (answering("", status=401), "answers 401: it wants credentials"),
        (answering("<html>login", content_type="text/html"), "answers an HTML page"),
        (answering("garbage"), "answers no JSON"),
        (answering('{"status":"success"}'), "no Prometheus API would"),
        (answering("[]"), "no Prometheus API would"),
        (answering('{"data":{"result":[{"metric":{},"value":[1,"x"]}]}}'), "something else than an instant vector"),
        (answering("", status=302, Location="http://login/?token=abc"), "it points to http://login/, which is not followed"),
        (answering("", status=404), "has no /api/v1/query"),
        (answering('{"status":"error","error":"query timed out"}', status=503), "answers 503: query timed out"),
        (
            serving({"scalars": [], "histograms": [], "stamps": []}, warnings=["store eu-2 is down"]),
            "parts may be missing: store eu-2",
        ),
    ],
)
def test_an_answer_that_cannot_be_used_is_a_sentence_that_names_the_url(
    ask: Callable[..., Reading], servers: Servers, handler: Handler, said: str
) -> None:
    reading = ask(handler)
    assert said in reading.error
    assert reading.error.startswith(servers.urls[0])
    assert not reading.values
    assert np.isnan(reading.sampled_at).all()


def test_nobody_listening_is_said(registry: Registry) -> None:
    source = PrometheusSource(SystemClock(), registry, "http://127.0.0.1:1")
    assert (
        source.read(TINY, 0.0, 5.0).error
        == "http://127.0.0.1:1 cannot be reached: connection refused; nothing listens there"
    )
    source.close()


def test_a_store_that_is_too_slow_is_left_at_the_deadline_and_not_asked_again_meanwhile(
    registry: Registry, servers: Servers
) -> None:
    async def silent(_: web.Request) -> web.Response:
        await asyncio.sleep(60)
        return web.Response()

    server = servers.start(silent)
    source = PrometheusSource(FakeClock(), registry, server.url, timeout=30.0)
    assert "gave no answer in" in source.read(TINY, 0.0, 0.2).error
    source._client.ask = lambda *_: servers.held(60)  # type: ignore[method-assign, assignment] - as a hanging resolver would
    assert "gave no answer in" in source.read(TINY, 0.0, 0.2).error
    assert "still owes the answer" in source.read(TINY, 0.0, 0.2).error
    source.close()


def test_answers_that_together_take_too_long_are_an_error(registry: Registry, servers: Servers, store: Store) -> None:
    clock = FakeClock()
    quick = serving(store)

    async def slow(request: web.Request) -> web.StreamResponse:
        clock.advance(2.0)
        return await quick(request)

    source = PrometheusSource(clock, registry, servers.start(slow).url, timeout=3.0)
    assert "gave no answer in 1.6 s" in source.read(TINY, 0.0, 4.0).error, "3.6 s for all, 2 s gone with the first"
    with pytest.raises(PromqlError, match="answers too slowly"):
        source._client.ask("up", 0.0)
    source.close()


def test_a_server_is_asked_over_one_kept_connection(registry: Registry, servers: Servers, store: Store) -> None:
    server: Server = servers.start(serving(store))
    source = PrometheusSource(SystemClock(), registry, server.url)
    for _ in range(3):
        assert source.read(TINY, 0.0, 5.0).error == ""
    source.close()
    assert len(server.peers) == 9
    assert len(set(server.peers)) == 1
