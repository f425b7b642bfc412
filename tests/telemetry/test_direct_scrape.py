"""Direct scrape: what a reading holds, and how each way to fail is told apart, one target at a time."""

import asyncio
import socket
from collections.abc import Iterator

import numpy as np
import pytest
from aiohttp import web
from stand_ins import Servers, answering, fleet

from serving.clock import SystemClock
from serving.fleet.topology import Topology
from serving.telemetry.reading import FailureKind, Reading
from serving.telemetry.registry import Registry
from serving.telemetry.scrape import DOOR, ScrapeLimits, ScrapeSource

LINE = "vllm:iteration_tokens_total_count 7\n"


@pytest.fixture
def read(registry: Registry) -> Iterator["Reader"]:
    reader = Reader(registry)
    yield reader
    reader.close()


class Reader:
    """Reads once, through a source that is closed at the end of the test."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._sources: list[ScrapeSource] = []

    def __call__(self, topology: Topology, door: str | None = None, deadline: float = 5.0, **limits: float) -> Reading:
        source = ScrapeSource(SystemClock(), self._registry, door, limits=ScrapeLimits(**limits))  # type: ignore[arg-type]
        self._sources.append(source)
        return source.read(topology, 0.0, deadline)

    def close(self) -> None:
        for source in self._sources:
            source.close()


def failure(reading: Reading, name: str = "a") -> tuple[FailureKind, str]:
    assert reading.values["scrape.up"][0] == 0
    assert np.isnan(reading.values.get("engine.steps", np.array([np.nan]))[0])
    return reading.failures[name].kind, reading.failures[name].detail


def test_a_recorded_engine_reads_as_its_canonical_signals(servers: Servers, read: Reader, exposition: str) -> None:
    reading = read(fleet(a=servers.start(answering(exposition)).url))
    assert reading.values["engine.steps"][0] == 31480
    assert reading.values["engine.finished.length"][0] == 1734
    assert reading.values["engine.awake"][0] == 1
    assert reading.values["scrape.up"][0] == 1
    queue = reading.histograms["engine.queue_time"]
    assert (queue.bounds[0], queue.bounds[-1], queue.counts[0, 0], queue.counts[0, -1]) == (0.3, np.inf, 1640, 1734)
    assert queue.sums[0] == pytest.approx(301.04060124)
    assert not reading.failures
    assert not reading.error


def test_an_engine_of_an_older_version_is_read_by_its_old_names(servers: Servers, read: Reader) -> None:
    old = 'vllm:gpu_cache_usage_perc 0.5\nvllm:time_per_output_token_seconds_bucket{le="+Inf"} 3\n'
    both = "vllm:gpu_cache_usage_perc 0.5\nvllm:kv_cache_usage_perc 0.25\n"
    reading = read(fleet(a=servers.start(answering(old)).url, b=servers.start(answering(both)).url))
    np.testing.assert_equal(reading.values["engine.kv_usage"], [0.5, 0.25])
    assert reading.histograms["engine.inter_token"].counts[0, 0] == 3


def test_data_parallel_ranks_become_one_engine(servers: Servers, read: Reader) -> None:
    text = "".join(
        f'vllm:num_requests_running{{engine="{rank}"}} {rank + 1}\nvllm:kv_cache_usage_perc{{engine="{rank}"}} 0.{rank}\n'
        f'vllm:time_to_first_token_seconds_bucket{{engine="{rank}",le="1.0"}} 1\n'
        f'vllm:time_to_first_token_seconds_bucket{{engine="{rank}",le="+Inf"}} 2\n'
        for rank in range(3)
    )
    reading = read(fleet(a=servers.start(answering(text)).url))
    assert reading.values["engine.running"][0] == 6
    assert reading.values["engine.kv_usage"][0] == 0.2
    np.testing.assert_equal(reading.histograms["engine.ttft"].counts[0], [3, 6])


def test_what_is_not_a_number_is_missing_and_not_zero(servers: Servers, read: Reader) -> None:
    text = f"{LINE}vllm:num_requests_running NaN\n"
    reading = read(fleet(a=servers.start(answering(text)).url))
    assert "engine.running" not in reading.values
    assert "engine.waiting" not in reading.values


def test_the_doors_series_belong_to_the_engine_that_their_label_names(servers: Servers, read: Reader) -> None:
    door = servers.start(
        answering(
            'door:inflight_requests{model="m",replica="a"} 4\ndoor:inflight_requests{model="n",replica="a"} 1\n'
            'door:inflight_requests{model="m",replica="stranger"} 9\n'
            'door:requests_finished_total{replica="a",result="http_503"} 2\n'
            'door:requests_finished_total{replica="a",result="http_500"} 3\n'
            'door:requests_finished_total{replica="a",result="ok"} 8\n'
        )
    )
    reading = read(fleet(a="http://127.0.0.1:1"), door.url)
    assert reading.values["door.in_flight"][0] == 5, "known even though the engine itself is dead"
    assert reading.values["door.finished.http_5xx"][0] == 5
    assert reading.values["door.finished.ok"][0] == 8
    assert "door.finished.timeout" not in reading.values
    assert np.isfinite(reading.sampled_at_of["door.in_flight"]).all()


def test_a_fresh_door_without_series_is_no_failure(servers: Servers, read: Reader) -> None:
    door = servers.start(answering("# HELP door:inflight_requests about\n# TYPE door:inflight_requests gauge\n"))
    engine = servers.start(answering(LINE))
    assert not read(fleet(a=engine.url), door.url).failures


def test_a_doors_failure_is_told_under_its_own_name(servers: Servers, read: Reader) -> None:
    reading = read(fleet(a=servers.start(answering(LINE)).url), "http://127.0.0.1:1")
    assert {name: each.kind for name, each in reading.failures.items()} == {DOOR: FailureKind.REFUSED}
    assert not any(signal.startswith("door.") for signal in reading.values)


@pytest.mark.parametrize(
    ("answer", "kind", "said"),
    [
        (answering("<html>login</html>", content_type="text/html"), FailureKind.GARBAGE, "is HTML"),
        (answering(""), FailureKind.GARBAGE, "is empty"),
        (answering(b"\x00\x01\x02"), FailureKind.GARBAGE, "is binary"),
        (answering("vllm:iteration_tokens_total_count 7"), FailureKind.GARBAGE, "cut off in its last line"),
        (answering(LINE, content_type="application/openmetrics-text"), FailureKind.GARBAGE, "before its # EOF"),
        (
            answering("# TYPE x gauge\nvllm:iteration_tokens_total_count seven\n"),
            FailureKind.GARBAGE,
            "line 2 of the answer cannot be read",
        ),
        (answering("node_load1 7\n"), FailureKind.GARBAGE, "none that an engine has"),
        (
            answering("", status=302, Location="http://elsewhere/metrics"),
            FailureKind.STATUS,
            "points to http://elsewhere/metrics",
        ),
        (answering("", status=401), FailureKind.STATUS, "answers 401: it wants credentials"),
        (answering("", status=404), FailureKind.STATUS, "knows no /metrics"),
        (answering("", status=503), FailureKind.STATUS, "says it is unavailable"),
        (answering("", status=500), FailureKind.STATUS, "answers 500"),
    ],
)
def test_an_answer_that_is_of_no_use_costs_only_its_target_and_says_why(
    servers: Servers, read: Reader, answer: object, kind: FailureKind, said: str
) -> None:
    bad, good = servers.start(answer), servers.start(answering(LINE))  # type: ignore[arg-type]
    reading = read(fleet(a=bad.url, b=good.url))
    found, detail = failure(reading)
    assert found is kind
    assert said in detail
    assert bad.url in detail
    assert reading.values["engine.steps"][1] == 7
    assert list(reading.failures) == ["a"]
    assert not reading.error


def test_a_redirect_is_not_followed(servers: Servers, read: Reader) -> None:
    there = servers.start(answering(LINE))
    read(fleet(a=servers.start(answering("", status=307, Location=f"{there.url}/metrics")).url))
    assert not there.requests


def test_an_answer_over_the_limit_is_not_read_on(servers: Servers, read: Reader) -> None:
    reading = read(fleet(a=servers.start(answering(LINE * 50_000)).url), largest=1_000_000)
    assert failure(reading)[0] is FailureKind.TOO_LARGE
    assert "more than 1 MB" in failure(reading)[1]


def test_nobody_listening_is_told_apart_from_nobody_answering(servers: Servers, read: Reader) -> None:
    async def silent(_: web.Request) -> web.Response:
        await asyncio.sleep(60)
        return web.Response()

    reading = read(fleet(a="http://127.0.0.1:1", b=servers.start(silent).url), timeout=0.2)
    assert reading.failures["a"].kind is FailureKind.REFUSED
    assert reading.failures["b"].kind is FailureKind.TIMEOUT
    assert "may still live" in reading.failures["b"].detail


def test_an_engine_that_accepts_and_then_says_nothing_is_a_timeout(read: Reader) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:  # as a stopped process does: the kernel accepts for it
        reading = read(fleet(a=f"http://127.0.0.1:{listening.getsockname()[1]}"), timeout=0.2)
    assert failure(reading)[0] is FailureKind.TIMEOUT


def test_a_slow_dribble_is_cut_off_at_the_deadline(servers: Servers, read: Reader) -> None:
    async def dribble(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(600):
            await response.write(LINE.encode())
            await asyncio.sleep(0.05)
        return response

    reading = read(fleet(a=servers.start(dribble).url, b=servers.start(answering(LINE)).url), deadline=0.5)
    assert failure(reading)[0] is FailureKind.TIMEOUT
    assert reading.values["engine.steps"][1] == 7


def test_an_answer_that_breaks_off_is_garbage(read: Reader, servers: Servers) -> None:
    async def broken(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "1000"})
        await response.prepare(request)
        await response.write(LINE.encode())
        assert request.transport is not None
        request.transport.close()
        return response

    reading = read(fleet(a=servers.start(broken).url))
    assert failure(reading) == (FailureKind.GARBAGE, reading.failures["a"].detail)
    assert "broke off" in reading.failures["a"].detail


@pytest.mark.parametrize("url", ["http://", "ftp://x", "not a url", "http://127.0.0.1:99999"])
def test_a_url_that_cannot_be_asked_is_that_targets_failure(servers: Servers, read: Reader, url: str) -> None:
    reading = read(fleet(a=url, b=servers.start(answering(LINE)).url))
    assert failure(reading)[0] in (FailureKind.OTHER, FailureKind.REFUSED)
    assert reading.values["engine.steps"][1] == 7


def test_more_targets_than_places_are_all_read_in_turn(servers: Servers, read: Reader) -> None:
    server = servers.start(answering(LINE))
    reading = read(fleet(**{f"e{number}": server.url for number in range(30)}), concurrency=3)
    assert (reading.values["engine.steps"] == 7).all()


def test_connections_are_kept_from_reading_to_reading(servers: Servers, registry: Registry) -> None:
    server = servers.start(answering(LINE))
    source = ScrapeSource(SystemClock(), registry)
    for _ in range(3):
        source.read(fleet(a=server.url), 0.0, 5.0)
    source.close()
    assert len(server.peers) == 3
    assert len(set(server.peers)) == 1
