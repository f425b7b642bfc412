"""Only the leader touches the world, and asks right before each touch whether it still is."""

import math
from typing import Any

import pytest

from agent.act import Executor
from agent.election.mandate import Mandate, Standing
from agent.incident import Intended, Withdrawn
from agent.journal.memory import MemoryJournal
from agent.journal.port import DeposedError
from serving.clock import FakeClock


class Elector:
    """Holds whatever mandate it is given."""

    identity = "warden-a"

    def __init__(self) -> None:
        self.held: Mandate | None = Mandate(1, math.inf, math.inf)

    def mandate(self) -> Mandate | None:
        return self.held

    def standing(self) -> Standing:
        return Standing(self.held is not None, "", 0)

    def resign(self, term: int, floor: int = 0) -> None: ...

    def close(self) -> None: ...


class Sleepy(MemoryJournal):
    """After an intent is on record, the process sleeps: `sleeps` happens meanwhile."""

    sleeps = staticmethod(lambda: None)

    def append(self, event: object) -> int:
        seq = super().append(event)
        if isinstance(event, Intended):
            self.sleeps()
        return seq


@pytest.fixture
def elector() -> Elector:
    return Elector()


@pytest.fixture
def led(stage: Any, elector: Elector) -> Any:
    stage.executor = Executor(stage.journal, stage.actuator, stage.clock, elector=elector)
    return stage


def sleepy(stage: Any, elector: Elector) -> Sleepy:
    journal = Sleepy()
    journal.append(stage.journal.events()[0].event)
    stage.journal = journal
    stage.executor = Executor(journal, stage.actuator, stage.clock, elector=elector)
    return journal


def test_a_follower_does_nothing_and_writes_nothing(led: Any, elector: Elector) -> None:
    elector.held = None
    before = led.journal.events()
    assert led.perform() == ()
    assert led.recover() == ()
    assert led.journal.events() == before
    assert led.world.done == []


def test_a_mandate_that_ends_too_soon_for_a_touch_begins_nothing(led: Any, elector: Elector) -> None:
    now = led.clock.monotonic()
    elector.held = Mandate(1, now + 5.0, now + 1.9)
    assert led.perform() == ()
    elector.held = Mandate(1, now + 5.0, now + 2.0)
    assert led.perform() != ()


@pytest.mark.parametrize("after", [None, Mandate(3, math.inf, math.inf)])
def test_a_leader_that_slept_after_its_intent_touches_nothing_and_withdraws_it(
    stage: Any, elector: Elector, after: Mandate | None
) -> None:
    """Also when it leads again: what it decided in an earlier term is to be decided anew."""
    journal = sleepy(stage, elector)
    journal.sleeps = lambda: setattr(elector, "held", after)
    written = stage.perform()
    assert stage.world.done == []
    assert isinstance(written[-1], Withdrawn)
    assert "ended before anything was touched" in written[-1].says


def test_a_leader_that_slept_past_the_end_of_its_mandate_notices_by_its_own_clock(stage: Any, elector: Elector) -> None:
    assert isinstance(stage.clock, FakeClock)
    elector.held = Mandate(1, stage.clock.monotonic() + 8.0, stage.clock.monotonic() + 11.4)
    sleepy(stage, elector).sleeps = lambda: stage.clock.advance(8.0)
    assert isinstance(stage.perform()[-1], Withdrawn)
    assert stage.world.done == []


def test_what_a_deposed_leader_learnt_after_its_touch_is_left_for_its_successor_to_look_up(
    stage: Any, elector: Elector
) -> None:
    journal = sleepy(stage, elector)

    def deposed(_key: str) -> None:
        def refuse(_event: object) -> int:
            raise DeposedError("warden-b writes in term 2", 2)

        journal.append = refuse

    stage.actuator.before = deposed
    with pytest.raises(DeposedError):
        stage.perform()
    del journal.append
    assert stage.now_is().pending is not None
    successor = Executor(journal, stage.actuator, stage.clock)
    stage.clock.advance(5.0)
    assert len(successor.recover(stage.clock.now())) == 1
    assert stage.now_is().pending is None
    assert len(stage.world.done) == 1
