"""The warden's own listener: healthy while steps come to their end, ready once one did."""

import socket
from collections.abc import Iterator
from dataclasses import dataclass

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from agent.election.mandate import Standing
from agent.own_http import MARGIN, Health, OwnHttp, OwnHttpError
from agent.own_metrics import OwnMetrics
from serving.clock import FakeClock

INTERVAL = 2.0
LIMIT = 3 * INTERVAL + MARGIN


@dataclass
class Listener:
    clock: FakeClock
    health: Health
    metrics: OwnMetrics
    url: str

    def get(self, path: str) -> httpx.Response:
        return httpx.get(self.url + path, trust_env=False)


@pytest.fixture
def listener() -> Iterator[Listener]:
    clock = FakeClock()
    health, metrics = Health(INTERVAL, clock), OwnMetrics("0.1.0")
    http = OwnHttp(metrics, health, "127.0.0.1", 0)
    port = http.start()
    yield Listener(clock, health, metrics, f"http://127.0.0.1:{port}")
    http.stop()


def test_before_the_first_step_it_is_healthy_for_a_while_and_not_ready(listener: Listener) -> None:
    assert listener.get("/healthz").status_code == 200
    answer = listener.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["reason"] == "no step has ended yet"
    listener.clock.advance(LIMIT + 1)
    assert listener.get("/healthz").status_code == 503


def test_a_fresh_step_makes_it_healthy_and_ready(listener: Listener) -> None:
    listener.clock.advance(LIMIT * 2)
    listener.health.stepped()
    assert listener.get("/healthz").json() == {
        "healthy": True,
        "ready": True,
        "age_seconds": 0.0,
        "limit_seconds": LIMIT,
        "reason": "",
    }
    assert listener.get("/readyz").status_code == 200


def test_the_limit_is_three_intervals_and_a_margin(listener: Listener) -> None:
    listener.health.stepped()
    listener.clock.advance(LIMIT)
    assert listener.get("/healthz").status_code == 200
    listener.clock.advance(0.5)
    assert listener.get("/healthz").status_code == 503
    assert listener.get("/readyz").status_code == 503


def test_the_reason_names_age_limit_and_the_last_error(listener: Listener) -> None:
    listener.health.stepped()
    listener.clock.advance(20)
    listener.health.failed("the journal cannot be written: disk full")
    reason = listener.get("/healthz").json()["reason"]
    assert "20.0 s ago" in reason
    assert "limit is 11 s" in reason
    assert "disk full" in reason


def test_a_wall_clock_that_jumps_changes_nothing(listener: Listener) -> None:
    listener.health.stepped()
    listener.clock.jump(86_400)
    assert listener.get("/healthz").status_code == 200


def test_metrics_are_served_in_the_text_format(listener: Listener) -> None:
    listener.metrics.late(3)
    answer = listener.get("/metrics")
    assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    families = {family.name: family for family in text_string_to_metric_families(answer.text)}
    assert families["fleetwarden_late_ticks"].samples[0].value == 3


def test_nothing_else_is_served_and_nothing_is_taken(listener: Listener) -> None:
    assert listener.get("/").status_code == 404
    assert httpx.post(f"{listener.url}/healthz", trust_env=False).status_code == 405


def test_a_taken_port_is_a_clear_error() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(OwnHttpError, match=f"cannot listen on 127.0.0.1:{port}.*choose another http.port"):
            OwnHttp(OwnMetrics("0"), Health(INTERVAL, FakeClock()), "127.0.0.1", port).start()


def test_a_stopped_listener_lets_its_port_go() -> None:
    first = OwnHttp(OwnMetrics("0"), Health(INTERVAL, FakeClock()), "127.0.0.1", 0)
    port = first.start()
    first.stop()
    second = OwnHttp(OwnMetrics("0"), Health(INTERVAL, FakeClock()), "127.0.0.1", port)
    assert second.start() == port
    second.stop()


def test_a_follower_is_ready_and_says_whom_it_follows() -> None:
    health = Health(INTERVAL, FakeClock())
    health.stepped()
    standing = Standing(leading=False, leader="warden-b", term=7, trouble="the lease does not answer")
    http = OwnHttp(OwnMetrics("0"), health, "127.0.0.1", 0, lambda: standing)
    port = http.start()
    try:
        answer = httpx.get(f"http://127.0.0.1:{port}/readyz", trust_env=False)
    finally:
        http.stop()
    assert answer.status_code == 200
    told = {key: answer.json()[key] for key in ("role", "leader", "term", "trouble")}
    assert told == {"role": "follower", "leader": "warden-b", "term": 7, "trouble": "the lease does not answer"}


def test_the_metrics_tell_who_acts_and_in_which_term() -> None:
    metrics = OwnMetrics("0")
    metrics.leads(7, leading=False)
    metrics.leads(8, leading=True)
    text = metrics.exposition().decode()
    assert "fleetwarden_leader 1.0" in text
    assert "fleetwarden_term 8.0" in text
