"""The checkup over /metrics alone, on a clock of its own: what is found, what is not, and what is said of the rest."""

from collections.abc import Callable, Sequence

import pytest
from pytest_httpserver import HTTPServer

from agent.checkup.blind_spots import past_needed
from agent.checkup.checkup import Checkup, Wishes
from agent.checkup.feed import needed_for_a_hang
from agent.checkup.places import find_all
from agent.checkup.report import EXIT_CODES, CheckupReport, Verdict
from detectors.catalogue import DETECTORS
from detectors.parameters import load_parameters
from serving.clock import FakeClock
from serving.telemetry.registry import Registry

Engines = Callable[[str], object]
HANG = needed_for_a_hang(load_parameters())


def looked(
    urls: Sequence[str],
    registry: Registry,
    seconds: float | None = None,
    more: int = 0,
    between: Callable[[], None] = lambda: None,
) -> list[CheckupReport]:
    """The first report, and `more` later ones after `between` was called."""
    clock = FakeClock()
    places = find_all(urls, registry, clock, seconds=2.0)
    reports = Checkup(places, Wishes(1800.0, seconds), registry, clock).reports(lambda *_: None, lambda: False)
    told = [next(reports)]
    between()
    told.extend(next(reports) for _ in range(more))
    reports.close()  # type: ignore[attr-defined]
    return told


@pytest.mark.parametrize("names", ["exposition", "older_exposition"])
def test_a_healthy_engine_has_no_sign_of_trouble_under_current_and_older_names(
    names: str, request: pytest.FixtureRequest, engine_of: Engines, registry: Registry
) -> None:
    engine = engine_of(request.getfixturevalue(names))
    (told,) = looked([engine.url], registry)
    assert (told.verdict, told.exit_code) == (Verdict.HEALTHY, 0)
    assert told.says == "no sign of trouble in what could be seen of 1 engine"
    (row,) = told.engines
    assert (row.model, row.measured, row.idle, row.running) == ("tiny", True, False, 2.0)
    assert row.steps_per_s == pytest.approx(50.0)
    assert row.kv_usage is not None
    assert bool(row.older_names) == (names == "older_exposition")
    absent = [spot for spot in told.unseen if spot.kind == "signals"]
    assert [spot.blind for spot in absent] in ([], [[]])


def test_the_older_names_are_told_by_signal(older_exposition: str, engine_of: Engines, registry: Registry) -> None:
    (told,) = looked([engine_of(older_exposition).url], registry, seconds=4.0)
    assert told.engines[0].older_names == {
        "engine.kv_usage": "vllm:gpu_cache_usage_perc",
        "engine.prefix_queries": "vllm:gpu_prefix_cache_queries_total",
        "engine.prefix_hits": "vllm:gpu_prefix_cache_hits_total",
        "engine.inter_token": "vllm:time_per_output_token_seconds",
    }


@pytest.mark.parametrize("names", ["exposition", "older_exposition"])
def test_an_engine_that_claims_work_and_makes_no_step_is_watched_until_the_hang_is_sure(
    names: str, request: pytest.FixtureRequest, engine_of: Engines, registry: Registry
) -> None:
    engine = engine_of(request.getfixturevalue(names))
    engine.pace = 0
    (told,) = looked([engine.url], registry)
    assert (told.verdict, told.exit_code) == (Verdict.SICK, 1)
    assert told.watched_s >= HANG - 2.0
    cause = told.causes[0]
    assert (cause.cause, cause.entity) == ("engine.hung", f"engine/{engine.name}")
    assert cause.headline == f"{engine.name} is hung"
    assert any("no step for" in row.says for row in cause.evidence)
    assert "door.in_flight" in cause.missing
    assert cause.probe == "engine.canary"
    assert cause.settings[0].setting == "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS"


def test_who_says_how_long_to_watch_is_obeyed(engine: object, registry: Registry) -> None:
    engine.pace = 0
    (told,) = looked([engine.url], registry, seconds=10.0)
    assert told.watched_s == pytest.approx(10.0)
    assert told.verdict is Verdict.HEALTHY
    (short,) = [spot for spot in told.unseen if spot.kind == "past"]
    assert "progress" in short.weakened


def test_nothing_measured_is_no_all_clear(stranger: HTTPServer, registry: Registry) -> None:
    stranger.expect_request("/metrics").respond_with_data('vllm:num_requests_running{model_name="m"} 1.0\n')
    (told,) = looked([stranger.url_for("/metrics")], registry, seconds=6.0)
    assert (told.verdict, told.exit_code) == (Verdict.UNMEASURED, 2)
    assert told.says.startswith("nothing measured")
    (lacking,) = [spot for spot in told.unseen if spot.kind == "signals"]
    assert {"progress", "latency", "kv"} <= set(lacking.blind)


def test_one_reading_is_nothing_measured(engine: object, registry: Registry) -> None:
    clock = FakeClock()
    places = find_all([engine.url], registry, clock)
    told = next(Checkup(places, Wishes(1800.0), registry, clock).reports(lambda *_: None, lambda: True))
    assert (told.readings, told.verdict) == (1, Verdict.UNMEASURED)


def test_an_idle_engine_is_said_to_be_idle(engine: object, registry: Registry) -> None:
    engine.pace = engine.running = 0
    (told,) = looked([engine.url], registry)
    assert told.engines[0].idle
    assert told.verdict is Verdict.HEALTHY
    assert "1 of them idle" in told.says
    assert any(spot.kind == "idle" for spot in told.unseen)


def test_where_nothing_can_be_read_nothing_is_known(refused: str, registry: Registry) -> None:
    (told,) = looked([refused, "ftp://x"], registry)
    assert (told.verdict, told.exit_code) == (Verdict.UNREADABLE, 2)
    assert [row.kind for row in told.unread] == ["refused", "other"]
    assert all(row.todo for row in told.unread)


def test_a_healthy_engine_beside_one_that_is_down_is_not_a_healthy_fleet(
    engine: object, refused: str, registry: Registry
) -> None:
    (told,) = looked([engine.url, refused], registry, seconds=4.0)
    assert (told.verdict, told.exit_code) == (Verdict.UNREADABLE, 2)
    assert [row.url for row in told.unread] == [refused]
    assert {row.engine: row.measured for row in told.engines}[engine.name]


def test_an_engine_that_goes_away_while_watched_is_diagnosed(
    engine_of: Engines, exposition: str, registry: Registry
) -> None:
    stays, goes = engine_of(exposition), engine_of(exposition)
    told = looked([stays.url, goes.url], registry, seconds=4.0, more=6, between=goes.server.stop)
    assert told[0].verdict is Verdict.HEALTHY
    last = told[-1]
    assert last.verdict is Verdict.SICK
    assert [(row.cause, row.entity) for row in last.causes] == [("engine.dead", f"engine/{goes.name}")]
    assert last.unread == []


def _door(server: HTTPServer, name: str, in_flight: int) -> str:
    text = f'door:inflight_requests{{replica="{name}",model="tiny"}} {in_flight}\n'
    text += f'door:requests_started_total{{replica="{name}",model="tiny"}} 100\n'
    server.expect_request("/metrics").respond_with_data(text)
    return server.url_for("/metrics")


def test_with_a_front_door_a_hang_is_found_sooner(engine: object, stranger: HTTPServer, registry: Registry) -> None:
    engine.pace = engine.running = 0
    (told,) = looked([f"vllm-0={engine.url}", _door(stranger, "vllm-0", 3)], registry, seconds=12.0)
    assert [(row.cause, row.entity) for row in told.causes] == [("engine.hung", "engine/vllm-0")]
    assert not [spot for spot in told.unseen if spot.kind == "door"]


def test_a_front_door_that_names_other_engines_is_said_and_not_counted(
    engine: object, stranger: HTTPServer, registry: Registry
) -> None:
    (told,) = looked([engine.url, _door(stranger, "vllm-0", 3)], registry, seconds=4.0)
    assert any("vllm-0" in note for note in told.notes)
    assert [spot for spot in told.unseen if spot.kind == "door"]


def test_a_front_door_alone_tells_nothing_of_engines(stranger: HTTPServer, registry: Registry) -> None:
    (told,) = looked([_door(stranger, "vllm-0", 3)], registry)
    assert told.exit_code == 2
    assert "front door" in told.unread[0].says


def test_without_a_door_that_is_always_said(engine: object, registry: Registry) -> None:
    (told,) = looked([engine.url], registry, seconds=4.0)
    (spot,) = [spot for spot in told.unseen if spot.kind == "door"]
    assert "in flight unknown" in spot.says
    assert "progress" in spot.weakened + spot.blind


def test_every_detector_says_how_much_past_it_wants() -> None:
    needed = past_needed(load_parameters(), has_door=False)
    assert set(needed) == {detector.name for detector in DETECTORS}
    assert all(0 < seconds < 600 for seconds in needed.values())


def test_every_verdict_has_its_exit_code_and_only_healthy_is_zero() -> None:
    assert set(EXIT_CODES) == set(Verdict)
    assert [verdict for verdict, code in EXIT_CODES.items() if code == 0] == [Verdict.HEALTHY]
