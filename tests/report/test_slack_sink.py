"""The Slack sink over real HTTP: retries, limits of time, refusals, and a webhook URL that shows nowhere."""

import logging
import threading
from collections.abc import Iterator

import pytest
from pydantic import SecretStr
from pytest_httpserver import HTTPServer
from told_lives import repaired_hang
from werkzeug import Request, Response

from agent.journal.port import Entry
from agent.report import notices
from agent.report.notice import DeliveryStatus, Notice, NoticeKind
from agent.report.slack import SlackSink
from serving.clock import SystemClock

PATH = "/services/T000/B000/S3cr3tPath"


def notice(kind: NoticeKind = NoticeKind.STORY) -> Notice:
    entries = [Entry(seq, event) for seq, event in enumerate(repaired_hang().events, 1)]
    return notices.story(entries, kind, lambda _incident: "")


def sink(server: HTTPServer, timeout: float = 10.0) -> SlackSink:
    return SlackSink(SecretStr(server.url_for(PATH)), "local", SystemClock(), timeout=timeout)


@pytest.fixture
def _everything_logged(caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]) -> Iterator[None]:
    """Nothing that is logged at any level, or printed, shows a secret. The test's own server (werkzeug) knows its paths."""
    caplog.set_level(logging.DEBUG)
    yield
    ours = [record for record in caplog.get_records("call") if record.name != "werkzeug"]
    assert "S3cr3tPath" not in "".join(map(logging.Formatter("%(message)s").format, ours))
    assert "S3cr3tPath" not in "".join(capsys.readouterr())


pytestmark = pytest.mark.usefixtures("_everything_logged")


def test_a_story_is_posted_as_blocks_with_a_fallback(httpserver: HTTPServer) -> None:
    httpserver.expect_oneshot_request(PATH, method="POST").respond_with_data("ok")
    assert sink(httpserver).deliver(notice()).status is DeliveryStatus.DELIVERED
    (request, _), *_ = httpserver.log
    body = request.get_json()
    assert body["blocks"][0]["text"]["text"] == ":white_check_mark: Engine sim-2 was hung: repaired"
    assert body["text"].startswith("Engine sim-2 was hung: repaired")


def test_a_follow_up_is_posted_as_one_line(httpserver: HTTPServer) -> None:
    httpserver.expect_oneshot_request(PATH, method="POST").respond_with_data("ok")
    assert sink(httpserver).deliver(notice(NoticeKind.FOLLOW_UP)).status is DeliveryStatus.DELIVERED
    assert len(httpserver.log[0][0].get_json()["blocks"]) == 2


def test_a_server_error_is_tried_again(httpserver: HTTPServer) -> None:
    httpserver.expect_ordered_request(PATH).respond_with_data("oops", status=500)
    httpserver.expect_ordered_request(PATH).respond_with_data("ok")
    assert sink(httpserver).deliver(notice()).status is DeliveryStatus.DELIVERED
    assert len(httpserver.log) == 2


def test_a_server_that_stays_broken_is_left_for_later(httpserver: HTTPServer) -> None:
    httpserver.expect_request(PATH).respond_with_data("oops", status=503)
    delivery = sink(httpserver, timeout=1.0).deliver(notice())
    assert delivery.status is DeliveryStatus.RETRY_LATER
    assert "503" in delivery.says
    assert 1 < len(httpserver.log) <= 4


def test_being_told_to_wait_is_obeyed_and_not_hammered(httpserver: HTTPServer) -> None:
    httpserver.expect_request(PATH).respond_with_data("slow down", status=429, headers={"Retry-After": "30"})
    delivery = sink(httpserver).deliver(notice())
    assert (delivery.status, delivery.retry_after) == (DeliveryStatus.RETRY_LATER, 30.0)
    assert len(httpserver.log) == 1


@pytest.mark.parametrize("status", [400, 403, 404, 410])
def test_a_refusal_is_for_good(status: int, httpserver: HTTPServer) -> None:
    httpserver.expect_request(PATH).respond_with_data("no_service", status=status)
    delivery = sink(httpserver).deliver(notice())
    assert delivery.status is DeliveryStatus.FAILED
    assert str(status) in delivery.says
    assert len(httpserver.log) == 1


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(status: int, httpserver: HTTPServer) -> None:
    httpserver.expect_request(PATH).respond_with_data(
        "", status=status, headers={"Location": httpserver.url_for("/elsewhere")}
    )
    httpserver.expect_request("/elsewhere").respond_with_data("ok")
    delivery = sink(httpserver).deliver(notice())
    assert delivery.status is DeliveryStatus.FAILED
    assert "redirect" in delivery.says
    assert [request.path for request, _ in httpserver.log] == [PATH]


def test_a_slow_endpoint_costs_bounded_time_and_is_left_for_later(httpserver: HTTPServer) -> None:
    release = threading.Event()

    def slow(_request: Request) -> Response:
        release.wait(30)
        return Response("ok")

    httpserver.expect_request(PATH).respond_with_handler(slow)
    delivery = sink(httpserver, timeout=0.3).deliver(notice())
    assert not release.is_set()
    release.set()
    assert delivery.status is DeliveryStatus.RETRY_LATER


def test_nobody_listening_is_left_for_later_without_naming_the_url(httpserver: HTTPServer) -> None:
    quiet = sink(httpserver, timeout=0.5)
    httpserver.stop()
    try:
        delivery = quiet.deliver(notice())
    finally:
        httpserver.start()
    assert delivery.status is DeliveryStatus.RETRY_LATER
    assert "S3cr3tPath" not in delivery.says


def test_an_error_page_in_an_unknown_encoding_does_not_raise(httpserver: HTTPServer) -> None:
    headers = {"Content-Type": "text/html; charset=klingon"}
    httpserver.expect_request(PATH).respond_with_data(b"\xff\xfe", status=500, headers=headers)
    assert sink(httpserver, timeout=0.5).deliver(notice()).status is DeliveryStatus.RETRY_LATER


def test_the_sink_does_not_show_its_url(httpserver: HTTPServer) -> None:
    assert "S3cr3tPath" not in repr(sink(httpserver)) + repr(vars(sink(httpserver)))
