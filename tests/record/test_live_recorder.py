"""Scraping a fleet into a recording: what targets answer, how they fail, and when it ends."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from serving.clock import SystemClock
from serving.fleet.entity import Entity, EntityKind
from serving.fleet.topology import EngineFacts, Relation, Topology
from serving.telemetry.anonymity import PlainNames
from serving.telemetry.live_recorder import LiveRecorder, Recorded
from serving.telemetry.otlp import OtlpSource
from serving.telemetry.reading import FailureKind
from serving.telemetry.recorder import Manifest, write_recording
from serving.telemetry.recording import Recording
from serving.telemetry.registry import load_registry

ENGINE = """\
process_start_time_seconds 1.8e9
vllm:num_requests_running{engine="0",model_name="big"} 3
vllm:num_requests_running{engine="1",model_name="big"} 4
vllm:iteration_tokens_total_count{engine="0",model_name="big"} 70
nobody:asked_for_this 1
"""
DOOR = """\
door:inflight_requests{replica="good",model="big"} 7
door:requests_finished_total{replica="good",model="big",result="http_503"} 2
door:inflight_requests{replica="stranger",model="big"} 1
"""


@pytest.fixture
async def urls() -> AsyncIterator[dict[str, str]]:
    """An engine that answers, one that answers 500, one that never answers, a door, and nothing."""

    async def answer(request: web.Request) -> web.Response:
        if request.path.startswith("/silent"):
            await asyncio.sleep(30.0)
        if request.path.startswith("/ill"):
            return web.Response(status=500)
        if request.path == "/good/version":
            return web.json_response({"version": "0.32.0"})
        text = {"/good/metrics": ENGINE, "/door/metrics": DOOR}.get(request.path)
        return web.Response(text=text) if text else web.Response(status=404)

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", answer)
    server = TestServer(application, host="127.0.0.1")
    await server.start_server(shutdown_timeout=0.1)
    base = f"http://127.0.0.1:{server.port}"
    yield {
        "good": f"{base}/good",
        "ill": f"{base}/ill",
        "silent": f"{base}/silent",
        "gone": "http://127.0.0.1:9",
        "door": f"{base}/door",
    }
    await server.close()


def recorder(urls: dict[str, str], spans: OtlpSource | None = None) -> LiveRecorder:
    names = [name for name in urls if name != "door"]
    node = [(Entity.engine("good"), Relation.RUNS_ON, Entity(EntityKind.NODE, "node-1"))]
    topology = Topology([EngineFacts(name, urls[name], "big") for name in names], node)
    return LiveRecorder(
        topology, load_registry(), SystemClock(), door_url=urls["door"], spans=spans, interval=0.2, timeout=0.15
    )


def written(recorded: Recorded, folder: Path) -> Recording:
    begin, end = recorded.log.span
    manifest = Manifest(
        fleetwarden="0.1.0", python="3.11", source="scrape", begin=begin, end=end, interval=0.2, anonymised=False,
        engines=4, series=recorded.log.series, samples=recorded.log.samples, spans=len(recorded.spans),
    )  # fmt: skip
    write_recording(folder, recorded.log, manifest, PlainNames(), spans=recorded.spans)
    return Recording(folder, interval=0.2)


async def test_what_targets_answer_and_how_they_fail_reads_back(urls: dict[str, str], tmp_path: Path) -> None:
    passed: list[float] = []
    recorded = await recorder(urls).run(1.0, asyncio.Event(), passed.append)
    assert passed[-1] <= 1.0
    assert recorded.vllm == {"0.32.0"}
    assert set(recorded.troubles) == {"ill", "silent", "gone"}
    recording = written(recorded, tmp_path / "case")
    assert set(recording.topology.row_of) == {"good", "ill", "silent", "gone"}
    assert recording.topology.related(Entity.engine("good"), Relation.RUNS_ON)[0].name == "node-1"
    readings = list(recording.readings())
    good = recording.topology.row_of["good"]
    running = [reading.values["engine.running"][good] for reading in readings]
    assert np.nanmax(running) == np.nanmin(running) == 7.0  # the sum over both ranks
    assert np.nanmax([reading.values["door.in_flight"][good] for reading in readings]) == 7.0
    kinds: dict[str, set[FailureKind]] = {}
    for reading in readings:
        for target, failure in reading.failures.items():
            kinds.setdefault(target, set()).add(failure.kind)
    assert kinds == {"ill": {FailureKind.STATUS}, "silent": {FailureKind.TIMEOUT}, "gone": {FailureKind.REFUSED}}


async def test_only_series_that_are_wanted_are_kept(urls: dict[str, str]) -> None:
    recorded = await recorder(urls).run(0.3, asyncio.Event())
    names = {json.loads(line)["metric"]["__name__"] for line in recorded.log.lines(0.0, PlainNames())}
    assert "vllm:num_requests_running" in names
    assert "nobody:asked_for_this" not in names
    doors: list[dict[str, Any]] = [
        json.loads(line)["metric"] for line in recorded.log.lines(0.0, PlainNames()) if b"door:" in line
    ]
    assert {labels["replica"] for labels in doors} == {"good"}


async def test_it_ends_when_it_is_told_to(urls: dict[str, str]) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().call_later(0.5, stop.set)
    async with asyncio.timeout(20.0):
        recorded = await recorder(urls).run(3_600.0, stop)
    assert recorded.log.samples > 0


async def test_spans_that_engines_send_meanwhile_are_kept(urls: dict[str, str], tmp_path: Path) -> None:
    receiver = OtlpSource("127.0.0.1", 0)
    try:
        span = {
            "traceId": "0" * 31 + "1",
            "spanId": "0" * 15 + "1",
            "name": "llm_request",
            "startTimeUnixNano": "1800000000000000000",
            "endTimeUnixNano": "1800000002000000000",
            "attributes": [{"key": "gen_ai.latency.time_in_queue", "value": {"doubleValue": 0.25}}],
        }
        resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "good"}}]}
        export = {"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": [span]}]}]}
        async with aiohttp.ClientSession() as session, session.post(receiver.endpoint, json=export) as response:
            assert response.ok
        recorded = await recorder(urls, receiver).run(0.5, asyncio.Event())
    finally:
        await asyncio.to_thread(receiver.close)
    (kept,) = written(recorded, tmp_path / "case").spans
    assert (kept.engine, kept.queue, kept.end - kept.start) == ("good", 0.25, 2.0)
