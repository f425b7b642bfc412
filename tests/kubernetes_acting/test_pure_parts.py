"""The rules without a cluster: holds, ledger, patches, plans on node objects."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actuators.kubernetes.cordoning import (
    CORDONED_BY,
    cordon,
    cordon_facts,
    parsed_taint,
    taint,
    taint_text,
    uncordon,
    untaint,
)
from actuators.kubernetes.holds import incident_of, released, taken
from actuators.kubernetes.ledger import KEPT, OPERATIONS, LedgerUnreadableError, Record, entered, record_of, records
from actuators.kubernetes.merge_patch import difference, merged
from actuators.kubernetes.object_change import Change, Refused

Json = dict[str, Any]
KEYS = st.builds("{}/{}/{}".format, st.sampled_from("abc"), st.integers(1, 3), st.sampled_from(("cordon", "undo")))
VALUES = st.recursive(
    st.booleans() | st.integers() | st.text(max_size=3) | st.lists(st.integers(), max_size=2),
    lambda inner: st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text(max_size=2), VALUES, max_size=4)


def node(**spec: object) -> Json:
    return {"metadata": {"name": "n"}, "spec": spec}


def wanted(planned: Change | Refused) -> Json:
    assert isinstance(planned, Change)
    return dict(planned.wanted)


@given(OBJECTS, OBJECTS)
def test_a_merge_patch_makes_the_one_of_the_other(old: Json, new: Json) -> None:
    assert merged(old, difference(old, new)) == new
    assert difference(new, new) == {}


@given(st.lists(KEYS, max_size=6))
def test_each_incident_holds_once_and_its_release_lets_nobody_else_go(keys: list[str]) -> None:
    held: tuple[str, ...] = ()
    for key in keys:
        held = taken(held, key)
    assert {incident_of(one) for one in held} == {incident_of(one) for one in keys}
    assert len(held) == len({incident_of(one) for one in keys})
    for key in held:
        left = released(held, f"{incident_of(key)}/9/undo")
        assert [one for one in held if one not in left] == [key]


@given(st.lists(st.tuples(st.booleans(), KEYS), max_size=8))
def test_a_node_is_cordoned_exactly_as_long_as_somebody_holds_it(orders: list[tuple[bool, str]]) -> None:
    live, holding = node(), set[str]()
    for close, key in orders:
        live = wanted((cordon if close else uncordon)(live, key))
        if close:
            holding.add(incident_of(key))
        elif incident_of(key) in holding or holding:
            holding.discard(incident_of(key) if incident_of(key) in holding else _newest(live, holding))
        assert bool(live["spec"].get("unschedulable")) == bool(holding)
        assert cordon_facts(live)["holds"] == len(holding)


def _newest(live: Json, holding: set[str]) -> str:
    """The incident that is gone from the node."""
    text = live["metadata"]["annotations"].get(CORDONED_BY, "")
    (gone,) = holding - {incident_of(line) for line in text.splitlines()}
    return gone


def test_what_a_person_cordoned_stays_theirs() -> None:
    theirs = node(unschedulable=True)
    planned = cordon(theirs, "a/1/cordon")
    assert isinstance(planned, Change)
    assert planned.before == planned.after
    assert planned.wanted == theirs
    refused = uncordon(theirs, "a/1/undo")
    assert isinstance(refused, Refused)
    assert refused.permanent


def test_a_cordon_that_somebody_else_renewed_is_theirs() -> None:
    ours = wanted(cordon(node(), "a/1/cordon"))
    manager = {"manager": "kubectl", "fieldsV1": {"f:spec": {"f:unschedulable": {}}}}
    ours["metadata"]["managedFields"] = [manager]
    assert isinstance(uncordon(ours, "a/1/undo"), Refused)
    ours["metadata"]["managedFields"] = [{**manager, "manager": "fleetwarden"}]
    assert isinstance(uncordon(ours, "a/1/undo"), Change)


def test_who_uncordons_by_hand_is_not_overruled_by_the_same_incident() -> None:
    by_hand = wanted(cordon(node(), "a/1/cordon"))
    del by_hand["spec"]["unschedulable"]
    assert isinstance(cordon(by_hand, "a/2/cordon"), Refused)
    assert wanted(cordon(by_hand, "b/1/cordon"))["spec"]["unschedulable"]
    undone = uncordon(by_hand, "a/1/undo")
    assert isinstance(undone, Change)
    assert undone.before == undone.after


def test_a_node_that_asks_to_be_left_alone_is() -> None:
    marked = node()
    marked["metadata"]["annotations"] = {"fleetwarden.dev/opt-out": "true"}
    for plan in (cordon, uncordon):
        refused = plan(marked, "a/1/cordon")
        assert isinstance(refused, Refused)
        assert refused.permanent


def test_taints_are_held_like_cordons_and_others_taints_stay() -> None:
    ours, theirs = parsed_taint("unwell=yes:NoSchedule"), {"key": "gpu", "effect": "NoSchedule"}
    live = wanted(taint(node(taints=[theirs]), "a/1/t", ours))
    live = wanted(taint(live, "b/1/t", ours))
    assert [taint_text(one) for one in live["spec"]["taints"]] == ["gpu:NoSchedule", "unwell=yes:NoSchedule"]
    live = wanted(untaint(live, "a/1/u", ours))
    assert ours in live["spec"]["taints"]
    live = wanted(untaint(live, "b/1/u", ours))
    assert live["spec"]["taints"] == [theirs]
    assert isinstance(untaint(live, "b/1/u", theirs), Refused)


@pytest.mark.parametrize("text", ["", "key", "key:Sometimes", ":NoSchedule", "key:NoExecute"])
def test_taints_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"taint|effect"):
        parsed_taint(text)


@given(st.lists(KEYS, max_size=40))
def test_the_ledger_keeps_the_newest_and_each_key_once(keys: list[str]) -> None:
    thing: Json = {"metadata": {}}
    for number, key in enumerate(keys):
        record = Record(key, "node.cordon", "done", float(number), 0, {"a": None}, {"a": True})
        thing = {"metadata": {"annotations": {OPERATIONS: entered(thing, record)}}}
        assert record_of(thing, key) == record
    kept = [one.key for one in records(thing)]
    assert len(kept) == len(set(kept)) <= KEPT


@pytest.mark.parametrize("text", ["{", "[1]", '[{"key": "a"}]', "7"])
def test_a_ledger_that_cannot_be_read_stops_everything(text: str) -> None:
    with pytest.raises(LedgerUnreadableError, match="remove it"):
        records({"metadata": {"annotations": {OPERATIONS: text}}})
