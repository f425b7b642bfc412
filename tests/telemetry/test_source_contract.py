"""The contract of every source, run over each of them; memory last, a real Prometheus where one is installed."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from source_harnesses import (
    PROMETHEUS,
    Harness,
    RealPrometheus,
    captured_prometheus,
    otlp,
    real_prometheus,
    scrape,
    scripted,
)
from stand_ins import Servers, answering

from serving.fleet.entity import EntityKind
from serving.fleet.topology import Topology
from serving.telemetry.columns import PROCESS_START
from serving.telemetry.history import History
from serving.telemetry.reading import FailureKind, Reading
from serving.telemetry.registry import Registry

BUILDERS = {"scrape": scrape, "captured-prometheus": captured_prometheus, "otlp": otlp, "scripted": scripted}
ABOUT_THE_SCRAPE = {"scrape.up", "scrape.seconds"}  # known of an engine that does not answer, too


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory, exposition: str) -> Iterator[tuple[RealPrometheus, str]]:
    """A real Prometheus, shared by the tests because it takes seconds to begin, and the engine that it scrapes."""
    if PROMETHEUS is None:
        pytest.skip("there is no prometheus binary on the PATH")
    servers = Servers()
    engine = servers.start(answering(exposition))
    running = RealPrometheus(tmp_path_factory.mktemp("prometheus"), [engine.url.removeprefix("http://"), "127.0.0.1:1"])
    yield running, engine.url
    running.kill()
    servers.close()


@pytest.fixture(params=[*BUILDERS, pytest.param("real-prometheus", marks=pytest.mark.real_prometheus)])
def harness(request: pytest.FixtureRequest, servers: Servers, registry: Registry, exposition: str) -> Iterator[Harness]:
    if request.param == "real-prometheus":
        running, engine = request.getfixturevalue("prometheus")
        made = real_prometheus(running, registry, engine)
    else:
        made = BUILDERS[request.param](servers, registry, exposition)
    yield made
    made.recover()
    for clean in made.cleanup:
        clean()
    made.source.close()


def arrays(reading: Reading) -> Iterator[tuple[str, np.ndarray]]:
    """Every array of a reading that has one row per engine."""
    yield "sampled_at", reading.sampled_at
    yield from reading.values.items()
    yield from reading.sampled_at_of.items()
    for name, histogram in reading.histograms.items():
        yield name, histogram.counts
        yield name, histogram.sums


def test_a_reading_says_whose_it_is_and_has_one_row_for_each_engine(harness: Harness) -> None:
    reading = harness.read_until(harness.knows_alive)
    assert reading.source == harness.source.entity
    assert reading.source.kind is EntityKind.TELEMETRY
    for name, array in arrays(reading):
        assert array.dtype == np.float64, name
        assert len(array) == 2, name


def test_rows_follow_the_map_that_was_asked_for(harness: Harness) -> None:
    harness.read_until(harness.knows_alive)
    turned = Topology([harness.topology.facts(engine) for engine in reversed(harness.topology.engines)])
    harness.topology = turned
    reading = harness.read_until(harness.knows_alive)
    if harness.carries_series:
        assert np.isnan(reading.values["engine.steps"]).tolist() == [False, True]


def test_what_is_not_known_is_missing_and_never_zero(harness: Harness) -> None:
    reading = harness.read_until(harness.knows_alive)
    row = harness.topology.row_of["absent"]
    for name, array in arrays(reading):
        if name not in ABOUT_THE_SCRAPE | {"sampled_at"}:
            assert np.isnan(array[row]).all(), name


def test_a_target_that_failed_is_named_with_a_sentence_and_the_others_are_not(harness: Harness) -> None:
    reading = harness.read_until(lambda reading: harness.knows_alive(reading) and "alive" not in reading.failures)
    assert list(reading.failures) == (["absent"] if harness.names_failures else [])
    for failure in reading.failures.values():
        assert failure.kind in FailureKind
        assert "127.0.0.1:1" in failure.detail or "up is 0" in failure.detail


def test_a_silent_outside_neither_holds_the_reader_nor_makes_it_raise(harness: Harness) -> None:
    harness.read_until(harness.knows_alive)
    harness.hang()
    reading = harness.read(deadline=0.3)  # returns while the outside is still silent
    if harness.can_hang:
        assert reading.error or reading.failures["alive"].kind is FailureKind.TIMEOUT
        assert not harness.knows_alive(reading)


def test_a_lost_outside_is_said_and_when_it_is_back_reading_goes_on(harness: Harness) -> None:
    harness.read_until(harness.knows_alive)
    harness.fail()
    if harness.carries_series:
        reading = harness.read()
        assert reading.error or reading.failures["alive"].kind is FailureKind.REFUSED
        assert not harness.knows_alive(reading)
    harness.recover()
    assert harness.read_until(harness.knows_alive).error == ""


def test_a_map_without_engines_is_read_like_any_other(harness: Harness) -> None:
    harness.read_until(harness.knows_alive)
    reading = harness.source.read(Topology([]), 0.0, 5.0)
    assert reading.error == ""
    assert all(len(array) == 0 for _, array in arrays(reading))


def test_any_thread_may_read(harness: Harness) -> None:
    harness.read_until(harness.knows_alive)
    for _ in range(2):
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(harness.read).result().error == ""


def test_a_closed_source_says_so_and_closing_again_does_nothing(harness: Harness) -> None:
    harness.source.close()
    harness.source.close()
    reading = harness.read()
    assert "closed" in reading.error
    assert not reading.values
    assert np.isnan(reading.sampled_at).all()


def test_the_history_takes_what_a_source_says(harness: Harness) -> None:
    reading = harness.read_until(harness.knows_alive)
    history = History(harness.topology)
    window = history.window(reading.at, harness.topology, (reading,))
    assert [status.error for status in window.sources] == [""]
    if harness.carries_series:
        row = harness.topology.row_of["alive"]
        assert np.isfinite(window.latest("engine.steps", within=1e12)[row])
    assert not np.isfinite(window.latest(PROCESS_START, within=1e12)[harness.topology.row_of["absent"]])
