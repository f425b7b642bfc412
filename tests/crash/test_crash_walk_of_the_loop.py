"""The real loop with the shipped runbook is killed between any two writes: the same repair, once, and the same end."""

import pytest
from repairing_loop import RealWarden, new_world
from walked_warden import effects, essence, live_through, undisturbed

from agent.incident import Ending, IncidentState
from agent.journal.memory import MemoryJournal


@pytest.mark.parametrize("startable", [True, False], ids=["the restart helps", "the restart fails"])
def test_the_end_is_the_same_wherever_the_loop_is_killed(startable: bool) -> None:  # noqa: FBT001 - a table
    expected, done, moments = undisturbed(new_world(startable=startable), RealWarden)
    for moment in range(moments):
        world, journal = new_world(startable=startable), MemoryJournal()
        incident = live_through(lambda journal=journal: journal, world, (moment,), RealWarden)
        assert (essence(incident), effects(world)) == (expected, done), f"killed at moment {moment}"


def test_the_undisturbed_loop_repairs_what_it_can_and_calls_a_person_otherwise() -> None:
    (repaired, (_, verbs), _) = undisturbed(new_world(startable=True), RealWarden)
    assert repaired[:2] == (IncidentState.RESOLVED, Ending.REPAIRED)
    assert [verb for verb, _ in verbs] == ["door.drain", "process.restart", "engine.canary", "door.undrain"]
    (given_up, _, _) = undisturbed(new_world(startable=False), RealWarden)
    assert given_up[:3] == (IncidentState.ESCALATED, Ending.GAVE_UP, 2)


def test_a_loop_that_is_killed_every_few_writes_still_comes_to_the_same_end() -> None:
    """By turns right after the second and right after the third write of a life."""
    expected, done, _ = undisturbed(new_world(startable=True), RealWarden)
    world, journal = new_world(startable=True), MemoryJournal()
    incident = live_through(lambda: journal, world, (3, 5) * 30, RealWarden)
    assert (essence(incident), effects(world)) == (expected, done)
    assert incident.withdrawn, "it died between an intent and its action, too"
