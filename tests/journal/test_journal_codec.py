"""Every event comes back from its stored form as it was, and what cannot be understood is said clearly."""

import json
from dataclasses import fields
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actuators.action import Action, Outcome, OutcomeStatus
from agent.decision.decision import Decision, Reason, Verdict
from agent.diagnosis.diagnosis import Diagnosis, Rival
from agent.incident import (
    ApprovalAnswered,
    ApprovalAsked,
    AttemptStarted,
    Closed,
    Decided,
    Ended,
    Ending,
    Finished,
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
)
from agent.journal.codec import decode, encode
from agent.journal.port import DamagedError, Note
from detectors.finding import Evidence, Finding, Symptom
from serving.fleet.entity import Entity, EntityKind

texts = st.text(max_size=12)
numbers = st.floats(allow_nan=False)  # NaN is not equal to itself; it has a test of its own
scalars = st.none() | st.booleans() | st.integers() | numbers | texts
maps = st.dictionaries(texts, scalars, max_size=3)
entities = st.builds(Entity, st.sampled_from(EntityKind), st.text(min_size=1, max_size=12))
evidence = st.builds(Evidence, texts, texts, numbers, st.none() | numbers, texts)
findings = st.builds(
    Finding, st.sampled_from(Symptom), entities, numbers, numbers, st.lists(evidence, max_size=2).map(tuple)
)
rivals = st.builds(Rival, texts, entities, numbers, texts)
several = st.lists(texts, max_size=2).map(tuple)
diagnoses = st.builds(
    Diagnosis,
    texts,
    entities,
    numbers,
    numbers,
    st.lists(findings, max_size=2).map(tuple),
    several,
    several,
    st.lists(rivals, max_size=2).map(tuple),
    st.booleans(),
    st.none() | texts,
)
actions = st.builds(Action, texts, entities, maps)
outcomes = st.builds(Outcome, st.sampled_from(OutcomeStatus), texts, maps, maps, st.booleans())
decisions = st.builds(
    Decision,
    st.sampled_from(Verdict),
    st.sampled_from(Reason),
    texts,
    st.none() | texts,
    st.none() | actions,
)
counts = st.integers()
ends = (st.sampled_from(IncidentState), st.sampled_from(Ending))
EVENTS = {
    Opened: st.builds(Opened, texts, numbers, diagnoses),
    Rediagnosed: st.builds(Rediagnosed, texts, numbers, diagnoses),
    SymptomsGone: st.builds(SymptomsGone, texts, numbers),
    SymptomsBack: st.builds(SymptomsBack, texts, numbers),
    Decided: st.builds(Decided, texts, numbers, decisions),
    AttemptStarted: st.builds(AttemptStarted, texts, numbers, counts, texts),
    Intended: st.builds(Intended, texts, numbers, texts, texts, counts, actions),
    Finished: st.builds(Finished, texts, numbers, texts, outcomes),
    Withdrawn: st.builds(Withdrawn, texts, numbers, texts, texts),
    StepPassed: st.builds(StepPassed, texts, numbers, texts, texts),
    RollbackStarted: st.builds(RollbackStarted, texts, numbers, texts),
    VerificationStarted: st.builds(VerificationStarted, texts, numbers),
    ApprovalAsked: st.builds(ApprovalAsked, texts, numbers, numbers, texts),
    ApprovalAnswered: st.builds(ApprovalAnswered, texts, numbers, st.booleans(), texts),
    Ended: st.builds(Ended, texts, numbers, *ends, texts, texts),
    Closed: st.builds(Closed, texts, numbers, texts),
    Note: st.builds(Note, numbers, texts, texts, maps),
}


def test_every_kind_of_event_is_covered_here() -> None:
    assert set(EVENTS) == {*get_args(IncidentEvent), Note}


@pytest.mark.parametrize("kind", EVENTS, ids=lambda kind: kind.__name__)
def test_an_event_comes_back_as_it_was(kind: type) -> None:
    @given(event=EVENTS[kind])
    def holds(event: IncidentEvent | Note) -> None:
        stored, body = encode(event)
        assert json.loads(body)["type"] == stored
        back = decode(body, "entry 1")
        assert back == event
        assert _types(back) == _types(event)

    holds()


def _types(value: object) -> object:
    """The shape with the type of every leaf, for 1 == True == 1.0."""
    if isinstance(value, tuple):
        return tuple(_types(item) for item in value)
    if hasattr(value, "items"):
        return {name: type(item) for name, item in value.items()}
    if hasattr(value, "__dataclass_fields__"):
        return type(value), tuple(_types(getattr(value, item.name)) for item in fields(value))
    return type(value)


def test_a_number_that_is_not_one_stays_so() -> None:
    finding = Finding(Symptom.STEPS_FROZEN, Entity.engine("a"), float("-inf"), 1.0, (Evidence("s", "says", float("nan")),))
    event = Opened("a", 1.0, Diagnosis("engine.hung", Entity.engine("a"), 1.0, 1.0, (finding,)))
    back = decode(encode(event)[1], "entry 1").diagnosis.explains[0]
    assert back.since == float("-inf")
    assert back.evidence[0].value != back.evidence[0].value


def test_text_that_no_store_takes_is_written_with_a_replacement_character() -> None:
    event = Finished("a", 1.0, "k", Outcome(OutcomeStatus.FAILED, "bad \udcff name", {"path": "x\udcff"}))
    outcome = decode(encode(event)[1], "entry 1").outcome
    assert outcome.detail == "bad � name"
    assert outcome.before == {"path": "x�"}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"colour": "red"}, "opened.colour"),
        ({"version": 2}, "opened.version"),
        ({"type": "exploded"}, "exploded"),
        ({"at": "noon"}, "opened.at.*noon"),
        ({"diagnosis": None}, "opened.diagnosis"),
    ],
)
def test_a_record_that_cannot_be_understood_names_its_place_and_field(change: dict[str, object], says: str) -> None:
    event = Opened("a", 1.0, Diagnosis("engine.hung", Entity.engine("a"), 1.0, 1.0, ()))
    body = json.dumps({**json.loads(encode(event)[1]), **change})
    with pytest.raises(DamagedError, match=f"entry 7 of somewhere.*{says}"):
        decode(body, "entry 7 of somewhere")


def test_a_body_that_is_no_json_is_said_to_be_damaged() -> None:
    with pytest.raises(DamagedError, match="entry 7"):
        decode('{"type": "opened", ', "entry 7")
