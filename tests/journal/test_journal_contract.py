"""What every journal keeps to, in memory or in a database."""

from collections.abc import Callable

import pytest

from actuators.action import Action
from agent.diagnosis.diagnosis import Diagnosis
from agent.incident import (
    ApprovalAsked,
    AttemptStarted,
    Closed,
    Ended,
    Ending,
    IncidentEvent,
    IncidentState,
    Intended,
    Opened,
    SymptomsBack,
    SymptomsGone,
    fold,
)
from agent.journal.port import PAUSE, Answer, Journal, KeyTakenError, Note, OutOfOrderError, Switch
from serving.fleet.entity import Entity

History = Callable[[str], tuple[IncidentEvent, ...]]


def test_events_come_back_unchanged_in_the_order_they_were_written(journal: Journal, history: History) -> None:
    events = history("a")
    seqs = [journal.append(event) for event in events]
    entries = journal.events()
    assert tuple(entry.event for entry in entries) == events
    assert [entry.seq for entry in entries] == seqs == sorted(set(seqs))


def test_an_incident_is_the_fold_of_its_events_at_every_moment(journal: Journal, history: History) -> None:
    events = history("a")
    for count, event in enumerate(events, 1):
        journal.append(event)
        assert journal.incident("a") == fold(events[:count])


def test_events_are_read_from_a_place_on_and_for_one_incident_and_up_to_a_number(journal: Journal, history: History) -> None:
    for first, second in zip(history("a"), history("b"), strict=True):
        journal.append(first)
        journal.append(second)
    journal.note(Note(140.0, "loop.started", "the loop started", {"version": "0.1"}))
    all_of_it = journal.events()
    assert journal.events(since=all_of_it[4].seq) == all_of_it[5:]
    assert tuple(entry.event for entry in journal.events(incident="b")) == history("b")
    assert journal.events(limit=3) == all_of_it[:3]
    assert journal.events(since=all_of_it[-1].seq) == ()
    assert all_of_it[-1].event == Note(140.0, "loop.started", "the loop started", {"version": "0.1"})


def test_what_cannot_follow_is_refused_and_leaves_no_trace(journal: Journal, history: History) -> None:
    events = history("a")
    with pytest.raises(OutOfOrderError, match="'a'"):
        journal.append(events[1])
    journal.append(events[0])
    with pytest.raises(OutOfOrderError, match=r"Opened .* 'a'"):
        journal.append(events[0])
    with pytest.raises(OutOfOrderError, match=r"Finished .* 'a' \(open\)"):
        journal.append(events[4])
    assert [entry.event for entry in journal.events()] == [events[0]]
    assert journal.incident("a") == fold(events[:1])


def test_an_operation_key_is_taken_once_in_the_whole_journal(
    journal: Journal, history: History, diagnosis: Diagnosis
) -> None:
    for event in history("a"):
        journal.append(event)
    other = Diagnosis(diagnosis.cause, Entity.engine("sim-2"), 0.9, 90.0, ())
    journal.append(Opened("b", 200.0, other))
    journal.append(AttemptStarted("b", 200.0, 1, "engine-hung"))
    before = journal.events()
    with pytest.raises(KeyTakenError, match=r"'a/1/drain'.*'a'"):
        journal.append(Intended("b", 201.0, "a/1/drain", "drain", 1, Action("door.drain", other.entity)))
    assert journal.events() == before
    assert journal.incident("b").operations == ()


def test_open_standing_and_recent_incidents_are_told_apart(journal: Journal, history: History, diagnosis: Diagnosis) -> None:
    for event in history("repaired"):
        journal.append(event)
    journal.append(Opened("open", 200.0, diagnosis))
    journal.append(Opened("escalated", 201.0, diagnosis))
    journal.append(Ended("escalated", 210.0, IncidentState.ESCALATED, Ending.GAVE_UP, "call somebody"))
    names = [incident.id for incident in journal.incidents()]
    assert names == ["repaired", "open", "escalated"]
    assert [incident.id for incident in journal.incidents(open_only=True)] == ["open"]
    assert [incident.id for incident in journal.standing()] == ["open", "escalated"]
    assert [incident.id for incident in journal.incidents(since=150.0)] == ["open", "escalated"]
    assert [incident.id for incident in journal.incidents(since=130.0)] == names
    journal.append(Closed("escalated", 300.0, "it stayed away"))
    assert [incident.id for incident in journal.standing()] == ["open"]
    assert [incident.id for incident in journal.incidents(since=300.0)] == ["open", "escalated"]


def test_an_unknown_incident_is_none(journal: Journal) -> None:
    assert journal.incident("nobody") is None
    assert journal.events(incident="nobody") == ()


def test_a_switch_is_off_until_somebody_turns_it_and_every_turn_is_on_record(journal: Journal) -> None:
    assert journal.switch(PAUSE) == Switch(PAUSE)
    turned = journal.set_switch(PAUSE, on=True, by="ada", at=100.0, why="a rollout")
    assert journal.switch(PAUSE) == turned == Switch(PAUSE, on=True, by="ada", at=100.0, why="a rollout")
    journal.set_switch(PAUSE, on=False, by="bob", at=110.0)
    assert journal.switch(PAUSE) == Switch(PAUSE, on=False, by="bob", at=110.0)
    kinds = [(entry.event.kind, entry.event.says) for entry in journal.events()]
    assert kinds == [("switch.on", "ada turned pause on: a rollout"), ("switch.off", "bob turned pause off")]


def test_a_cursor_starts_at_nothing_and_never_goes_back(journal: Journal) -> None:
    assert journal.cursor("slack") == 0
    journal.set_cursor("slack", 7)
    journal.set_cursor("slack", 3)
    journal.set_cursor("log", 2)
    assert (journal.cursor("slack"), journal.cursor("log")) == (7, 2)


def test_the_numbers_of_pods_are_those_kept_last(journal: Journal) -> None:
    assert journal.engine_slots() == {}
    journal.keep_engine_slots({"a": 0, "b": 1, "c": 2})
    journal.keep_engine_slots({"a": 0, "c": 1, "d": 2})
    assert journal.engine_slots() == {"a": 0, "c": 1, "d": 2}


def test_only_the_first_answer_in_time_counts(journal: Journal, diagnosis: Diagnosis) -> None:
    journal.append(Opened("a", 100.0, diagnosis))
    assert journal.approve("a", "ada", 101.0) is Answer.NOT_ASKED
    assert journal.approve("b", "ada", 101.0) is Answer.NO_SUCH_INCIDENT
    journal.append(ApprovalAsked("a", 102.0, expires_at=200.0, says="may I?"))
    assert journal.reject("a", "bob", 199.0) is Answer.ACCEPTED
    assert journal.approve("a", "ada", 199.5) is Answer.ALREADY_ANSWERED
    approval = journal.incident("a").approval
    assert (approval.approved, approval.by) == (False, "bob")


def test_an_answer_after_the_request_expired_or_the_incident_ended_does_not_count(
    journal: Journal, diagnosis: Diagnosis
) -> None:
    journal.append(Opened("a", 100.0, diagnosis))
    journal.append(ApprovalAsked("a", 102.0, expires_at=200.0, says="may I?"))
    assert journal.approve("a", "ada", 200.0) is Answer.EXPIRED
    assert journal.incident("a").approval.approved is None
    journal.append(Ended("a", 201.0, IncidentState.ESCALATED, Ending.GAVE_UP, "nobody answered"))
    assert journal.approve("a", "ada", 202.0) is Answer.ENDED


def test_pruning_forgets_whole_incidents_that_are_over_and_nothing_that_stands(
    journal: Journal, history: History, diagnosis: Diagnosis
) -> None:
    journal.append(Opened("old-but-open", 10.0, diagnosis))
    journal.append(Opened("old-escalated", 11.0, diagnosis))
    journal.append(Ended("old-escalated", 12.0, IncidentState.ESCALATED, Ending.GAVE_UP, "call somebody"))
    journal.note(Note(20.0, "loop.started", "old"))
    for event in history("repaired"):
        journal.append(event)
    last = journal.note(Note(150.0, "loop.started", "new"))
    assert journal.prune(before=130.0) == 0
    assert journal.prune(before=130.5) == 1
    assert [incident.id for incident in journal.incidents()] == ["old-but-open", "old-escalated"]
    assert journal.incident("repaired") is None
    assert journal.incident("old-but-open") is not None
    notes = [entry.event.says for entry in journal.events() if isinstance(entry.event, Note)]
    assert notes == ["new"]
    assert journal.note(Note(151.0, "loop.started", "newer")) > last


def test_sequence_numbers_are_not_used_again_after_everything_was_pruned(journal: Journal, history: History) -> None:
    seqs = [journal.append(event) for event in history("a")]
    journal.set_cursor("slack", seqs[-1])
    assert journal.prune(before=1_000.0) == 1
    assert journal.events() == ()
    seq = journal.append(history("b")[0])
    assert seq > journal.cursor("slack")


def test_symptoms_that_come_and_go_are_remembered_in_the_incident(journal: Journal, diagnosis: Diagnosis) -> None:
    journal.append(Opened("a", 100.0, diagnosis))
    journal.append(SymptomsGone("a", 110.0))
    assert journal.incident("a").gone_since == 110.0
    journal.append(SymptomsBack("a", 111.0))
    assert journal.incident("a").gone_since is None
