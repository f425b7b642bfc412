"""Generic webhooks over real HTTP: CloudEvents, signatures, retries, and secrets that show nowhere."""

import json
import logging
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr
from pytest_httpserver import HTTPServer
from told_lives import NIGHT, approval_request, escalated_hang, recommendation, repaired_hang
from werkzeug import Request, Response

from agent.journal.port import Entry, Note
from agent.report import notices
from agent.report.notice import DeliveryStatus, Notice, NoticeKind
from agent.report.webhook import SIGNATURE, TOLERANCE, WebhookSink, cloud_event, plain_data, signature, verify
from serving.clock import SystemClock

PATH = "/hooks/S3cr3tPath"
SECRET = SecretStr("S3cr3tKey")


def all_notices() -> list[Notice]:
    found = []
    for life in (repaired_hang(), escalated_hang(), approval_request(), recommendation()):
        entries = [Entry(seq, event) for seq, event in enumerate(life.events, 1)]
        found += [notices.transition(entry, entries[: index + 1], lambda _: "") for index, entry in enumerate(entries)]
    return [*found, notices.transition(Entry(99, Note(NIGHT, "loop.started", "the loop started")), (), lambda _: "")]


def sink(server: HTTPServer, timeout: float = 10.0, secret: SecretStr | None = SECRET) -> WebhookSink:
    url = SecretStr(server.url_for(PATH) + "?key=S3cr3tQuery")
    return WebhookSink("desk", url, "west/1", SystemClock(), secret=secret, timeout=timeout)


@pytest.fixture
def _everything_logged(caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]) -> Iterator[None]:
    """Nothing that is logged at any level, or printed, shows a secret. The test's own server (werkzeug) knows its paths."""
    caplog.set_level(logging.DEBUG)
    yield
    ours = [record for record in caplog.get_records("call") if record.name != "werkzeug"]
    assert "S3cr3t" not in "".join(map(logging.Formatter("%(message)s").format, ours))
    assert "S3cr3t" not in "".join(capsys.readouterr())


pytestmark = pytest.mark.usefixtures("_everything_logged")


@pytest.mark.parametrize("notice", all_notices(), ids=lambda notice: f"{notice.kind}-{notice.id}")
def test_every_transition_is_a_valid_cloud_event(notice: Notice) -> None:
    event = json.loads(json.dumps(cloud_event(notice, "west/1"), allow_nan=False))
    assert event["specversion"] == "1.0"
    assert event["id"]
    assert event["source"] == "/fleetwarden/west%2F1"
    assert event["type"] == f"io.fleetwarden.{'incident' if notice.incident else 'warden'}.{notice.kind}"
    assert datetime.fromisoformat(event["time"]).timestamp() == pytest.approx(notice.at)
    assert event["data"]["headline"] == notice.headline
    assert set(event) <= {"specversion", "id", "source", "type", "time", "subject", "datacontenttype", "data"}


def test_all_notices_of_an_incident_have_ids_of_their_own() -> None:
    ids = [notice.id for notice in all_notices()]
    assert len(set(ids)) == len(ids)


def test_an_event_carries_the_incident_and_its_story_in_plain_words() -> None:
    data = cloud_event(all_notices()[0], "local")["data"]
    assert data["incident"]["entity"] == "engine/sim-2"
    assert data["incident"]["state"] == "open"
    assert data["story"]["why"][0] == "no engine step for 12 s with 4 requests in flight"
    assert data["event"]["diagnosis"]["entity"] == "engine/sim-2"


def test_numbers_that_are_none_become_null() -> None:
    assert plain_data({"a": float("nan"), "b": (float("inf"), 1.5)}) == {"a": None, "b": [None, 1.5]}


def test_a_delivered_event_is_signed_so_that_the_receiver_can_check_it(httpserver: HTTPServer) -> None:
    httpserver.expect_oneshot_request(PATH, method="POST").respond_with_data("", status=202)
    assert sink(httpserver).deliver(all_notices()[0]).status is DeliveryStatus.DELIVERED
    request, _ = httpserver.log[0]
    assert request.headers["Content-Type"].startswith("application/cloudevents+json")
    now = SystemClock().now()
    header, body = request.headers[SIGNATURE], request.get_data()
    assert verify(SECRET, header, body, now)
    assert not verify(SecretStr("other"), header, body, now)
    assert not verify(SECRET, header, body + b" ", now)
    assert not verify(SECRET, header, body, now + 2 * TOLERANCE)


@given(st.binary(max_size=200), st.text(min_size=1, max_size=20), st.integers(0, 2**33), st.binary(min_size=1, max_size=5))
def test_a_signature_holds_for_its_body_and_moment_only(body: bytes, secret: str, now: int, extra: bytes) -> None:
    header = signature(SecretStr(secret), body, now)
    assert verify(SecretStr(secret), header, body, now)
    assert not verify(SecretStr(secret), header, body + extra, now)
    assert not verify(SecretStr(secret), header.replace(f"t={now}", f"t={now + 1}"), body, now)


@given(st.text(max_size=80))
def test_a_garbled_signature_is_refused_and_never_raises(header: str) -> None:
    assert not verify(SECRET, header, b"body", NIGHT)


def test_without_a_secret_nothing_is_signed(httpserver: HTTPServer) -> None:
    httpserver.expect_oneshot_request(PATH).respond_with_data("")
    sink(httpserver, secret=None).deliver(all_notices()[0])
    assert SIGNATURE not in httpserver.log[0][0].headers


def test_a_server_error_is_tried_again_with_the_same_id(httpserver: HTTPServer) -> None:
    httpserver.expect_ordered_request(PATH).respond_with_data("", status=500)
    httpserver.expect_ordered_request(PATH).respond_with_data("")
    assert sink(httpserver).deliver(all_notices()[0]).status is DeliveryStatus.DELIVERED
    first, second = (request.get_json()["id"] for request, _ in httpserver.log)
    assert first == second


@pytest.mark.parametrize("status", [400, 401, 404, 410])
def test_a_refusal_is_for_good(status: int, httpserver: HTTPServer) -> None:
    httpserver.expect_request(PATH).respond_with_data("", status=status)
    assert sink(httpserver).deliver(all_notices()[0]).status is DeliveryStatus.FAILED
    assert len(httpserver.log) == 1


def test_a_redirect_is_not_followed(httpserver: HTTPServer) -> None:
    httpserver.expect_request(PATH).respond_with_data("", status=307, headers={"Location": httpserver.url_for("/elsewhere")})
    delivery = sink(httpserver).deliver(all_notices()[0])
    assert delivery.status is DeliveryStatus.FAILED
    assert [request.path for request, _ in httpserver.log] == [PATH]


def test_a_slow_endpoint_costs_bounded_time_and_is_left_for_later(httpserver: HTTPServer) -> None:
    release = threading.Event()

    def slow(_request: Request) -> Response:
        release.wait(30)
        return Response("")

    httpserver.expect_request(PATH).respond_with_handler(slow)
    delivery = sink(httpserver, timeout=0.3).deliver(all_notices()[0])
    assert not release.is_set()
    release.set()
    assert delivery.status is DeliveryStatus.RETRY_LATER


def test_nobody_listening_is_left_for_later_without_naming_the_url() -> None:
    nowhere = WebhookSink("desk", SecretStr("http://127.0.0.1:9/S3cr3t"), "x", SystemClock(), secret=None, timeout=0.5)
    delivery = nowhere.deliver(all_notices()[0])
    nowhere.close()
    assert delivery.status is DeliveryStatus.RETRY_LATER
    assert "S3cr3t" not in delivery.says


def test_a_url_that_httpx_cannot_use_is_a_failure_and_not_an_error() -> None:
    odd = WebhookSink("desk", SecretStr("http://[::1:80/S3cr3t"), "x", SystemClock(), secret=None, timeout=0.5)
    delivery = odd.deliver(all_notices()[0])
    odd.close()
    assert delivery.status is not DeliveryStatus.DELIVERED
    assert "S3cr3t" not in delivery.says


def test_httpx_logs_a_request_without_path_and_query(httpserver: HTTPServer, caplog: pytest.LogCaptureFixture) -> None:
    httpserver.expect_request(PATH).respond_with_data("")
    sink(httpserver).deliver(all_notices()[0])
    assert "HTTP Request" in caplog.text


def test_a_story_is_no_transition_but_can_be_sent_as_one() -> None:
    entries = [Entry(seq, event) for seq, event in enumerate(repaired_hang().events, 1)]
    event = cloud_event(replace(notices.story(entries, NoticeKind.STORY, lambda _: "")), "x")
    assert event["type"] == "io.fleetwarden.incident.story"
    assert httpx.Response(200, json=event).json()["data"]["event"] is None
