"""What every actuator promises: tests for every folder that has benches to run them over.

A folder's conftest.py gives the fixture `bench`, and a test module there takes the tests from here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from actuators.action import Action, Actuator, Outcome, OutcomeStatus
from actuators.binding import undo_of
from actuators.dry_run import DryRun
from serving.fleet.entity import Entity, EntityKind

numbers = count()
Snapshot = Mapping[str, object]


@dataclass
class Bench:
    """An actuator with live targets. `actions` may be applied in any order; `snapshot` reads the world past the actuator.

    `lasting` are the parts of a snapshot that must be as before once everything reversible was undone (all when None),
    `unforeseen` the facts that no rehearsal can know. `refresh` is called before each example; a slow bench
    plays fewer `examples`.
    """

    actuator: Actuator
    actions: tuple[Action, ...]
    snapshot: Callable[[], Snapshot]
    lasting: frozenset[str] | None = None
    unforeseen: frozenset[str] = frozenset()
    refresh: Callable[[], None] = lambda: None
    examples: int = 25

    def remains(self) -> Snapshot:
        """What of the world must last."""
        return {name: value for name, value in self.snapshot().items() if self.lasting is None or name in self.lasting}

    def foreseeable(self, facts: Mapping[str, object]) -> Mapping[str, object]:
        """The facts that a rehearsal must foretell."""
        return {name: value for name, value in facts.items() if name not in self.unforeseen}


def new_key() -> str:
    """A key never used before, with characters that need care in a path."""
    return f"incident {next(numbers)}/drain?#1"


def for_examples(bench: Bench, body: Callable[[st.DataObject], None]) -> None:
    """Run `body` for drawn examples, all on the same bench: each example must leave the world as it found it."""

    @settings(max_examples=bench.examples, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(data=st.data())
    def example(data: st.DataObject) -> None:
        bench.refresh()
        body(data)

    example()


def chosen(bench: Bench, data: st.DataObject, most: int = 6) -> list[Action]:
    return data.draw(st.lists(st.sampled_from(bench.actions), min_size=1, max_size=most))


def take_back(bench: Bench, done: list[tuple[Action, Outcome]]) -> None:
    for action, outcome in reversed(done):
        undo = undo_of(bench.actuator.verbs, action, outcome)
        if undo is not None:
            assert bench.actuator.apply(undo, new_key()).status is OutcomeStatus.DONE


def test_whatever_was_done_and_undone_leaves_the_world_as_it_was(bench: Bench) -> None:
    def body(data: st.DataObject) -> None:
        before = bench.remains()
        done = [(action, bench.actuator.apply(action, new_key())) for action in chosen(bench, data)]
        take_back(bench, done)
        assert bench.remains() == before

    for_examples(bench, body)


def test_the_same_key_changes_the_world_once_whatever_came_between(bench: Bench) -> None:
    def body(data: st.DataObject) -> None:
        done = []
        for action in chosen(bench, data, most=4):
            key = new_key()
            outcome = bench.actuator.apply(action, key)
            done.append((action, outcome))
            other = data.draw(st.sampled_from(bench.actions))
            done.append((other, bench.actuator.apply(other, new_key())))
            if outcome.status is OutcomeStatus.DONE:
                world = bench.snapshot()
                assert bench.actuator.apply(action, key).status is OutcomeStatus.DONE
                assert bench.snapshot() == world
        take_back(bench, done)

    for_examples(bench, body)


def test_a_rehearsal_changes_nothing_and_foretells_the_act(bench: Bench) -> None:
    def body(data: st.DataObject) -> None:
        done = []
        for action in chosen(bench, data):
            world = bench.snapshot()
            foretold = bench.actuator.rehearse(action)
            dry = DryRun(bench.actuator).apply(action, new_key())
            assert bench.snapshot() == world
            outcome = bench.actuator.apply(action, new_key())
            done.append((action, outcome))
            for told in (foretold, dry):
                assert (told.status, told.permanent) == (outcome.status, outcome.permanent)
                if not bench.actuator.verbs[action.verb].harmless:
                    assert bench.foreseeable(told.before) == bench.foreseeable(outcome.before)
                    assert bench.foreseeable(told.after) == bench.foreseeable(outcome.after)
        take_back(bench, done)

    for_examples(bench, body)


def test_a_look_up_tells_whether_it_happened(bench: Bench) -> None:
    def body(data: st.DataObject) -> None:
        done = []
        for action in chosen(bench, data):
            key = new_key()
            outcome = bench.actuator.apply(action, key)
            done.append((action, outcome))
            assert bench.actuator.look_up(action, key).status is outcome.status
        take_back(bench, done)

    for_examples(bench, body)


def test_what_does_not_fit_fails_for_good(bench: Bench) -> None:
    some = bench.actions[0]
    for action in (
        Action("no.such_verb", some.target),
        Action(some.verb, some.target, {"no such argument": 1}),
        Action(some.verb, Entity(EntityKind.NODE, "a-node-that-no-actuator-here-knows")),
    ):
        for outcome in (bench.actuator.rehearse(action), bench.actuator.apply(action, new_key())):
            if action.target.kind is EntityKind.NODE and "scripted" in type(bench.actuator).__name__.lower():
                continue  # a scripted world has no map: any target can be made up
            assert outcome.status is OutcomeStatus.FAILED
            assert outcome.permanent
            assert outcome.detail


def test_every_undo_is_a_verb_of_the_same_actuator(bench: Bench) -> None:
    verbs = bench.actuator.verbs
    assert {spec.undo for spec in verbs.values()} - {None} <= set(verbs)
    assert all(spec.verb == name and spec.verb.count(".") == 1 for name, spec in verbs.items())
