"""The warden is killed between any two writes, and between an action and its outcome: nothing is done twice or forgotten."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from walked_warden import effects, essence, live_through, new_world, undisturbed

from actuators.scripted import Cue, ScriptedWorld
from agent.incident import IncidentState
from agent.journal.memory import MemoryJournal
from agent.journal.stored import open_journal

SCENARIOS: dict[str, dict[str, list[Cue]]] = {
    "all goes well": {},
    "an answer is lost": {"door.drain": [Cue.LOST_ANSWER], "process.restart": [Cue.LOST_ANSWER]},
    "a request is lost": {"process.restart": [Cue.LOST_REQUEST], "door.undrain": [Cue.LOST_REQUEST]},
    "the restart fails": {},
    "the restart fails and the answer of the undo is lost": {"door.undrain": [Cue.LOST_ANSWER]},
}


def world_of(scenario: str) -> ScriptedWorld:
    world = new_world(startable="restart fails" not in scenario)  # a fact of the world, so every life meets it
    for verb, cues in SCENARIOS[scenario].items():
        world.cue(verb, *cues)
    return world


def one_store() -> Callable[[], MemoryJournal]:
    """A journal that outlives its warden."""
    journal = MemoryJournal()
    return lambda: journal


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_end_is_the_same_wherever_the_warden_is_killed(scenario: str) -> None:
    expected, done, moments = undisturbed(world_of(scenario))
    for moment in range(moments):
        world = world_of(scenario)
        incident = live_through(one_store(), world, (moment,))
        assert (essence(incident), effects(world)) == (expected, done), f"killed at moment {moment}"


def test_the_walk_visits_every_write_and_the_scenarios_end_as_meant() -> None:
    ends = {scenario: undisturbed(world_of(scenario)) for scenario in SCENARIOS}
    assert {scenario: end[0][0] for scenario, end in ends.items()} == {
        "all goes well": IncidentState.RESOLVED,
        "an answer is lost": IncidentState.RESOLVED,
        "a request is lost": IncidentState.RESOLVED,
        "the restart fails": IncidentState.ESCALATED,
        "the restart fails and the answer of the undo is lost": IncidentState.ESCALATED,
    }
    # opened, attempt started, 4 x (decided, intended, finished, step passed), verification started, ended; two moments each
    assert ends["all goes well"][2] == 2 * (1 + 1 + 4 * 4 + 1 + 1)


@given(deaths=st.lists(st.integers(0, 45), max_size=12), scenario=st.sampled_from(list(SCENARIOS)))
def test_the_end_is_the_same_however_often_the_warden_is_killed(deaths: list[int], scenario: str) -> None:
    expected, done, _ = undisturbed(world_of(scenario))
    world = world_of(scenario)
    incident = live_through(one_store(), world, tuple(deaths))
    assert (essence(incident), effects(world)) == (expected, done)


def test_the_same_holds_over_a_journal_on_disk_that_is_opened_anew_in_each_life(tmp_path: Path) -> None:
    scenario = "an answer is lost"
    expected, done, moments = undisturbed(world_of(scenario))
    for moment in range(moments):
        world, path = world_of(scenario), tmp_path / f"{moment}.sqlite"
        incident = live_through(lambda path=path: open_journal(path), world, (moment,))
        assert (essence(incident), effects(world)) == (expected, done), f"killed at moment {moment}"
