"""What looks unusual and is healthy raises nothing, or nothing of that name."""

from collections.abc import Callable

import numpy as np
import pytest
from synthetic import NOW, Fleet

from detectors.finding import Finding, Symptom
from serving.fleet.topology import Topology
from serving.telemetry.window import Window

Seen = Callable[[Window], dict[str, set[Symptom]]]
Find = Callable[[Window], tuple[Finding, ...]]


def _quiet(fleet: Fleet) -> None:
    """Nothing happens."""


def _idle(fleet: Fleet) -> None:
    fleet.arrivals[1, fleet.last(200)] = 0.0


def _one_long_generation(fleet: Fleet) -> None:
    lately = fleet.last(60)
    fleet.arrivals[1, lately], fleet.output[1, lately] = 0.1, 900.0


def _short_standstill(fleet: Fleet) -> None:
    fleet.standing[1, fleet.last(5)] = True


def _short_standstill_before(fleet: Fleet) -> None:
    fleet.standing[1, fleet.last(40)] = True
    fleet.standing[1, fleet.last(35)] = False


def _asleep_by_order(fleet: Fleet) -> None:
    fleet.standing[1, fleet.last(60)] = True
    fleet.awake[1, fleet.last(70)] = 0.0
    fleet.arrivals[1, fleet.last(60)] = 0.05


def _missed_scrapes(fleet: Fleet) -> None:
    fleet.up[1, fleet.last(4)] = 0.0
    fleet.took[1, fleet.last(4)] = 2.0


def _slow_scrape(fleet: Fleet) -> None:
    fleet.took[1, fleet.last(2)] = 1.9


def _starting(fleet: Fleet) -> None:
    fleet.up[1] = 0.0
    fleet.took[1] = 0.001
    fleet.arrivals[1] = 0.0


def _burst(fleet: Fleet) -> None:
    fleet.waiting[1, fleet.last(6)] = 12.0
    fleet.ttft[1, fleet.last(6)] = 1.0


def _busy_cache(fleet: Fleet) -> None:
    fleet.kv[1, fleet.last(120)] = 0.35
    fleet.kv[1, fleet.last(4)] = 0.97


def _ramp(fleet: Fleet) -> None:
    fleet.arrivals *= np.linspace(1.0, 2.2, fleet.shape[1])


def _late_answer(fleet: Fleet) -> None:
    fleet.ttft[1, fleet.last(30)] = 0.06
    fleet.ttft[1, -8] = 12.0


def _two_clients_left(fleet: Fleet) -> None:
    fleet.leaving[1, -1] = 1.0


def _all_slower_alike(fleet: Fleet) -> None:
    fleet.itl[:, fleet.last(60)] *= 2.0


def _more_load_more_time(fleet: Fleet) -> None:
    lately = fleet.last(80)
    fleet.arrivals[1, lately] *= 2.0
    fleet.itl[1, lately] *= 2.0


DECOYS = (
    _quiet,
    _idle,
    _one_long_generation,
    _short_standstill,
    _short_standstill_before,
    _asleep_by_order,
    _missed_scrapes,
    _slow_scrape,
    _starting,
    _burst,
    _busy_cache,
    _ramp,
    _late_answer,
    _two_clients_left,
    _all_slower_alike,
    _more_load_more_time,
)
HARMLESS = {Symptom.LONG_GENERATIONS}  # says what comes, and is no trouble by itself


@pytest.mark.parametrize("engines", [3, 8])
@pytest.mark.parametrize("decoy", DECOYS, ids=lambda decoy: decoy.__name__.strip("_"))
def test_a_healthy_oddity_raises_nothing(decoy: Callable[[Fleet], None], engines: int, seen: Seen) -> None:
    fleet = Fleet(engines=engines)
    decoy(fleet)
    assert {name: shown for name, symptoms in seen(fleet.window()).items() if (shown := symptoms - HARMLESS)} == {}


def test_a_restart_is_said_and_is_neither_a_death_nor_a_hang(seen: Seen) -> None:
    fleet = Fleet()
    fleet.start[1, fleet.last(30)] = NOW - 30
    assert seen(fleet.window()) == {"e-1": {Symptom.RESTARTED}}


def test_a_young_engine_may_compile_for_a_while_before_it_counts_as_standing(seen: Seen) -> None:
    fleet = Fleet()
    fleet.start[1] = NOW - 60
    fleet.standing[1, fleet.last(20)] = True
    assert Symptom.STEPS_FROZEN not in seen(fleet.window()).get("e-1", set())


def test_a_door_whose_counters_go_on_over_an_engines_restart_shows_no_flood(seen: Seen) -> None:
    fleet = Fleet()
    fleet.start[1, fleet.last(10)] = NOW - 10
    shown = seen(fleet.window())["e-1"]
    assert not shown & {Symptom.ARRIVALS_RAISED, Symptom.CLIENTS_LEAVING, Symptom.REQUESTS_FAILING}


@pytest.mark.parametrize("seconds", [2, 4, 10, 30, 60])
def test_a_young_window_raises_no_false_alarm(seconds: float, seen: Seen) -> None:
    assert seen(Fleet(engines=4, seconds=seconds).window()) == {}


def test_a_history_that_begins_anew_after_a_clock_jump_raises_no_false_alarm(seen: Seen) -> None:
    fleet = Fleet(seconds=6)
    fleet.start = fleet._full(NOW + 3600.0)
    assert seen(fleet.window()) == {}


def test_an_empty_fleet_and_an_empty_window_raise_nothing(findings: Find) -> None:
    assert findings(Window(now=NOW, topology=Topology([]), times=np.array([NOW]))) == ()
    assert findings(Window(now=NOW, topology=Fleet().topology, times=np.array([]))) == ()
