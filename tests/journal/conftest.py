"""Journals under test, and a short history to put in them."""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from actuators.action import Action, Outcome, OutcomeStatus
from agent.decision.decision import Decision, Reason, Verdict
from agent.diagnosis.diagnosis import Diagnosis
from agent.incident import (
    AttemptStarted,
    Decided,
    Ended,
    Ending,
    Finished,
    IncidentEvent,
    IncidentState,
    Intended,
    Opened,
    StepPassed,
    VerificationStarted,
)
from agent.journal.memory import MemoryJournal
from agent.journal.port import Journal
from agent.journal.stored import StoredJournal, open_journal
from detectors.finding import Evidence, Finding, Symptom
from serving.fleet.entity import Entity

ENGINE = Entity.engine("sim-1")


@pytest.fixture
def diagnosis() -> Diagnosis:
    evidence = Evidence("engine.steps", "no engine step for 12 s with 4 requests in flight", 12.0, 1.0, "s")
    finding = Finding(Symptom.STEPS_FROZEN, ENGINE, since=90.0, severity=0.8, evidence=(evidence,))
    return Diagnosis("engine.hung", ENGINE, score=0.9, since=90.0, explains=(finding,))


@pytest.fixture
def history(diagnosis: Diagnosis) -> Callable[[str], tuple[IncidentEvent, ...]]:
    """The events of one incident that was repaired, by its id."""

    def events(name: str) -> tuple[IncidentEvent, ...]:
        drain = Action("door.drain", ENGINE, {"by": "fleetwarden"})
        key = f"{name}/1/drain"
        return (
            Opened(name, 100.0, diagnosis),
            Decided(name, 101.0, Decision(Verdict.ACT, Reason.STEP_DUE, "step drain is due", "drain", drain)),
            AttemptStarted(name, 101.0, 1, "engine-hung"),
            Intended(name, 101.0, key, "drain", 1, drain),
            Finished(name, 102.0, key, Outcome(OutcomeStatus.DONE, "drained")),
            StepPassed(name, 103.0, "drain", "it was done"),
            VerificationStarted(name, 104.0),
            Ended(name, 130.0, IncidentState.RESOLVED, Ending.REPAIRED, "served well again", "3 requests"),
        )

    return events


STORED = ["sqlite", pytest.param("postgresql", marks=pytest.mark.real_postgres)]


@pytest.fixture(params=["memory", *STORED])
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Journal]:
    """Every implementation of the port: one contract for all."""
    opened = MemoryJournal() if request.param == "memory" else open_journal(_place(request, tmp_path))
    yield opened
    opened.close()


@pytest.fixture(params=STORED)
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[StoredJournal, StoredJournal]]:
    """The same store opened by two processes, as it were."""
    place = _place(request, tmp_path)
    with closing(open_journal(place)) as one, closing(open_journal(place)) as other:
        yield one, other


def _place(request: pytest.FixtureRequest, tmp_path: Path) -> Path | str:
    if request.param == "sqlite":
        return tmp_path / "journal.sqlite"
    return str(request.getfixturevalue("postgres_url"))
