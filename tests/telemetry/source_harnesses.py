"""One harness for each source under the contract: the source, its outside world, and ways to disturb that world."""

import asyncio
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import orjson
import requests
from aiohttp import web
from stand_ins import Handler, Servers, answering

from serving.clock import SystemClock
from serving.fleet.topology import EngineFacts, Topology
from serving.telemetry.otlp import OtlpSource
from serving.telemetry.prometheus import PrometheusSource
from serving.telemetry.reading import Reading, Source
from serving.telemetry.registry import Registry
from serving.telemetry.scrape import ScrapeSource
from serving.telemetry.scripted import ScriptedSource, reading_of

PROMETHEUS = shutil.which("prometheus")
ABSENT = "http://127.0.0.1:1"


def nothing() -> None:
    """For an outside that cannot be disturbed in that way."""


def until(condition: Callable[[], bool], seconds: float) -> None:
    """Wait for a real process: poll `condition`, and fail after `seconds`."""
    clock = SystemClock()
    ends = clock.monotonic() + seconds
    while not condition():
        assert clock.monotonic() < ends, f"{condition.__qualname__} did not come true in {seconds} s"
        clock.sleep(0.05)


@dataclass
class Harness:
    """A source that knows of the engine `alive` and cannot know anything of `absent`, which is on the map too.

    `hang`: the outside takes the question and stays silent; `fail`: it is gone; `recover` undoes both. `names_failures`:
    the source has targets, so it must say what is wrong with `absent`. `can_hang`: the source waits for an outside at all.
    """

    source: Source
    topology: Topology
    hang: Callable[[], None] = nothing
    fail: Callable[[], None] = nothing
    recover: Callable[[], None] = nothing
    names_failures: bool = True
    carries_series: bool = True
    can_hang: bool = True
    cleanup: list[Callable[[], None]] = field(default_factory=list)

    def read(self, deadline: float = 5.0) -> Reading:
        return self.source.read(self.topology, SystemClock().now(), deadline)

    def read_until(self, condition: Callable[[Reading], bool], seconds: float = 60.0) -> Reading:
        """Read again and again until a reading fulfils `condition`."""
        readings: list[Reading] = []

        def fulfilled() -> bool:
            readings.append(self.read())
            return condition(readings[-1])

        until(fulfilled, seconds)
        return readings[-1]

    def knows_alive(self, reading: Reading) -> bool:
        """Whether the reading carries what is to be known of `alive`."""
        row = self.topology.row_of["alive"]
        if not self.carries_series:
            return not reading.error
        return "engine.steps" in reading.values and bool(np.isfinite(reading.values["engine.steps"][row]))


def _map(alive: str) -> Topology:
    return Topology([EngineFacts("absent", ABSENT, "tiny"), EngineFacts("alive", alive, "tiny")])


async def _silent(_: web.Request) -> web.Response:
    await asyncio.sleep(600)
    return web.Response()


def scrape(servers: Servers, registry: Registry, exposition: str) -> Harness:
    server = servers.start(answering(exposition))

    def recover() -> None:
        server.handler = answering(exposition)
        servers.restart(server)

    return Harness(
        ScrapeSource(SystemClock(), registry),
        _map(server.url),
        hang=lambda: setattr(server, "handler", _silent),
        fail=lambda: servers.stop(server),
        recover=recover,
    )


def _captured_answers() -> Handler:
    captured = orjson.loads((Path(__file__).parent / "captured" / "prometheus-2.42.json").read_bytes())

    async def handler(request: web.Request) -> web.Response:
        query = request.query["query"]
        part = "stamps" if "timestamp(" in query else "histograms" if "_bucket" in query else "scalars"
        return web.Response(body=orjson.dumps(captured[part]), content_type="application/json")

    return handler


def captured_prometheus(servers: Servers, registry: Registry, _: str) -> Harness:
    handler = _captured_answers()
    server = servers.start(handler)

    def recover() -> None:
        server.handler = handler
        servers.restart(server)

    return Harness(
        PrometheusSource(SystemClock(), registry, server.url),
        _map("http://127.0.0.1:8201"),
        hang=lambda: setattr(server, "handler", _silent),
        fail=lambda: servers.stop(server),
        recover=recover,
    )


class RealPrometheus:
    """The prometheus binary, scraping the given targets each second."""

    def __init__(self, folder: Path, targets: list[str]) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]
        self._folder = folder
        self.url = f"http://127.0.0.1:{self._port}"
        config = {
            "global": {"scrape_interval": "1s"},
            "scrape_configs": [{"job_name": "vllm", "static_configs": [{"targets": targets}]}],
        }
        (folder / "prometheus.yml").write_bytes(orjson.dumps(config))  # JSON is YAML
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        if self._process is not None and self._process.poll() is None:
            os.kill(self._process.pid, signal.SIGCONT)
            return
        assert PROMETHEUS is not None
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    PROMETHEUS,
                    f"--config.file={self._folder / 'prometheus.yml'}",
                    f"--storage.tsdb.path={self._folder / 'data'}",
                    f"--web.listen-address=127.0.0.1:{self._port}",
                ],
                stdout=log,
                stderr=log,
            )

    def pause(self) -> None:
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGSTOP)
        until(self._all_threads_stopped, 10.0)  # the signal reaches the threads one by one

    def _all_threads_stopped(self) -> bool:
        assert self._process is not None
        stats = [stat.read_text() for stat in Path(f"/proc/{self._process.pid}/task").glob("*/stat")]
        return all(stat.rpartition(")")[2].split()[0] == "T" for stat in stats)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def real_prometheus(running: RealPrometheus, registry: Registry, alive: str) -> Harness:
    return Harness(
        PrometheusSource(SystemClock(), registry, running.url),
        _map(alive),
        hang=running.pause,
        fail=running.kill,
        recover=running.start,
    )


def otlp(_: Servers, __: Registry, ___: str) -> Harness:
    source = OtlpSource("127.0.0.1", 0)
    span = {
        "traceId": "0" * 31 + "1",
        "spanId": "0" * 15 + "1",
        "name": "llm_request",
        "startTimeUnixNano": "1",
        "endTimeUnixNano": "2",
    }
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "alive"}}]}
    export = {"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": [span]}]}]}
    requests.post(source.endpoint, data=orjson.dumps(export), headers={"Content-Type": "application/json"}, timeout=5)
    port = int(source.endpoint.rsplit(":", 1)[1].split("/")[0])
    harness = Harness(source, _map("http://h"), names_failures=False, carries_series=False, can_hang=False)

    def half_a_request() -> None:
        client = socket.create_connection(("127.0.0.1", port))
        client.sendall(b"POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        harness.cleanup.append(client.close)

    harness.hang = half_a_request
    return harness


def scripted(_: Servers, __: Registry, ___: str) -> Harness:
    def script(topology: Topology, now: float) -> Reading:
        return reading_of(
            source.entity, topology, now, {name: {"engine.steps": 1.0} for name in topology.row_of if name == "alive"}
        )

    def broken(_topology: Topology, _now: float) -> Reading:
        raise RuntimeError("out of order")

    source = ScriptedSource(script)
    return Harness(
        source,
        _map("http://h"),
        fail=lambda: setattr(source, "script", broken),
        recover=lambda: setattr(source, "script", script),
        names_failures=False,
        can_hang=False,
    )
