"""Slots: an engine of a Deployment keeps its number while pods come and go."""

from hypothesis import given, settings
from hypothesis import strategies as st

from serving.kubernetes.slots import Holder, Slots, assign

settings.register_profile("noisy machines", deadline=None)
settings.load_profile("noisy machines")

uids = st.text("abcdef", min_size=1, max_size=2)
holders = st.lists(
    st.builds(Holder, created=st.integers(0, 5).map(float), uid=uids, ending=st.booleans()),
    max_size=8,
    unique_by=lambda one: one.uid,
)


def living(*names: str) -> list[Holder]:
    return [Holder(float(place), name) for place, name in enumerate(names)]


def test_the_oldest_pods_have_the_lowest_numbers_at_first() -> None:
    assert assign({}, living("a", "b", "c"), 3) == Slots({"a": 0, "b": 1, "c": 2})


def test_a_replacement_takes_the_number_of_the_pod_that_went() -> None:
    before = assign({}, living("a", "b", "c"), 3).numbers
    assert assign(before, living("a", "c", "new"), 3).numbers == {"a": 0, "c": 2, "new": 1}


def test_a_pod_that_ends_keeps_its_number_until_another_takes_it() -> None:
    before = {"a": 0, "b": 1}
    going = [Holder(0, "a"), Holder(1, "b", ending=True)]
    assert assign(before, going, 2) == Slots({"a": 0, "b": 1})
    assert assign(before, [*going, Holder(2, "new")], 2) == Slots({"a": 0, "new": 1})


def test_what_is_wanted_and_missing_is_vacant() -> None:
    assert assign({"a": 0, "c": 2}, [Holder(0, "a"), Holder(2, "c")], 4) == Slots({"a": 0, "c": 2}, vacant=(1, 3))
    assert assign({}, [], 2) == Slots({}, vacant=(0, 1))


def test_scaled_in_slots_are_gone() -> None:
    assert assign({"a": 0, "b": 1, "c": 2}, [Holder(0, "a"), Holder(2, "c")], 2) == Slots({"a": 0, "c": 2})


def test_a_rollout_with_a_surge_walks_through_all_slots_and_ends_with_as_many() -> None:
    numbers = dict(assign({}, living("a", "b", "c"), 3).numbers)
    pods = living("a", "b", "c")
    for place, new in enumerate(("x", "y", "z")):
        pods.append(Holder(10.0 + place, new))
        numbers = dict(assign(numbers, pods, 3).numbers)
        pods.pop(0)
        numbers = dict(assign(numbers, pods, 3).numbers)
    assert sorted(numbers.values()) == [0, 1, 3]  # the first came before any place was free


@given(st.dictionaries(uids, st.integers(-1, 9)), holders, st.none() | st.integers(0, 8))
def test_whatever_is_remembered_numbers_differ_and_every_living_pod_has_one(
    remembered: dict[str, int], pods: list[Holder], wanted: int | None
) -> None:
    slots = assign(remembered, pods, wanted)
    taken = [*slots.numbers.values(), *slots.vacant]
    assert len(set(taken)) == len(taken)
    assert all(number >= 0 for number in taken)
    assert {pod.uid for pod in pods if not pod.ending} <= slots.numbers.keys() <= {pod.uid for pod in pods}
    assert len(taken) >= (wanted or 0)


@given(st.dictionaries(uids, st.integers(0, 9)), holders, st.none() | st.integers(0, 8))
def test_asked_again_nothing_changes(remembered: dict[str, int], pods: list[Holder], wanted: int | None) -> None:
    once = assign(remembered, pods, wanted)
    assert assign(once.numbers, pods, wanted) == once
