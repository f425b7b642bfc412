"""Slow actions are carried out beside the loop."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from actuators.action import Action
from agent.decision.decision import Decision, Reason, Verdict
from agent.diagnosis.diagnosis import Diagnosis
from agent.hands import Hands, Written
from agent.incident import Incident, VerificationStarted
from serving.fleet.entity import Entity

ENGINE = Entity.engine("sim-0")
INCIDENT = Incident("i-1", Diagnosis("engine.hung", ENGINE, 0.9, 0.0, ()), 0.0)
OTHER = Incident("i-2", Diagnosis("engine.dead", ENGINE, 0.9, 0.0, ()), 0.0)
ACT = Decision(Verdict.ACT, Reason.STEP_DUE, "due", "probe", Action("engine.canary", ENGINE))


@dataclass
class SlowExecutor:
    """Performs when its gate opens."""

    gate: threading.Event = field(default_factory=threading.Event)
    begun: threading.Event = field(default_factory=threading.Event)
    error: Exception | None = None

    def perform(self, incident: Incident, _decision: Decision, *, attempt: int, runbook: str, now: float) -> Written:
        assert (attempt, runbook) == (1, "engine-hung")
        self.begun.set()
        assert self.gate.wait(30)
        if self.error is not None:
            raise self.error
        return (VerificationStarted(incident.id, now),)

    def recover(self, _now: float) -> Written:
        return ()


@pytest.fixture
def executor() -> SlowExecutor:
    return SlowExecutor()


@pytest.fixture
def hands(executor: SlowExecutor) -> Iterator[Hands]:
    hands = Hands(executor, moment=0.01)  # type: ignore[arg-type]
    yield hands
    executor.gate.set()
    hands.close()


def _begin(hands: Hands, incident: Incident = INCIDENT) -> Written:
    return hands.perform(incident, ACT, attempt=1, runbook="engine-hung", now=5.0)


def _taken(hands: Hands) -> Written:
    while hands.busy(INCIDENT.id):
        written = hands.finished()
        if written:
            return written
    return ()


def test_a_slow_action_leaves_the_loop_free_and_marks_its_incident_busy(hands: Hands, executor: SlowExecutor) -> None:
    assert _begin(hands) == ()
    assert executor.begun.wait(30)
    assert hands.busy(INCIDENT.id)
    assert not hands.busy(OTHER.id)
    assert hands.finished() == ()


def test_what_became_of_a_slow_action_is_taken_in_once(hands: Hands, executor: SlowExecutor) -> None:
    _begin(hands)
    executor.gate.set()
    assert _taken(hands) == (VerificationStarted("i-1", 5.0),)
    assert hands.finished() == ()
    assert not hands.busy(INCIDENT.id)


def test_a_quick_action_is_over_when_it_returns(executor: SlowExecutor) -> None:
    executor.gate.set()
    hands = Hands(executor, moment=30.0)  # type: ignore[arg-type]
    assert _begin(hands) == (VerificationStarted("i-1", 5.0),)
    assert not hands.busy(INCIDENT.id)
    hands.close()


def test_an_error_of_the_journal_reaches_the_loop_and_frees_the_incident(hands: Hands, executor: SlowExecutor) -> None:
    executor.error = OSError("disk full")
    _begin(hands)
    executor.gate.set()
    with pytest.raises(OSError, match="disk full"):
        _taken(hands)
    assert not hands.busy(INCIDENT.id)
