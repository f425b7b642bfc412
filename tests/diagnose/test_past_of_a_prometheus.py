"""The past out of a real Prometheus: map, pace and looks, and what is said of an engine that went away."""

import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import orjson
import pytest

from agent.checkup.checkup import Checkup, Wishes
from agent.checkup.past import tell
from agent.checkup.places import StorePlace, find_all
from agent.checkup.report import CheckupReport, Verdict
from serving.clock import SystemClock
from serving.telemetry.promql import PromqlError
from serving.telemetry.registry import Registry

PROMETHEUS = shutil.which("prometheus")
DEADLINE_S = 60.0

pytestmark = [
    pytest.mark.real_prometheus,
    pytest.mark.skipif(PROMETHEUS is None, reason="the prometheus binary is not installed"),
]


def until(condition: Callable[[], bool]) -> None:
    """Poll `condition`; fail after a deadline that only a broken Prometheus misses."""
    clock = SystemClock()
    ends = clock.monotonic() + DEADLINE_S
    while not condition():
        assert clock.monotonic() < ends, "waited in vain"
        clock.sleep(0.3)


class Store:
    """A prometheus that scrapes each second."""

    def __init__(self, folder: Path, targets: dict[str, str]) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        targeted = [{"targets": [target], "labels": {"pod": pod}} for pod, target in targets.items()]
        config = {
            "global": {"scrape_interval": "1s"},
            "scrape_configs": [{"job_name": "vllm", "static_configs": targeted}],
        }
        (folder / "prometheus.yml").write_bytes(orjson.dumps(config))  # JSON is YAML
        with (folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                [
                    str(PROMETHEUS),
                    f"--config.file={folder / 'prometheus.yml'}",
                    f"--storage.tsdb.path={folder / 'data'}",
                    f"--web.listen-address=127.0.0.1:{port}",
                ],
                stdout=log,
                stderr=log,
            )

    def stop(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


@pytest.fixture
def store(engine_of: Callable[[str], object], exposition: str, tmp_path: Path) -> Iterator[Store]:
    engines = {name: engine_of(exposition) for name in ("vllm-0", "vllm-1")}
    running = Store(tmp_path, {name: engine.name for name, engine in engines.items()})
    running.engines = engines  # type: ignore[attr-defined]
    yield running
    running.stop()


def look(store: Store, registry: Registry, since: float) -> CheckupReport:
    clock = SystemClock()
    places = find_all([store.url], registry, clock)
    reports = Checkup(places, Wishes(since), registry, clock).reports(lambda *_: None, lambda: False)
    told = next(reports)
    reports.close()  # type: ignore[attr-defined]
    return told


def test_a_fleet_is_read_out_of_its_past_and_an_engine_that_went_away_is_diagnosed(store: Store, registry: Registry) -> None:
    until(lambda: isinstance(find_all([store.url], registry, SystemClock())[0], StorePlace))
    until(lambda: look(store, registry, 20.0).watched_s >= 8.0)
    told = look(store, registry, 300.0)
    assert told.verdict is Verdict.HEALTHY
    assert {row.engine: row.model for row in told.engines} == {"vllm-0": "tiny", "vllm-1": "tiny"}
    assert told.watched_s < 100.0, "the span before its first sample was not seen"
    assert all(row.steps_per_s is not None and row.steps_per_s > 20.0 for row in told.engines)

    read = tell(store.url, 20.0, registry, SystemClock(), {})
    assert read.cadence == pytest.approx(1.0, abs=0.5)

    store.engines["vllm-1"].server.stop()  # type: ignore[attr-defined]
    until(lambda: look(store, registry, 60.0).verdict is Verdict.SICK)
    sick = look(store, registry, 60.0)
    assert [(row.cause, row.entity) for row in sick.causes] == [("engine.dead", "engine/vllm-1")]


def test_a_prometheus_without_engines_is_no_healthy_fleet(tmp_path: Path, registry: Registry) -> None:
    empty = Store(tmp_path, {})
    try:
        until(lambda: isinstance(find_all([empty.url], registry, SystemClock())[0], StorePlace))
        told = look(empty, registry, 60.0)
        assert (told.verdict, told.exit_code) == (Verdict.UNREADABLE, 2)
        assert "no series of a vLLM engine" in told.unread[0].says
        assert "/targets" in told.unread[0].todo
    finally:
        empty.stop()
    with pytest.raises(PromqlError, match="connection refused"):
        tell(empty.url, 60.0, registry, SystemClock(), {})
