"""Rollouts: a new revision whose engines are ill, what is no revision's fault, and what a rollout must not be taken for."""

from collections.abc import Callable

import numpy as np
import pytest
from racks import Racks, switch
from synthetic import NOW, Fleet

from detectors.finding import Finding, Symptom
from serving.telemetry.window import Window

Find = Callable[[Window], tuple[Finding, ...]]
OF_ROLLOUTS = {Symptom.REVISION_WORSE, Symptom.REVISION_SUSPECT}


def shown(found: tuple[Finding, ...]) -> dict[str, set[Symptom]]:
    """What was found of rollouts, by the name of the entity."""
    by_name: dict[str, set[Symptom]] = {}
    for one in found:
        if one.symptom in OF_ROLLOUTS:
            by_name.setdefault(one.entity.name, set()).add(one.symptom)
    return by_name


def rollout(new: list[int], engines: int = 8, ago: float = 200.0) -> Fleet:
    """Engines `new` were given revision 2 `ago` seconds ago and started anew for it."""
    fleet = Fleet(engines=engines, seconds=400)
    revision = fleet._full(1.0)
    since = fleet.last(ago)
    for row in new:
        revision[row, since] = 2.0
        fleet.start[row, since] = NOW - ago
    fleet.changed["engine.revision"] = revision
    fleet.changed["engine.starting_seconds"] = fleet._full(0.0)
    return fleet


def ill(fleet: Fleet, rows: list[int], how: str) -> None:
    lately = fleet.last(150)
    for row in rows:
        if how == "slow":
            fleet.itl[row, lately] *= 3.0
        elif how == "failing":
            fleet.broken[row, lately] = 0.6
        elif how == "down":
            fleet.up[row, lately], fleet.took[row, lately] = 0.0, 0.001
            fleet.changed["engine.starting_seconds"][row, lately] = np.nan


@pytest.mark.parametrize("how", ["slow", "failing", "down"])
def test_ills_of_the_new_revision_alone_are_the_rollouts(how: str, findings: Find) -> None:
    fleet = rollout([0, 1, 2])
    ill(fleet, [0, 1, 2], how)
    found = shown(findings(fleet.window()))
    assert found["m-0"] == {Symptom.REVISION_WORSE}
    assert {name for name, symptoms in found.items() if Symptom.REVISION_SUSPECT in symptoms} == {"e-0", "e-1", "e-2"}


@pytest.mark.parametrize("how", ["slow", "failing"])
def test_once_all_have_the_new_revision_their_own_past_is_the_measure(how: str, findings: Find) -> None:
    fleet = rollout(list(range(6)), engines=6)
    ill(fleet, list(range(6)), how)
    assert shown(findings(fleet.window()))["m-0"] == {Symptom.REVISION_WORSE}


@pytest.mark.parametrize(
    ("new", "sick"),
    [([0, 1, 2], []), ([0, 1, 2], [1]), ([0, 1, 2], list(range(8))), ([0], [0]), ([0, 1, 2], [5, 6])],
    ids=["healthy upgrade", "one ill engine", "all ill alike", "a single new engine", "ill old ones"],
)
def test_a_rollout_that_is_not_at_fault_is_not_blamed(new: list[int], sick: list[int], findings: Find) -> None:
    fleet = rollout(new)
    ill(fleet, sick, "failing")
    assert "m-0" not in shown(findings(fleet.window()))


def test_the_first_requests_of_new_engines_may_be_slow(findings: Find) -> None:
    fleet = rollout([0, 1, 2], ago=60.0)
    compiling = slice(-30, -18)
    fleet.itl[:3, compiling] *= 4.0
    fleet.ttft[:3, compiling] *= 10.0
    assert "m-0" not in shown(findings(fleet.window()))


def test_what_the_restarts_of_an_upgrade_break_is_not_the_revisions(findings: Find) -> None:
    fleet = rollout([0, 1, 2], ago=50.0)
    fleet.up[:3, fleet.last(50)] = 0.0
    fleet.took[:3, fleet.last(50)] = 0.001
    fleet.up[:3, fleet.last(20)] = 1.0
    fleet.broken[:3, slice(-27, -24)] = 1.0
    assert "m-0" not in shown(findings(fleet.window()))


def test_a_revision_that_all_have_had_for_long_says_nothing(findings: Find) -> None:
    fleet = Fleet(engines=6)
    fleet.changed["engine.revision"] = fleet._full(7.0)
    ill(fleet, [0, 1, 2], "slow")
    assert "m-0" not in shown(findings(fleet.window()))


def going_on(ages: dict[int, float], engines: int = 8) -> Fleet:
    """A rollout under way: each engine of `ages` has had revision 2 for so many seconds, after 20 s of starting for it."""
    fleet = rollout([], engines=engines)
    for row, ago in ages.items():
        since, starting = fleet.last(ago), slice(fleet.last(ago).start, fleet.last(ago - 20.0).start)
        fleet.changed["engine.revision"][row, since] = 2.0
        fleet.start[row, since] = NOW - ago
        fleet.up[row, starting] = 0.0
    return fleet


def test_what_an_engine_showed_before_its_change_does_not_speak_for_the_new_revision(findings: Find) -> None:
    fleet = going_on({0: 140.0, 1: 120.0, 2: 30.0, 3: 25.0, 4: 22.0})
    for row in (0, 1):
        fleet.itl[row, fleet.last(140)] *= 3.0
    assert shown(findings(fleet.window()))["m-0"] == {Symptom.REVISION_WORSE}


def test_the_first_ill_engine_of_a_new_revision_is_suspect_until_others_can_be_judged(findings: Find) -> None:
    fleet = going_on({0: 140.0, 1: 35.0, 2: 25.0})
    fleet.broken[0, fleet.last(100)] = 0.6
    assert shown(findings(fleet.window())) == {"e-0": {Symptom.REVISION_SUSPECT}}
    well = going_on({0: 200.0, 1: 180.0, 2: 160.0})
    well.broken[0, well.last(100)] = 0.6
    assert shown(findings(well.window())) == {}


def test_an_ill_engine_of_a_rollout_that_stopped_long_ago_is_its_own_affair(findings: Find) -> None:
    fleet = going_on({0: 340.0})
    fleet.broken[0, fleet.last(100)] = 0.6
    assert shown(findings(fleet.window())) == {}


def of_revisions(racks: Racks, changed: dict[int, float]) -> Racks:
    """The engines `changed` have had a new revision for so many seconds."""
    revision = racks.fleet._full(1.0)
    for row, ago in changed.items():
        revision[row, racks.last(ago)] = 2.0
    racks.fleet.changed["engine.revision"] = revision
    return racks


def lost_with_their_node(changed: dict[int, float], findings: Find) -> bool:
    racks = of_revisions(Racks(), changed)
    racks.fleet.up[2:4, racks.last(20)] = 0.0
    return Symptom.NODE_ENGINES_LOST in {one.symptom for one in findings(racks.window()) if one.entity.name == "n1"}


def test_engines_that_a_rollout_takes_down_are_not_lost_with_their_node(findings: Find) -> None:
    assert not lost_with_their_node({2: 20.0, 3: 10.0}, findings)
    assert lost_with_their_node({2: 150.0, 3: 150.0}, findings)  # they had it long before
    assert lost_with_their_node({}, findings)


def test_a_slow_revision_behind_one_switch_is_not_the_switch(findings: Find) -> None:
    racks = Racks(engines=16)
    racks.fleet.itl[4:8, racks.last(100)] *= 1.45
    assert Symptom.SWITCH_SLOW in {one.symptom for one in findings(racks.window()) if one.entity == switch(1)}
    of_revisions(racks, dict.fromkeys(range(4, 8), 150.0))
    assert Symptom.SWITCH_SLOW not in {one.symptom for one in findings(racks.window())}
    of_revisions(racks, dict.fromkeys(range(4, 16), 150.0))
    assert Symptom.SWITCH_SLOW in {one.symptom for one in findings(racks.window()) if one.entity == switch(1)}
