"""Engines and stranger servers on real ports, built from the exposition that a real vLLM gave."""

import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

from serving.telemetry.registry import Registry, load_registry

EXPOSITION = Path(__file__).parents[1] / "recordings" / "vllm-0.32-a" / "exposition-0.32.0.txt"
# What vLLM 0.9 called these, by the table of renames in the project's own signals.yaml.
OLDER = {
    "vllm:kv_cache_usage_perc": "vllm:gpu_cache_usage_perc",
    "vllm:prefix_cache_queries": "vllm:gpu_prefix_cache_queries",
    "vllm:prefix_cache_hits": "vllm:gpu_prefix_cache_hits",
    "vllm:inter_token_latency_seconds": "vllm:time_per_output_token_seconds",
}
_WORK = ("vllm:iteration_tokens_total_count", "vllm:iteration_tokens_total_sum", "vllm:generation_tokens_total")


class HandMadeEngine:
    """A server whose /metrics is the recorded exposition, `pace` steps on at each scrape, with `running` requests."""

    def __init__(self, text: str, server: HTTPServer) -> None:
        self.text = text
        self.pace = 100
        self.running = 2
        self.scrapes = 0
        self.server = server
        self.server.expect_request("/metrics").respond_with_handler(self._metrics)

    @property
    def url(self) -> str:
        return self.server.url_for("/metrics")

    @property
    def base(self) -> str:
        return self.server.url_for("").rstrip("/")

    @property
    def name(self) -> str:
        return f"{self.server.host}:{self.server.port}"

    def _metrics(self, _: Request) -> Response:
        self.scrapes += 1
        text = self.text
        for name in _WORK:
            text = _changed(text, name, lambda value: value + self.scrapes * self.pace)
        return Response(_changed(text, "vllm:num_requests_running", lambda _: self.running), content_type="text/plain")


def _changed(text: str, name: str, change: Callable[[float], float]) -> str:
    pattern = re.compile(rf"^({re.escape(name)}(?:\{{[^}}]*\}})?) (\S+)$", re.MULTILINE)
    return pattern.sub(lambda found: f"{found[1]} {change(float(found[2]))}", text)


@pytest.fixture(scope="session")
def registry() -> Registry:
    return load_registry()


@pytest.fixture(scope="session")
def exposition() -> str:
    return EXPOSITION.read_text()


@pytest.fixture(scope="session")
def older_exposition(exposition: str) -> str:
    """The same engine as vLLM 0.9 would have named its metrics."""
    for new, old in OLDER.items():
        exposition = exposition.replace(new, old)
    return exposition


@pytest.fixture(scope="session")
def pool() -> Iterator[list[HTTPServer]]:
    """Servers for the whole session: to stop one takes half a second."""
    servers = [HTTPServer() for _ in range(3)]
    yield servers
    for server in servers:
        if server.is_running():
            server.stop()


@pytest.fixture
def free_servers(pool: list[HTTPServer]) -> Iterator[HTTPServer]:
    """Running servers that know nothing yet."""
    for server in pool:
        server.clear()
        if not server.is_running():
            server.start()
    return iter(pool)


@pytest.fixture
def engine_of(free_servers: Iterator[HTTPServer]) -> Callable[[str], HandMadeEngine]:
    return lambda text: HandMadeEngine(text, next(free_servers))


@pytest.fixture
def engine(engine_of: Callable[[str], HandMadeEngine], exposition: str) -> HandMadeEngine:
    return engine_of(exposition)


@pytest.fixture
def stranger(free_servers: Iterator[HTTPServer]) -> HTTPServer:
    """A server that a test makes into anything."""
    return next(free_servers)


@pytest.fixture
def silent() -> Iterator[str]:
    """A URL whose port takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/metrics"


@pytest.fixture
def refused() -> str:
    """A URL at which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    return f"http://127.0.0.1:{port}/metrics"
