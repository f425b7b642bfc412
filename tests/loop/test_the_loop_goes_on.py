"""Whatever the world answers, the loop goes on: garbage, silence, a dead store, a clock that jumps, a step that breaks."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytest_httpserver import HTTPServer
from werkzeug import Response

from agent import status as page
from agent.journal.stored import open_journal
from agent.settings import HttpSettings, LoopSettings, WardenSettings
from agent.wiring import Warden, warden
from serving.clock import FakeClock, SystemClock
from serving.fleet.fleet_file import EngineEntry, FleetFile, GatewayEntry, PrometheusEntry, ScrapeEntry, TelemetryEntry

NOWHERE = "http://127.0.0.1:9"  # the discard port: nothing listens there


class SlowlyFake(FakeClock):
    """The wall clock is the test's own; deadlines of real requests run on the machine's."""

    def monotonic(self) -> float:
        return SystemClock().monotonic()


def _settings(directory: Path) -> WardenSettings:
    loop = LoopSettings(interval=2.0, observe_deadline=1.0)
    return WardenSettings(state_dir=directory, loop=loop, http=HttpSettings(port=0))


def _fleet(urls: dict[str, str], prometheus: str | None = None) -> FleetFile:
    return FleetFile(
        fleet="odd",
        engines=[EngineEntry(name=name, url=url, model="m") for name, url in urls.items()],
        gateway=GatewayEntry(name="door", url=f"{NOWHERE}0", admin_url=f"{NOWHERE}1"),
        telemetry=TelemetryEntry(
            scrape=ScrapeEntry(timeout=0.5), prometheus=PrometheusEntry(url=prometheus, timeout=0.5) if prometheus else None
        ),
    )


@pytest.fixture
def clock() -> SlowlyFake:
    return SlowlyFake()


@pytest.fixture
def odd(tmp_path: Path, httpserver: HTTPServer, clock: SlowlyFake) -> Iterator[Warden]:
    """A warden over an engine that answers HTML, one that answers 401, one that nobody serves, and a dead Prometheus."""
    httpserver.expect_request("/html/metrics").respond_with_data("<html>welcome</html>", content_type="text/html")
    httpserver.expect_request("/secret/metrics").respond_with_response(Response("who are you?", status=401))
    urls = {"html": httpserver.url_for("/html"), "secret": httpserver.url_for("/secret"), "gone": f"{NOWHERE}2"}
    _fleet(urls, prometheus=NOWHERE).dump(tmp_path / "fleet.yaml")
    with warden(_settings(tmp_path), clock) as one:
        yield one


def test_garbage_and_a_dead_store_cost_their_own_part_only(odd: Warden, tmp_path: Path, clock: SlowlyFake) -> None:
    for _ in range(4):
        assert odd.runner.tick() is not None
        clock.advance(2.0)
    seen = page.read(tmp_path)
    assert seen is not None
    assert {row.engine: row.state for row in seen.engines} == {"html": "down", "secret": "down", "gone": "down"}
    errors = {row.source: row.error for row in seen.sources if row.error}
    assert "prometheus" in errors
    assert NOWHERE in errors["prometheus"]
    assert "scrape" not in errors


def test_blindness_is_stated_as_an_incident(odd: Warden, tmp_path: Path, clock: SlowlyFake) -> None:
    for _ in range(40):
        odd.runner.tick()
        clock.advance(2.0)
    seen = page.read(tmp_path)
    assert seen is not None
    assert "telemetry.blind" in {row.cause for row in seen.incidents}


def test_a_clock_that_is_set_back_or_forward_does_not_end_the_loop(odd: Warden, clock: SlowlyFake) -> None:
    for jump in (0.0, -3_600.0, 7_200.0, -1.0):
        clock.jump(jump)
        assert odd.runner.tick() is not None
        clock.advance(2.0)


def test_a_step_that_breaks_is_counted_and_the_next_one_runs(odd: Warden, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("this step is broken on purpose")

    with monkeypatch.context() as patched:
        patched.setattr(odd.runner._loop, "step", broken)
        assert odd.runner.tick() is None
    assert odd.runner.tick() is not None
    exposition = odd.runner._metrics.exposition().decode()
    assert 'fleetwarden_steps_total{result="failed"} 1.0' in exposition
    assert 'fleetwarden_steps_total{result="ok"} 1.0' in exposition


def test_the_runner_steps_until_it_is_told_to_stop(odd: Warden, tmp_path: Path) -> None:
    stop = threading.Event()
    running = threading.Thread(target=odd.runner.run, args=(stop,))
    running.start()
    end = SystemClock().monotonic() + 30
    while page.read(tmp_path) is None and SystemClock().monotonic() < end:
        SystemClock().sleep(0.05)
    stop.set()
    running.join(30)
    assert not running.is_alive()
    assert page.read(tmp_path) is not None


def test_the_journal_tells_that_the_loop_was_started(odd: Warden, tmp_path: Path) -> None:
    assert odd.port > 0
    journal = open_journal(tmp_path / "journal.sqlite", create=False)
    try:
        kinds = [getattr(entry.event, "kind", "") for entry in journal.events()]
    finally:
        journal.close()
    assert kinds == ["loop.started"]
