"""When an incident is told to people once, and when a second line is worth it."""

import pytest
from told_lives import HUNG, NIGHT, SIM_2, Life, approval_request, escalated_hang, recommendation, repaired_hang

from actuators.action import Action
from agent.decision.decision import Reason, Verdict
from agent.incident import Closed, Ending, IncidentState, fold
from agent.report.outlook import Outlook, outlook, worth_a_second_line, worth_telling

PATIENCE = 120.0


def fresh() -> Life:
    return Life("inc-7", HUNG)


LIVES = {
    "just opened": (fresh, Outlook.WORKING),
    "acting": (lambda: fresh().begin(14, "engine-hung"), Outlook.WORKING),
    "held back": (lambda: fresh().decide(13, Verdict.WAIT, Reason.BREAKER_OPEN, "the breaker is open"), Outlook.WORKING),
    "asked": (approval_request, Outlook.ASKS),
    "approved": (lambda: approval_request().answer(20, approved=True), Outlook.WORKING),
    "recommended": (recommendation, Outlook.RECOMMENDS),
    "without a runbook": (
        lambda: fresh().decide(13, Verdict.REFUSE, Reason.NO_RUNBOOK, "there is none"),
        Outlook.RECOMMENDS,
    ),
    "escalated": (escalated_hang, Outlook.GAVE_UP),
    "repaired": (repaired_hang, Outlook.REPAIRED),
    "healed": (lambda: fresh().end(50, IncidentState.RESOLVED, Ending.HEALED, "gone"), Outlook.HEALED),
    "ruled out": (lambda: fresh().end(50, IncidentState.SUPPRESSED, Ending.RULED_OUT, "it answered"), Outlook.DISMISSED),
}


@pytest.mark.parametrize("name", LIVES)
def test_an_outlook_says_who_has_to_do_something(name: str) -> None:
    life, expected = LIVES[name]
    assert outlook(fold(life().events)) is expected


@pytest.mark.parametrize("name", LIVES)
def test_an_incident_is_told_at_once_unless_the_warden_is_working_on_it(name: str) -> None:
    life, expected = LIVES[name]
    incident = fold(life().events)
    assert worth_telling(incident, incident.opened_at, PATIENCE) is (expected is not Outlook.WORKING)
    assert worth_telling(incident, incident.opened_at + PATIENCE, PATIENCE)


def test_a_merged_incident_is_left_to_the_one_that_explains_it() -> None:
    merged = fold(fresh().end(50, IncidentState.SUPPRESSED, Ending.MERGED, "explained by inc-6").events)
    assert not worth_telling(merged, merged.opened_at + 10 * PATIENCE, PATIENCE)


def second_line(life: Life, told_after: int) -> bool:
    """Whether the whole life is worth a second line when it was told after its first `told_after` events."""
    return worth_a_second_line(fold(life.events[:told_after]), fold(life.events))


def test_a_repair_told_while_under_way_gets_a_second_line_when_it_ends() -> None:
    assert second_line(repaired_hang(), 5)


def test_a_repair_that_is_still_under_way_gets_none() -> None:
    life = fresh().begin(14, "engine-hung")
    assert not second_line(life.verify(200), 2)


def test_a_repair_told_while_under_way_that_is_given_up_gets_one() -> None:
    assert second_line(escalated_hang(), 3)


def test_an_escalation_after_an_unanswered_request_is_not_told_again() -> None:
    life = approval_request()
    told = len(life.events)
    assert not second_line(life.end(910, IncidentState.ESCALATED, Ending.GAVE_UP, "nobody answered"), told)


def test_a_rejected_request_is_not_told_again() -> None:
    life = approval_request()
    told = len(life.events)
    life.answer(30, approved=False).end(31, IncidentState.ESCALATED, Ending.REJECTED, "rejected by maria")
    assert not second_line(life, told)


def test_an_approved_repair_that_failed_is_told_again() -> None:
    life = approval_request()
    told = len(life.events)
    life.answer(30, approved=True).begin(31, "engine-kv-pressure")
    assert second_line(life.end(60, IncidentState.ESCALATED, Ending.GAVE_UP, "it did not help"), told)


def test_an_approved_repair_that_helped_is_told_again() -> None:
    life = approval_request()
    told = len(life.events)
    life.answer(30, approved=True).begin(31, "engine-kv-pressure").verify(50)
    assert second_line(life.end(90, IncidentState.RESOLVED, Ending.REPAIRED, "held for 20 s"), told)


def test_a_second_request_for_approval_is_told_again_because_its_deadline_is_new() -> None:
    life = approval_request()
    told = len(life.events)
    life.answer(30, approved=True).begin(31, "engine-kv-pressure")
    assert not second_line(life, told)
    assert second_line(life.ask(90, 990, "attempt 2 needs approval"), told)


def test_a_recommendation_that_became_needless_is_told_again() -> None:
    life = recommendation()
    told = len(life.events)
    assert second_line(life.end(200, IncidentState.RESOLVED, Ending.HEALED, "gone for 60 s"), told)


def test_an_escalated_incident_whose_signs_went_is_told_again_once_it_is_closed() -> None:
    life = escalated_hang()
    told = len(life.events)
    life.events.append(Closed(life.id, NIGHT + 400, "its cause stayed away for 120 s"))
    assert second_line(life, told)
    assert not second_line(life, len(life.events))


def test_a_changed_mind_about_what_to_recommend_is_no_second_line() -> None:
    life = recommendation()
    told = len(life.events)
    life.decide(40, Verdict.REFUSE, Reason.AUTONOMY_RECOMMEND, "still", Action("process.restart", SIM_2))
    assert not second_line(life, told)
