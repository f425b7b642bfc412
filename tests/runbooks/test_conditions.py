"""Conditions are true, false or unreadable, and unreadable is never taken for either."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbooks.conditions import GOALS, MEASURES, VARIABLES, Condition, ConditionError, Truth

FACTS: dict[str, Any] = {
    "score": 0.8,
    "attempt": 1,
    "ready": True,
    "target_state": "serving",
    "healthy_peers": 3.0,
    "total_peers": 3.0,
    "roomy_peers": 3.0,
    "hottest_expert": 1.0,
    "signal": {"door.in_flight": 0.0, "engine.waiting": 2.0},
    "slo": {"ttft": 0.2, "requests": 20.0},
    "goal": {"ttft": 2.0},
    "outcomes": {"probe": "failed"},
}


def holds(text: str, **facts: Any) -> Any:
    return Condition.compile(text, "test").holds(FACTS | facts)


@pytest.mark.parametrize(
    ("text", "truth"),
    [
        ('signal["door.in_flight"] == 0.0', Truth.TRUE),
        ("signal['door.in_flight'] > 0.0", Truth.FALSE),
        ('ready && outcomes["probe"] == "failed" && target_state == "serving"', Truth.TRUE),
        ("attempt < 2 && healthy_peers >= total_peers", Truth.TRUE),
        ('slo["ttft"] <= goal["ttft"]', Truth.TRUE),
        ('signal["engine.kv_usage"] < 0.5', Truth.UNREADABLE),
        ('signal["engine.kv_usage"] >= 0.5', Truth.UNREADABLE),
        ('!(signal["engine.kv_usage"] < 0.5)', Truth.UNREADABLE),
        ('ready && signal["engine.kv_usage"] < 0.5', Truth.UNREADABLE),
        ('!ready && signal["engine.kv_usage"] < 0.5', Truth.FALSE),
        ('ready || signal["engine.kv_usage"] < 0.5', Truth.TRUE),
        ("1 / 0 == 1", Truth.UNREADABLE),
    ],
)
def test_what_a_condition_comes_to(text: str, truth: Truth) -> None:
    assert holds(text).truth is truth


def test_nan_and_what_is_left_out_cannot_be_read() -> None:
    assert holds('signal["x"] < 1.0', signal={"x": math.nan}).truth is Truth.UNREADABLE
    assert holds("score < 1.0", score=math.nan).truth is Truth.UNREADABLE
    facts = {name: fact for name, fact in FACTS.items() if name != "ready"}
    assert Condition.compile("ready", "test").holds(facts).truth is Truth.UNREADABLE
    assert Condition.compile("!ready", "test").holds({}).truth is Truth.UNREADABLE


def test_the_answer_tells_the_numbers_it_read() -> None:
    assert holds('signal["engine.waiting"] <= 1.0').why == (
        '`signal["engine.waiting"] <= 1.0` is false (signal["engine.waiting"] = 2)'
    )
    assert 'signal["x"] could not be read' in holds('signal["x"] <= 1.0').why


def test_a_fact_of_the_wrong_type_is_unreadable_and_does_not_raise() -> None:
    assert holds("ready", ready=1).truth is Truth.UNREADABLE


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("redy", "there is no 'redy'; did you mean ready?"),
        ("score > 1", "write 1.0, not 1"),
        ("score", "must be true or false, but is double"),
        ("signal", "signal is read by one key at a time"),
        ('"x" in signal', "signal is read by one key at a time"),
        ("size(outcomes) == 0", "outcomes is read by one key at a time"),
        ("signal.all(n, signal[n] > 0.0)", "signal is read by one key at a time"),
        ("signal[target_state] > 0.0", "signal is read by one key at a time"),
        ('slo["speed"] > 0.0', "slo has no 'speed'"),
        ('goal["tttf"] > 0.0', "did you mean ttft?"),
        ("ready &&", "Syntax error"),
    ],
)
def test_a_condition_that_cannot_work_is_refused_when_it_is_compiled(text: str, what: str) -> None:
    with pytest.raises(ConditionError) as refused:
        Condition.compile(text, "guards.0")
    assert what in str(refused.value)
    assert str(refused.value).startswith("guards.0: line 1, column ")


def test_a_mistake_is_placed_by_line_and_column() -> None:
    with pytest.raises(ConditionError) as refused:
        Condition.compile('ready &&\n  slo["speed"] > 0.0', "test")
    assert (refused.value.line, refused.value.column) == (2, 3)


def test_words_inside_text_are_not_taken_for_names() -> None:
    assert Condition.compile('target_state == "signal slo"', "test").reads == (("target_state", None),)


def test_only_given_signals_and_steps_may_be_asked_for() -> None:
    with pytest.raises(ConditionError, match="gauges only"):
        Condition.compile('signal["b"] > 0.0', "test", signals=["a"])
    with pytest.raises(ConditionError, match="did you mean probe"):
        Condition.compile('outcomes["prob"] == "done"', "test", steps=["probe"])


LEAVES = st.sampled_from(
    [
        ("ready", ("ready", None)),
        ('signal["a"] > 0.5', ("signal", "a")),
        ('slo["ttft"] < 0.5', ("slo", "ttft")),
        ('outcomes["s"] == "done"', ("outcomes", "s")),
        ("score >= 0.5", ("score", None)),
    ]
)
TREES = st.recursive(
    LEAVES.map(lambda leaf: (leaf[0], {leaf[1]})),
    lambda inner: st.one_of(
        inner.map(lambda one: (f"!({one[0]})", one[1])),
        st.tuples(inner, st.sampled_from(["&&", "||"]), inner).map(
            lambda both: (f"({both[0][0]}) {both[1]} ({both[2][0]})", both[0][1] | both[2][1])
        ),
    ),
    max_leaves=6,
)
VALUES = {("ready", None): [True, False], ("score", None): [0.2, 0.9]}


@given(TREES, st.data())
def test_a_condition_is_told_only_when_nothing_that_is_missing_could_change_it(tree: Any, data: st.DataObject) -> None:
    text, reads = tree
    condition = Condition.compile(text, "test")
    missing = data.draw(st.sets(st.sampled_from(sorted(reads, key=str))))
    present: dict[str, Any] = {"signal": {}, "slo": {}, "outcomes": {}}
    absent = []
    for read in sorted(reads, key=str):
        values = VALUES.get(read, ["done", "failed"] if read[0] == "outcomes" else [0.2, 0.9])
        if read in missing:
            absent.append((read, values))
        else:
            put(present, read, data.draw(st.sampled_from(values)))
    answer = condition.holds(present)
    if answer.truth is Truth.UNREADABLE:
        assert absent
        return
    for read, values in absent:
        put(present, read, data.draw(st.sampled_from(values)))
    assert condition.holds(present).truth is answer.truth


def put(facts: dict[str, Any], read: tuple[str, str | None], value: Any) -> None:
    name, key = read
    if key is None:
        facts[name] = value
    else:
        facts[name] = facts[name] | {key: value}


def test_every_name_measure_and_goal_says_what_it_means() -> None:
    assert all(variable.means for variable in VARIABLES.values())
    assert VARIABLES["slo"].keys == frozenset(MEASURES)
    assert VARIABLES["goal"].keys == frozenset(GOALS)


def test_every_measure_and_goal_can_really_be_taken() -> None:
    from agent.decision import slo  # noqa: PLC0415 - the one place where the room above is asked whether it keeps the list

    assert set(slo.MEASURES) == set(MEASURES)
    assert set(slo.GOALS) == set(GOALS)
