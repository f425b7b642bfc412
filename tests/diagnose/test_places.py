"""What stands at a URL: told apart by asking, and every wrong answer is a sentence with what to do."""

from collections.abc import Callable, Iterator

import orjson
import pytest
from pydantic import SecretStr
from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

from agent.checkup.places import MetricsPlace, NoPlace, Place, StorePlace, find_all
from serving.clock import SystemClock
from serving.telemetry.reading import FailureKind
from serving.telemetry.registry import Registry

DOOR = 'door:inflight_requests{replica="sim-0",model="sim"} 1.0\n'
SUCCESS = orjson.dumps({"status": "success", "data": {"resultType": "vector", "result": []}})


@pytest.fixture
def at(registry: Registry) -> Callable[..., Place]:
    def find(url: str, **given: object) -> Place:
        return find_all([url], registry, SystemClock(), **{"seconds": 5.0, **given})[0]  # type: ignore[arg-type]

    return find


def _always(server: HTTPServer, response: Response | Callable[[Request], Response]) -> str:
    handler = response if callable(response) and not isinstance(response, Response) else lambda _: response
    server.expect_request("/metrics").respond_with_handler(handler)
    return server.url_for("/metrics")


def _fifty_megabytes(_: Request) -> Response:
    def body() -> Iterator[bytes]:
        for _ in range(50):
            yield b"# nothing to see here\n" * 47_663

    return Response(body(), content_type="text/plain")


WRONG = {
    "html": (
        Response("<!doctype html><html></html>", content_type="text/html"),
        FailureKind.GARBAGE,
        "HTML",
        "engine's own",
    ),
    "nothing": (Response(""), FailureKind.GARBAGE, "answers nothing", "engine's own address"),
    "binary": (Response(b"\x00\x01\x02" * 9), FailureKind.GARBAGE, "binary", "engine's own address"),
    "cut off": (Response("vllm:num_requests_running 1"), FailureKind.GARBAGE, "cut off", "engine's own address"),
    "unauthorized": (Response("no", 401), FailureKind.STATUS, "401: it wants credentials", "needs none"),
    "forbidden": (Response("no", 403), FailureKind.STATUS, "403", "needs none"),
    "unavailable": (Response("no", 503), FailureKind.STATUS, "503", "try again"),
    "broken": (Response("no", 500), FailureKind.STATUS, "500", "log"),
    "not found": (Response("no", 404), FailureKind.STATUS, "404", "base URL"),
    "a login": (
        Response("", 302, {"Location": "https://sso.example.com/login?token=abc"}),
        FailureKind.STATUS,
        "points to https://sso.example.com/login (a login page?)",
        "name the URL it points to",
    ),
    "other metrics": (Response("node_load1 0.5\n"), FailureKind.GARBAGE, "none of vLLM's", "--disable-log-stats"),
    "a python process": (Response("process_open_fds 5\n"), FailureKind.GARBAGE, "none of vLLM's", "check the port"),
    "ray's names": (Response('vllm_num_requests_running{ReplicaId="a"} 1\n'), FailureKind.GARBAGE, "Ray Serve", "relabels"),
}


@pytest.mark.parametrize("what", sorted(WRONG))
def test_an_answer_that_is_no_engines_is_said_with_what_to_do(
    what: str, stranger: HTTPServer, at: Callable[..., Place]
) -> None:
    response, kind, says, todo = WRONG[what]
    found = at(_always(stranger, response))
    assert isinstance(found, NoPlace)
    assert (found.kind, found.may_be_an_engine) == (kind, False)
    assert says in found.says
    assert todo in found.todo


def test_credentials_of_a_redirect_are_not_repeated(stranger: HTTPServer, at: Callable[..., Place]) -> None:
    found = at(_always(stranger, Response("", 302, {"Location": "https://u:p@sso.example.com/x?token=abc"})))
    assert isinstance(found, NoPlace)
    assert not any(secret in found.says + found.todo for secret in ("abc", "u:p"))


def test_fifty_megabytes_are_not_read_to_their_end(stranger: HTTPServer, at: Callable[..., Place]) -> None:
    found = at(_always(stranger, _fifty_megabytes))
    assert isinstance(found, NoPlace)
    assert found.kind is FailureKind.TOO_LARGE
    assert "more than 20 MB" in found.says


def test_a_port_without_a_listener_may_be_an_engine_that_is_down(refused: str, at: Callable[..., Place]) -> None:
    found = at(refused)
    assert isinstance(found, NoPlace)
    assert found.may_be_an_engine
    assert "refuses connections" in found.says


def test_a_port_that_takes_connections_and_says_nothing_may_be_an_engine_that_hangs(
    silent: str, at: Callable[..., Place]
) -> None:
    found = at(silent, seconds=0.3)
    assert isinstance(found, NoPlace)
    assert found.kind is FailureKind.TIMEOUT
    assert found.may_be_an_engine
    assert "API process hangs" in found.todo


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("ftp://h/metrics", "not an http"),
        ("http://", "not an http"),
        ("http://[::1", "not a URL"),
        ("http://h:0/metrics", "not an http"),
        ("http://h:99999/metrics", "not a URL"),
        ("http://h h/metrics", "not an http"),
        ("http://user:pass@h/metrics", "user name or password"),
        ("http://no.such.host.invalid/metrics", "host name that is not known"),
    ],
)
def test_what_cannot_be_asked_is_refused_without_a_question(url: str, says: str, at: Callable[..., Place]) -> None:
    found = at(url)
    assert isinstance(found, NoPlace)
    assert says in found.says
    assert found.todo
    assert "pass" not in found.url + found.says.replace("password", "")


def test_plain_http_asked_for_tls_is_said_so(stranger: HTTPServer, at: Callable[..., Place]) -> None:
    found = at(stranger.url_for("/metrics").replace("http://", "https://"))
    assert isinstance(found, NoPlace)
    assert "TLS" in found.says or "connection" in found.says


@pytest.mark.parametrize("path", ["", "/", "/v1", "/v1/models", "/health", "/docs", "/metrics", "/metrics/"])
def test_an_engine_is_found_by_any_of_the_urls_people_have_of_it(
    path: str, engine: object, at: Callable[..., Place]
) -> None:
    url = engine.base + path  # type: ignore[attr-defined]
    found = at(url)
    assert isinstance(found, MetricsPlace)
    assert found.url.rstrip("/") == engine.url  # type: ignore[attr-defined]
    assert not found.is_door
    assert (found.notes == ()) == (path in {"/metrics", "/metrics/"})


def test_a_url_without_a_scheme_and_one_with_a_name_are_understood(engine: object, at: Callable[..., Place]) -> None:
    found = at(f"vllm-0={engine.name}")  # type: ignore[attr-defined]
    assert isinstance(found, MetricsPlace)
    assert found.name == "vllm-0"
    assert found.url == engine.url  # type: ignore[attr-defined]


def test_metrics_at_a_path_of_their_own_are_read_there(stranger: HTTPServer, at: Callable[..., Place]) -> None:
    stranger.expect_request("/engines/7/exposition").respond_with_data("vllm:num_requests_running 1\n")
    found = at(stranger.url_for("/engines/7/exposition"))
    assert isinstance(found, MetricsPlace)
    assert found.url.endswith("/engines/7/exposition")


def test_a_front_door_is_told_from_an_engine(stranger: HTTPServer, at: Callable[..., Place]) -> None:
    found = at(_always(stranger, Response(DOOR)))
    assert isinstance(found, MetricsPlace)
    assert found.is_door


@pytest.mark.parametrize("path", ["", "/", "/graph", "/targets", "/api/v1", "/api/v1/query"])
def test_a_prometheus_is_found_by_any_of_the_urls_people_have_of_it(
    path: str, stranger: HTTPServer, at: Callable[..., Place]
) -> None:
    stranger.expect_request("/prom/api/v1/query").respond_with_data(SUCCESS, content_type="application/json")
    found = at(stranger.url_for("/prom") + path)
    assert isinstance(found, StorePlace)
    assert found.url == stranger.url_for("/prom")


def test_the_metrics_of_a_prometheus_itself_lead_to_its_api(stranger: HTTPServer, at: Callable[..., Place]) -> None:
    stranger.expect_request("/metrics").respond_with_data("# x\nprometheus_build_info 1\n")
    stranger.expect_request("/api/v1/query").respond_with_data(SUCCESS, content_type="application/json")
    found = at(stranger.url_for("/metrics"))
    assert isinstance(found, StorePlace)
    assert found.notes


def test_a_prometheus_behind_a_token_wants_it_and_takes_it(stranger: HTTPServer, at: Callable[..., Place]) -> None:
    def guarded(request: Request) -> Response:
        allowed = request.headers.get("Authorization") == "Bearer right"
        return Response(SUCCESS) if allowed and request.path == "/api/v1/query" else Response("no", 401)

    stranger.expect_request("/api/v1/query").respond_with_handler(guarded)
    stranger.expect_request("/metrics").respond_with_handler(guarded)
    without = at(stranger.url_for(""))
    assert isinstance(without, NoPlace)
    assert "--token-file" in without.todo
    assert isinstance(at(stranger.url_for(""), token=SecretStr("right")), StorePlace)


def test_one_dead_place_costs_the_others_nothing(engine: object, refused: str, registry: Registry) -> None:
    found = find_all([refused, engine.url, refused + "?"], registry, SystemClock())  # type: ignore[attr-defined]
    assert [type(place) for place in found] == [NoPlace, MetricsPlace, NoPlace]
