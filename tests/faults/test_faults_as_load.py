"""Faults that are the users' doing: the load generator, run as a program of its own."""

from collections.abc import Callable

import pytest
import requests

from serving.engines import processes
from serving.engines.local import LocalEngines
from serving.faults.catalogue import FaultError, FaultUsageError
from serving.faults.faults import Faults
from serving.fleet.fleet_file import EngineEntry, FleetFile, GatewayEntry

LOADS = ["prefill-flood", "kv-flood", "surge", "endless-generation", "mass-cancel", "impatient-clients"]


def in_flight(engines: LocalEngines) -> float:
    text = requests.get(f"{engines.spec('sim-0').url}/metrics", timeout=5).text
    wanted = ("vllm:num_requests_running{", "vllm:num_requests_waiting{")
    return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(wanted))


def test_every_load_reaches_the_engine_and_leaves_with_its_undo(
    sim_engines: LocalEngines, sim_faults: Faults, until: Callable[..., None]
) -> None:
    for name in LOADS:
        injection = sim_faults.inject(name, "sim-0", seconds=60)
        until(lambda: in_flight(sim_engines) > 0)
        assert [each.over for each in sim_faults.active()] == [False]
        assert sim_faults.clear(injection.id)[0].ok
        assert not processes.with_environment({"FLEETWARDEN_FAULT": injection.id})
        until(lambda: in_flight(sim_engines) == 0)


def test_a_load_that_ended_by_itself_is_over(
    sim_engines: LocalEngines, sim_faults: Faults, until: Callable[..., None]
) -> None:
    injection = sim_faults.inject("mass-cancel", "sim-0", rps=20, seconds=1)
    until(lambda: [each.over for each in sim_faults.active()] == [True])
    until(lambda: in_flight(sim_engines) == 0)
    assert "ended by itself" in sim_faults.clear(injection.id)[0].detail


def test_a_load_may_go_to_the_front_door_that_the_fleet_file_names(
    sim_engines: LocalEngines, sim_faults: Faults, until: Callable[..., None]
) -> None:
    with pytest.raises(FaultUsageError, match=r"fleet\.yaml"):
        sim_faults.inject("surge", "door")
    url = sim_engines.spec("sim-0").url  # the engine stands in for the door, so its entry bears another address
    entries = [EngineEntry(name="sim-0", url="http://127.0.0.1:9", model="sim")]
    FleetFile(fleet="local", cell="local", engines=entries, gateway=GatewayEntry(name="door", url=url)).dump(
        sim_engines.directory / "fleet.yaml"
    )
    injection = sim_faults.inject("surge", "door", seconds=30)
    assert injection.url == url
    until(lambda: in_flight(sim_engines) > 0)
    assert sim_faults.clear("door")[0].ok


def test_a_load_that_cannot_begin_is_an_error_with_what_it_said(
    engines: LocalEngines, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "")
    monkeypatch.setattr("serving.faults.means.sys.executable", "/bin/false")
    with pytest.raises(FaultError, match="did not come to work"):
        faults.inject("surge", "one")
    assert faults.active() == ()
    assert engines.processes("one")["api"]
