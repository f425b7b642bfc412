"""A verb's arguments are those of the method that does it; what does not fit is said before anything runs."""

from types import MappingProxyType

import pytest

from actuators.action import Action, Outcome, OutcomeStatus, VerbSpec
from actuators.binding import bind, methods_of, spec_of, undo_of, verb, verbs_of, with_defaults
from serving.fleet.entity import Entity


class Lamp:
    @verb("lamp.set", summary="Set the lamp", undo="lamp.set", takes_capacity=True)
    def set_lamp(self, target: Entity, *, level: float, colour: str = "white", seconds: int | None = None) -> str:
        return f"{target} {level} {colour} {seconds}"

    @verb("lamp.off", summary="Put it out", undo="lamp.set", recovery=True, covers=frozenset({"lamp.set"}))
    def off(self, target: Entity, *, quick: bool = False) -> str:
        return f"{target} off {quick}"

    def unmarked(self) -> None: ...


SPECS = verbs_of(Lamp)
LAMP = Entity.engine("lamp")


def test_a_spec_is_read_off_the_real_signature() -> None:
    spec = SPECS["lamp.set"]
    assert dict(spec.parameters) == {"level": (float, ...), "colour": (str, "white"), "seconds": (int, None)}
    assert (spec.undo, spec.takes_capacity, spec.recovery) == ("lamp.set", True, False)
    assert SPECS["lamp.off"].covers == {"lamp.set"}
    assert set(SPECS) == {"lamp.set", "lamp.off"}


def test_marked_methods_are_found_bound_to_their_actuator() -> None:
    assert methods_of(Lamp())["lamp.off"](LAMP, quick=True) == "engine/lamp off True"


@pytest.mark.parametrize(
    "arguments",
    [{"level": 1}, {"level": 0.5, "colour": "red"}, {"level": 1, "seconds": None}, {"level": 1, "seconds": 3}],
)
def test_fitting_arguments_have_no_problems(arguments: dict[str, object]) -> None:
    assert bind(SPECS["lamp.set"], arguments) == ()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({}, "lamp.set needs 'level' (a number)"),
        ({"level": 1, "collour": "red"}, "lamp.set does not take 'collour'; it takes level, colour, seconds"),
        ({"level": "high"}, "lamp.set: 'level' must be a number, not 'high'"),
        ({"level": True}, "lamp.set: 'level' must be a number, not True"),
        ({"level": 1, "seconds": 1.5}, "lamp.set: 'seconds' must be a whole number, not 1.5"),
        ({"level": None}, "lamp.set: 'level' must be a number, not None"),
        ({"level": 1, "colour": None}, "lamp.set: 'colour' must be text, not None"),
    ],
)
def test_each_mistake_is_named(arguments: dict[str, object], says: str) -> None:
    assert bind(SPECS["lamp.set"], arguments) == (says,)


def test_all_mistakes_are_found_at_once() -> None:
    assert len(bind(SPECS["lamp.set"], {"lvl": 1, "colour": 3})) == 3


def test_a_verb_without_arguments_says_so() -> None:
    spec = VerbSpec("door.drain", "Drain", parameters=MappingProxyType({}))
    assert bind(spec, {"soon": True}) == ("door.drain does not take 'soon'; it takes no arguments",)


def test_defaults_are_filled_in_and_whole_numbers_become_floats_where_asked() -> None:
    filled = with_defaults(SPECS["lamp.set"], {"level": 2})
    assert filled == {"level": 2.0, "colour": "white", "seconds": None}
    assert isinstance(filled["level"], float)


def test_a_parameter_that_is_no_scalar_is_refused_when_the_spec_is_made() -> None:
    class Bad:
        @verb("bad.act", summary="")
        def act(self, *, names: list[str]) -> None: ...

    with pytest.raises(TypeError, match="parameter 'names'"):
        verbs_of(Bad)


def test_an_unmarked_method_is_no_verb() -> None:
    with pytest.raises(TypeError, match="not marked"):
        spec_of(Lamp().unmarked)


def test_an_undo_takes_its_arguments_from_what_was_before() -> None:
    action = Action("lamp.set", LAMP, {"level": 0.2})
    outcome = Outcome(OutcomeStatus.DONE, "", before={"level": 1.0, "warm": True}, after={"level": 0.2, "warm": True})
    assert undo_of(SPECS, action, outcome) == Action("lamp.set", LAMP, {"level": 1.0})


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome(OutcomeStatus.DONE, "", before={"level": 1.0}, after={"level": 1.0}),
        Outcome(OutcomeStatus.FAILED, "", before={"level": 1.0}, after={"level": 0.5}),
        Outcome(OutcomeStatus.UNKNOWN, "", before={"level": 1.0}, after={"level": 0.5}),
    ],
)
def test_what_changed_nothing_has_nothing_to_take_back(outcome: Outcome) -> None:
    assert undo_of(SPECS, Action("lamp.set", LAMP, {"level": 1.0}), outcome) is None
    assert undo_of(SPECS, Action("lamp.unknown", LAMP), outcome) is None
