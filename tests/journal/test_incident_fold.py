"""An incident is the fold of its events, and an event that cannot follow is refused with both named."""

from collections.abc import Callable
from dataclasses import replace
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actuators.action import Action, Outcome, OutcomeStatus
from agent.decision.decision import Decision, Reason, Verdict
from agent.diagnosis.diagnosis import Diagnosis
from agent.incident import (
    ApprovalAnswered,
    ApprovalAsked,
    AttemptStarted,
    Closed,
    Decided,
    Ended,
    Ending,
    Finished,
    Incident,
    IncidentEvent,
    IncidentState,
    Intended,
    Opened,
    Rediagnosed,
    RollbackStarted,
    StepPassed,
    SymptomsBack,
    SymptomsGone,
    VerificationStarted,
    Withdrawn,
    apply,
    fold,
)
from serving.fleet.entity import Entity

ENGINE = Entity.engine("sim-1")
HUNG = Diagnosis("engine.hung", ENGINE, 0.9, 90.0, ())
SLOW = Diagnosis("engine.slow", ENGINE, 0.9, 90.0, ())
DRAIN = Action("door.drain", ENGINE)
DONE = Outcome(OutcomeStatus.DONE, "done")
UNKNOWN = Outcome(OutcomeStatus.UNKNOWN, "no answer")
DUE = Decision(Verdict.ACT, Reason.STEP_DUE, "due", "drain", DRAIN)

OPENED = Opened("a", 1.0, HUNG)
STARTED = AttemptStarted("a", 2.0, 1, "engine-hung")
INTENDED = Intended("a", 3.0, "k1", "drain", 1, DRAIN)
FINISHED = Finished("a", 4.0, "k1", DONE)


def test_the_first_event_opens_the_incident() -> None:
    assert fold([OPENED]) == Incident("a", HUNG, 1.0)


def test_no_events_are_no_incident() -> None:
    with pytest.raises(ValueError, match="at least one event"):
        fold([])


def test_a_whole_life_from_open_to_resolved() -> None:
    events = [
        OPENED,
        Decided("a", 1.5, DUE),
        ApprovalAsked("a", 1.6, 50.0, "may I?"),
        ApprovalAnswered("a", 1.7, approved=True, by="ada"),
        STARTED,
        INTENDED,
        FINISHED,
        StepPassed("a", 5.0, "drain", "done"),
        VerificationStarted("a", 6.0),
        Ended("a", 60.0, IncidentState.RESOLVED, Ending.REPAIRED, "served well", "2 requests"),
    ]
    incident = fold(events)
    assert (incident.state, incident.ending, incident.says) == (IncidentState.RESOLVED, Ending.REPAIRED, "served well")
    assert (incident.attempt, incident.runbook, incident.passed) == (1, "engine-hung", ("drain",))
    assert (incident.ended_at, incident.step_since, incident.cost) == (60.0, 6.0, "2 requests")
    assert incident.operations[0].outcome == DONE
    assert (incident.operations[0].intended_at, incident.operations[0].finished_at) == (3.0, 4.0)
    assert incident.approval is not None
    assert (incident.approval.approved, incident.approval.by) == (True, "ada")
    assert not incident.standing


def test_an_unknown_outcome_still_waits_and_takes_a_better_one() -> None:
    unknown = fold([OPENED, STARTED, INTENDED, Finished("a", 4.0, "k1", UNKNOWN)])
    assert unknown.pending is not None
    assert unknown.pending.key == "k1"
    known = apply(unknown, Finished("a", 9.0, "k1", DONE))
    assert known.pending is None
    assert known.operations[0].finished_at == 9.0


def test_a_withdrawn_operation_leaves_its_step_due_and_its_key_used() -> None:
    incident = fold([OPENED, STARTED, INTENDED, Withdrawn("a", 4.0, "k1", "it never happened")])
    assert incident.operations == ()
    assert [operation.key for operation in incident.withdrawn] == ["k1"]
    with pytest.raises(ValueError, match="'k1' was used already"):
        apply(incident, replace(INTENDED, at=5.0))
    assert apply(incident, replace(INTENDED, at=5.0, key="k2")).pending is not None


def test_a_further_attempt_follows_a_rollback_with_its_steps_anew() -> None:
    first = [
        OPENED,
        STARTED,
        INTENDED,
        FINISHED,
        StepPassed("a", 5.0, "drain", "done"),
        RollbackStarted("a", 6.0, "no help"),
    ]
    second = fold([*first, AttemptStarted("a", 9.0, 2, "engine-hung")])
    assert (second.state, second.attempt, second.passed) == (IncidentState.ACTING, 2, ())
    assert len(second.operations) == 1


def test_an_escalated_incident_takes_the_outcome_of_what_was_unknown_when_it_ended() -> None:
    escalated = fold([OPENED, STARTED, INTENDED, Ended("a", 9.0, IncidentState.ESCALATED, Ending.GAVE_UP, "look at it")])
    assert escalated.standing
    assert apply(escalated, Finished("a", 20.0, "k1", DONE)).operations[0].outcome == DONE


def test_symptoms_are_remembered_as_gone_until_back_rediagnosed_or_something_is_done() -> None:
    gone = fold([OPENED, SymptomsGone("a", 5.0)])
    assert gone.gone_since == 5.0
    for event in (SymptomsBack("a", 6.0), Rediagnosed("a", 6.0, SLOW), replace(STARTED, at=6.0)):
        assert apply(gone, event).gone_since is None


REFUSED: list[tuple[str, list[IncidentEvent], IncidentEvent, str]] = [
    ("opened twice", [OPENED], OPENED, "open already"),
    ("another's event", [OPENED], SymptomsGone("b", 2.0), "belongs to incident 'b'"),
    ("another entity", [OPENED], Rediagnosed("a", 2.0, replace(HUNG, entity=Entity.engine("x"))), "about engine/sim-1"),
    ("rediagnosed while acting", [OPENED, STARTED], Rediagnosed("a", 3.0, SLOW), "must be open"),
    ("gone twice", [OPENED, SymptomsGone("a", 2.0)], SymptomsGone("a", 3.0), "gone already"),
    ("back without gone", [OPENED], SymptomsBack("a", 2.0), "were not gone"),
    ("attempt out of turn", [OPENED], AttemptStarted("a", 2.0, 2, "r"), "attempt 1 comes next, not 2"),
    ("attempt while acting", [OPENED, STARTED], AttemptStarted("a", 3.0, 2, "r"), "open or rolling_back"),
    ("intent of another attempt", [OPENED, STARTED], replace(INTENDED, attempt=2), "attempt 1 is under way, not 2"),
    ("two at a time", [OPENED, STARTED, INTENDED], replace(INTENDED, key="k2"), "'k1' is not known"),
    ("a key again", [OPENED, STARTED, INTENDED, FINISHED], INTENDED, "'k1' was used already"),
    ("a finished step", [OPENED, STARTED, StepPassed("a", 3.0, "drain", "")], INTENDED, "step 'drain' is over"),
    ("acting while verifying", [OPENED, STARTED, VerificationStarted("a", 3.0)], INTENDED, "no attempt is under way"),
    ("an outcome of nothing", [OPENED, STARTED], FINISHED, "does not wait for its outcome"),
    ("a second outcome", [OPENED, STARTED, INTENDED, FINISHED], FINISHED, "does not wait for its outcome"),
    ("withdrawn when done", [OPENED, STARTED, INTENDED, FINISHED], Withdrawn("a", 5.0, "k1", ""), "does not wait"),
    ("a step before acting", [OPENED], StepPassed("a", 2.0, "drain", ""), "acting or rolling_back"),
    ("a step while unknown", [OPENED, STARTED, INTENDED], StepPassed("a", 4.0, "drain", ""), "is not known"),
    ("rollback of nothing", [OPENED], RollbackStarted("a", 2.0, ""), "acting or verifying"),
    ("verify before acting", [OPENED], VerificationStarted("a", 2.0), "must be acting"),
    ("answer to no question", [OPENED], ApprovalAnswered("a", 2.0, approved=True, by="x"), "no request for approval"),
    (
        "answer too late",
        [OPENED, ApprovalAsked("a", 2.0, 3.0, "")],
        ApprovalAnswered("a", 3.0, approved=True, by="x"),
        "has expired",
    ),
    ("asked to expire at once", [OPENED], ApprovalAsked("a", 2.0, 2.0, ""), "expires before it is made"),
    ("end in no end", [OPENED], Ended("a", 2.0, IncidentState.ACTING, Ending.REPAIRED, ""), "acting is no end"),
    (
        "end while unknown",
        [OPENED, STARTED, INTENDED],
        Ended("a", 4.0, IncidentState.RESOLVED, Ending.REPAIRED, ""),
        "can only be escalated",
    ),
    ("closed while open", [OPENED], Closed("a", 2.0, ""), "has not ended"),
    (
        "closed when repaired",
        [OPENED, Ended("a", 2.0, IncidentState.RESOLVED, Ending.HEALED, "")],
        Closed("a", 3.0, ""),
        "stands for its cause no more",
    ),
    (
        "decided when ended",
        [OPENED, Ended("a", 2.0, IncidentState.ESCALATED, Ending.GAVE_UP, "")],
        Decided("a", 3.0, DUE),
        "has ended",
    ),
]


@pytest.mark.parametrize(("before", "event", "why"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_what_cannot_follow_is_refused_and_named(before: list[IncidentEvent], event: IncidentEvent, why: str) -> None:
    with pytest.raises(ValueError, match=why) as refusal:
        apply(fold(before), event)
    assert type(event).__name__ in str(refusal.value)
    assert "'a'" in str(refusal.value)


@pytest.mark.parametrize("kind", [kind for kind in get_args(IncidentEvent) if kind is not Opened])
def test_nothing_but_opened_comes_first(kind: type) -> None:
    event = next(event for event in _candidates() if isinstance(event, kind))
    with pytest.raises(ValueError, match=f"{kind.__name__} cannot be the first event of incident 'a'"):
        apply(None, event)


def _candidates(at: float = 2.0) -> list[IncidentEvent]:
    """One or more of each event, some of which can follow somewhere."""
    keys, steps, attempts = ("k1", "k2", "k3"), ("drain", "restart"), (0, 1, 2)
    return [
        Opened("a", at, HUNG),
        Rediagnosed("a", at, SLOW),
        SymptomsGone("a", at),
        SymptomsBack("a", at),
        Decided("a", at, DUE),
        *(AttemptStarted("a", at, attempt, "r") for attempt in attempts),
        *(Intended("a", at, key, step, attempt, DRAIN) for key in keys for step in steps for attempt in attempts),
        *(Finished("a", at, key, outcome) for key in keys for outcome in (DONE, UNKNOWN)),
        *(Withdrawn("a", at, key, "") for key in keys),
        *(StepPassed("a", at, step, "") for step in steps),
        RollbackStarted("a", at, ""),
        VerificationStarted("a", at),
        ApprovalAsked("a", at, at + 10, ""),
        ApprovalAnswered("a", at, approved=True, by="x"),
        *(Ended("a", at, state, Ending.GAVE_UP, "") for state in IncidentState),
        Closed("a", at, ""),
    ]


@settings(max_examples=200)
@given(choices=st.lists(st.integers(min_value=0, max_value=10_000), max_size=40))
def test_every_prefix_of_a_history_is_a_sound_incident(choices: list[int]) -> None:
    """Walk at random over what may follow; whatever the walk, the incident makes sense at every moment."""
    events: list[IncidentEvent] = [OPENED]
    incident = fold(events)
    for moment, choice in enumerate(choices, 2):
        possible = [event for event in _candidates(float(moment)) if _follows(incident, event)]
        event = possible[choice % len(possible)] if possible else None
        if event is None:
            break
        before, incident = incident, apply(incident, event)
        events.append(event)
        assert fold(events) == incident
        _is_sound(before, incident)


def _follows(incident: Incident, event: IncidentEvent) -> bool:
    try:
        apply(incident, event)
    except ValueError:
        return False
    return True


def _is_sound(before: Incident, after: Incident) -> None:
    keys = [operation.key for operation in (*after.operations, *after.withdrawn)]
    assert len(keys) == len(set(keys))
    assert sum(operation.pending for operation in after.operations) <= 1
    assert len(after.passed) == len(set(after.passed))
    assert after.attempt in (before.attempt, before.attempt + 1)
    assert {operation.key for operation in before.operations} <= set(keys)
    if before.ended:
        assert (after.state, after.ended_at, after.ending) == (before.state, before.ended_at, before.ending)
    if after.pending is not None:
        assert after.state not in (IncidentState.RESOLVED, IncidentState.SUPPRESSED, IncidentState.VERIFYING)


def test_the_fixture_of_a_repaired_incident_is_a_valid_history(
    history: Callable[[str], tuple[IncidentEvent, ...]],
) -> None:
    assert fold(history("a")).state is IncidentState.RESOLVED
