"""Which incidents there are, from what is diagnosed at each moment."""

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actuators.action import Action, Outcome, OutcomeStatus
from agent.diagnosis.diagnosis import Diagnosis, Rival
from agent.incident import (
    AttemptStarted,
    Closed,
    Ended,
    Ending,
    Finished,
    IncidentState,
    Intended,
    Opened,
    Rediagnosed,
    RollbackStarted,
    SymptomsBack,
    SymptomsGone,
)
from agent.journal.memory import MemoryJournal
from agent.track import TrackParameters, incident_id, track
from detectors.finding import Finding, Symptom
from serving.fleet.entity import Entity, EntityKind

ONE, TWO = Entity.engine("sim-1"), Entity.engine("sim-2")
FROZEN = Finding(Symptom.STEPS_FROZEN, ONE, 0.0, 1.0)
HUNG = Diagnosis("engine.hung", ONE, 0.9, 0.0, (FROZEN,))
SLOW = Diagnosis("engine.slow", ONE, 0.7, 0.0, (Finding(Symptom.SLOWER_THAN_PEERS, ONE, 0.0, 1.0),))
BLIND = Diagnosis("telemetry.blind", Entity(EntityKind.TELEMETRY, "scrape"), 0.9, 0.0, ())
PARAMETERS = TrackParameters()


def kinds(events: tuple[object, ...]) -> list[type]:
    return [type(event) for event in events]


def begin(watch: Any) -> str:
    """An incident whose first action was taken."""
    watch.look(HUNG)
    name = watch.incidents[0].id
    watch.journal.append(AttemptStarted(name, watch.now, 1, "engine-hung"))
    watch.journal.append(Intended(name, watch.now, "k", "drain", 1, Action("door.drain", ONE)))
    watch.journal.append(Finished(name, watch.now, "k", Outcome(OutcomeStatus.DONE, "done")))
    return name


def end(watch: Any, state: IncidentState, ending: Ending) -> None:
    watch.look(HUNG)
    watch.journal.append(Ended(watch.incidents[0].id, watch.now, state, ending, "over"))


def test_a_diagnosis_that_no_incident_covers_opens_one_and_only_one(watch: Any) -> None:
    assert kinds(watch.look(HUNG)) == [Opened]
    assert watch.look_on(HUNG, seconds=100) == ()
    assert watch.incidents[0].diagnosis == HUNG


def test_two_engines_have_two_incidents(watch: Any) -> None:
    other = replace(HUNG, entity=TWO)
    assert kinds(watch.look(HUNG, other)) == [Opened, Opened]
    assert {incident.entity for incident in watch.incidents} == {ONE, TWO}


def test_of_several_causes_on_one_entity_the_likeliest_with_enough_evidence_opens(watch: Any) -> None:
    thin = replace(HUNG, score=0.99, enough=False)
    (opened,) = watch.look(thin, SLOW)
    assert opened.diagnosis == SLOW


def test_a_diagnosis_without_enough_evidence_opens_when_it_has_held_for_a_while(watch: Any) -> None:
    thin = replace(HUNG, enough=False, since=watch.now)
    assert watch.look_on(thin, seconds=PARAMETERS.thin_for - 1) == ()
    (opened,) = watch.look(thin)
    assert opened.diagnosis.enough is False


def test_a_likelier_cause_takes_over_an_incident_of_which_nothing_was_done(watch: Any) -> None:
    watch.look(SLOW)
    (event,) = watch.look(HUNG, SLOW)
    assert (type(event), event.diagnosis) == (Rediagnosed, HUNG)
    assert len(watch.incidents) == 1


def test_two_close_rivals_do_not_take_turns(watch: Any) -> None:
    watch.look(SLOW)
    close = replace(HUNG, score=SLOW.score + PARAMETERS.margin / 2)
    assert watch.look(close, SLOW) == ()
    rival = Rival(SLOW.cause, ONE, SLOW.score, "begins later")
    assert watch.look(replace(close, rivals=(rival,))) == ()
    assert kinds(watch.look(replace(HUNG, rivals=(rival,)))) == [Rediagnosed]


def test_new_symptoms_or_a_moved_score_are_written_and_small_changes_are_not(watch: Any) -> None:
    watch.look(HUNG)
    assert watch.look(replace(HUNG, score=0.85)) == ()
    assert watch.look(replace(HUNG, explains=())) == ()
    more = replace(HUNG, explains=(FROZEN, Finding(Symptom.REQUESTS_FAILING, ONE, 1.0, 0.5)))
    assert kinds(watch.look(more)) == [Rediagnosed]
    assert kinds(watch.look(replace(more, score=0.7))) == [Rediagnosed]
    assert kinds(watch.look(replace(more, score=0.7, enough=False))) == [Rediagnosed]


def test_whatever_shows_on_an_entity_under_our_own_repair_is_explained_by_it(watch: Any) -> None:
    begin(watch)
    dead = replace(HUNG, cause="engine.dead", score=1.0)
    assert watch.look_on(dead, seconds=100) == ()
    assert watch.look_on(seconds=100) == ()
    assert len(watch.incidents) == 1


def test_a_rolled_back_incident_remembers_that_its_cause_is_gone_but_does_not_heal_by_itself(watch: Any) -> None:
    name = begin(watch)
    watch.journal.append(RollbackStarted(name, watch.now, "no help"))
    assert watch.look(HUNG) == ()
    assert kinds(watch.look_on(seconds=500)) == [SymptomsGone]
    assert kinds(watch.look(HUNG)) == [SymptomsBack]


def test_an_incident_of_which_nothing_was_done_heals_when_its_cause_stays_away(watch: Any) -> None:
    watch.look(HUNG)
    events = watch.look_on(seconds=PARAMETERS.healed_after)
    assert kinds(events) == [SymptomsGone]
    (ended,) = watch.look()
    assert (ended.state, ended.ending) == (IncidentState.RESOLVED, Ending.HEALED)
    assert "60 s" in ended.says
    assert kinds(watch.look(HUNG)) == [Opened]


def test_a_cause_that_comes_back_in_time_begins_the_wait_anew(watch: Any) -> None:
    watch.look(HUNG)
    watch.look_on(seconds=PARAMETERS.healed_after - 1)
    assert kinds(watch.look(HUNG)) == [SymptomsBack]
    assert kinds(watch.look_on(seconds=PARAMETERS.healed_after)) == [SymptomsGone]
    assert kinds(watch.look()) == [Ended]


@pytest.mark.parametrize(
    "blindness",
    [
        replace(BLIND, entity=ONE),
        replace(BLIND, entity=TWO, explains=(Finding(Symptom.SOURCE_BLIND, ONE, 0.0, 1.0),)),
        replace(BLIND, entity=TWO, explains=(Finding(Symptom.MOST_TARGETS_LOST, TWO, 0.0, 1.0),)),
        BLIND,
        None,
    ],
    ids=["it is said to be blind", "a finding on it", "most targets lost", "a source is blind", "the caller says so"],
)
def test_what_cannot_be_seen_has_not_healed(watch: Any, blindness: Diagnosis | None) -> None:
    watch.look(HUNG)
    name = watch.incidents[0].id
    hidden = (blindness,) if blindness else ()
    events = watch.look_on(*hidden, seconds=500, blind=[] if blindness else [ONE])
    assert [event for event in events if event.incident == name and isinstance(event, SymptomsGone | Ended)] == []


def test_time_in_which_nobody_could_look_does_not_count(watch: Any) -> None:
    watch.look(HUNG)
    watch.look_on(seconds=PARAMETERS.healed_after - 1)
    assert kinds(watch.look(blind=[ONE])) == [SymptomsBack]
    assert kinds(watch.look_on(seconds=PARAMETERS.healed_after)) == [SymptomsGone]


def test_blindness_itself_can_heal(watch: Any) -> None:
    watch.look(BLIND)
    events = watch.look_on(seconds=PARAMETERS.healed_after + 1)
    assert kinds(events) == [SymptomsGone, Ended]


def test_an_incident_that_something_else_explains_is_merged_into_it(watch: Any) -> None:
    watch.look(HUNG)
    wider = Diagnosis("overload", Entity(EntityKind.MODEL, "sim"), 0.9, 0.0, (FROZEN,))
    events = watch.look_on(wider, seconds=PARAMETERS.healed_after + 1)
    assert kinds(events) == [SymptomsGone, Opened, Ended]
    assert (events[-1].state, events[-1].ending) == (IncidentState.SUPPRESSED, Ending.MERGED)
    assert "overload on model/sim" in events[-1].says


def test_what_a_surge_leaves_on_one_engine_while_it_fades_is_no_incident_of_its_own(watch: Any) -> None:
    queues = tuple(Finding(Symptom.QUEUE_GROWING, engine, 0.0, 1.0, ()) for engine in (ONE, TWO))
    full = Finding(Symptom.KV_FULL, ONE, 0.0, 1.0, ())
    surge = Diagnosis("overload", Entity(EntityKind.MODEL, "sim"), 0.9, 0.0, queues)
    left = Diagnosis("engine.kv_pressure", ONE, 0.9, 0.0, (queues[0], full))
    watch.look(surge)
    assert kinds(watch.look_on(left, seconds=PARAMETERS.healed_after)) == [SymptomsGone]
    assert kinds(watch.look_on(left, seconds=2)) == [Ended, Opened]  # it stays when the surge is long over


def test_a_new_symptom_on_one_engine_is_an_incident_also_while_a_surge_fades(watch: Any) -> None:
    queues = tuple(Finding(Symptom.QUEUE_GROWING, engine, 0.0, 1.0, ()) for engine in (ONE, TWO))
    watch.look(Diagnosis("overload", Entity(EntityKind.MODEL, "sim"), 0.9, 0.0, queues))
    assert kinds(watch.look(HUNG)) == [SymptomsGone, Opened]


def test_an_escalated_incident_stays_the_record_while_its_cause_persists(watch: Any) -> None:
    end(watch, IncidentState.ESCALATED, Ending.GAVE_UP)
    assert watch.look_on(HUNG, seconds=1_000) == ()
    assert kinds(watch.look_on(seconds=PARAMETERS.gone_for)) == [SymptomsGone]
    assert kinds(watch.look(HUNG)) == [SymptomsBack]
    assert kinds(watch.look_on(seconds=PARAMETERS.gone_for + 1)) == [SymptomsGone, Closed]
    assert kinds(watch.look(HUNG)) == [Opened]
    assert len(watch.incidents) == 2


def test_an_escalated_incident_that_cannot_be_seen_is_not_closed(watch: Any) -> None:
    end(watch, IncidentState.ESCALATED, Ending.GAVE_UP)
    assert watch.look_on(seconds=1_000, blind=[ONE]) == ()


def test_another_cause_on_the_entity_of_an_escalated_incident_opens_one_of_its_own(watch: Any) -> None:
    end(watch, IncidentState.ESCALATED, Ending.GAVE_UP)
    (opened,) = (event for event in watch.look(HUNG, SLOW) if isinstance(event, Opened))
    assert opened.diagnosis == SLOW


def test_a_cause_that_was_ruled_out_rests_for_a_while_and_is_then_taken_up_again(watch: Any) -> None:
    end(watch, IncidentState.SUPPRESSED, Ending.RULED_OUT)
    assert watch.look_on(HUNG, seconds=PARAMETERS.suppressed_for - 1) == ()
    assert kinds(watch.look(HUNG)) == [Closed, Opened]


def test_what_a_person_rejected_is_not_asked_again_while_it_persists(watch: Any) -> None:
    end(watch, IncidentState.SUPPRESSED, Ending.REJECTED)
    assert watch.look_on(HUNG, seconds=1_000) == ()


def test_a_repaired_cause_that_comes_back_is_a_new_incident(watch: Any) -> None:
    end(watch, IncidentState.RESOLVED, Ending.REPAIRED)
    assert kinds(watch.look(HUNG)) == [Opened]


def test_an_id_is_short_readable_and_sorts_by_time() -> None:
    name = incident_id(HUNG, 1_767_362_580.0)
    assert re.fullmatch(r"20260102-1403-hung-sim-1-[0-9a-f]{4}", name)
    assert incident_id(HUNG, 1_767_362_580.0) == name
    assert incident_id(HUNG, 1_767_362_581.0) != name
    assert name < incident_id(replace(HUNG, cause="engine.dead"), 1_767_362_640.0)


@given(name=st.text(min_size=1), now=st.floats(min_value=0, max_value=4e9))
def test_an_id_is_fit_for_urls_and_shells_whatever_an_entity_is_called(name: str, now: float) -> None:
    made = incident_id(replace(HUNG, entity=Entity.engine(name)), now)
    assert re.fullmatch(r"[0-9A-Za-z-]{1,80}", made)


def causes() -> st.SearchStrategy[Diagnosis]:
    return st.builds(
        Diagnosis,
        st.sampled_from(["engine.hung", "engine.slow", "telemetry.blind"]),
        st.sampled_from([ONE, TWO]),
        st.floats(0, 1),
        st.just(0.0),
        st.lists(st.sampled_from([FROZEN, *SLOW.explains]), max_size=2).map(tuple),
        enough=st.booleans(),
    )


steps = st.lists(
    st.tuples(st.floats(0.1, 200), st.lists(causes(), max_size=3), st.sampled_from([None, *IncidentState])), max_size=25
)


@given(steps)
def test_whatever_is_diagnosed_all_events_can_follow_and_no_entity_has_two_open_incidents(steps: list[Any]) -> None:
    journal, now = MemoryJournal(), 1_800_000_000.0
    for gap, diagnoses, ends_as in steps:
        now += gap
        for _ in range(2):  # what ended in the first look is looked at once more in the second
            for event in track(journal.standing(), diagnoses, now):
                journal.append(event)  # raises when it cannot follow
        open_now = [incident.entity for incident in journal.incidents(open_only=True)]
        assert len(open_now) == len(set(open_now))
        assert {d.entity for d in diagnoses if d.enough} <= {*open_now, *(i.entity for i in journal.standing())}
        assert track(journal.standing(), diagnoses, now) == ()
        _end_one(journal, ends_as, now)


def _end_one(journal: MemoryJournal, state: IncidentState | None, now: float) -> None:
    endings = {
        IncidentState.RESOLVED: Ending.REPAIRED,
        IncidentState.ESCALATED: Ending.GAVE_UP,
        IncidentState.SUPPRESSED: Ending.RULED_OUT,
    }
    if state in endings:
        for incident in journal.incidents(open_only=True)[:1]:
            journal.append(Ended(incident.id, now, state, endings[state], "over"))
