"""The scripted actuator over a world in memory, the registry and dry run."""

import pytest

from actuators.action import Action, Outcome, OutcomeStatus, VerbSpec
from actuators.dry_run import DryRun
from actuators.registry import ActuatorRegistry
from actuators.scripted import Cue, ScriptedActuator, ScriptedCrash, ScriptedVerb, ScriptedWorld
from serving.fleet.entity import Entity

SIM = Entity.engine("sim-0")
DRAIN = ScriptedVerb(VerbSpec("door.drain", "", {}, undo="door.undrain", takes_capacity=True), {"drained": True})
UNDRAIN = ScriptedVerb(VerbSpec("door.undrain", "", {}, recovery=True), {"drained": False})
WEIGHT = ScriptedVerb(VerbSpec("door.set_weight", "", {"weight": (float, ...)}, undo="door.set_weight"))
CANARY = ScriptedVerb(VerbSpec("engine.canary", "", {"deadline_s": (float, 5.0)}, harmless=True))
RESUME = ScriptedVerb(VerbSpec("engine.resume", "", {}), {"paused": False}, needs={"paused": True})


@pytest.fixture
def world() -> ScriptedWorld:
    return ScriptedWorld({SIM: {"drained": False, "weight": 1.0}})


@pytest.fixture
def actuator(world: ScriptedWorld) -> ScriptedActuator:
    return ScriptedActuator([DRAIN, UNDRAIN, WEIGHT, CANARY, RESUME], world)


def act(actuator: ScriptedActuator, verb: str, key: str = "k", **arguments: float) -> OutcomeStatus:
    return actuator.apply(Action(verb, SIM, arguments), key).status


def test_an_act_changes_the_world_once_a_key(actuator: ScriptedActuator, world: ScriptedWorld) -> None:
    assert act(actuator, "door.drain") is OutcomeStatus.DONE
    assert act(actuator, "door.drain") is OutcomeStatus.DONE
    assert (world.effects["k"], world.calls["k"]) == (1, 2)
    assert world.facts(SIM)["drained"] is True


def test_arguments_show_in_the_state(actuator: ScriptedActuator, world: ScriptedWorld) -> None:
    act(actuator, "door.set_weight", weight=0.25)
    assert world.facts(SIM)["weight"] == 0.25


@pytest.mark.parametrize(
    ("cue", "status", "effects"),
    [
        (Cue.DONE, OutcomeStatus.DONE, 1),
        (Cue.FAIL, OutcomeStatus.FAILED, 0),
        (Cue.FAIL_FOR_GOOD, OutcomeStatus.FAILED, 0),
        (Cue.LOST_ANSWER, OutcomeStatus.UNKNOWN, 1),
        (Cue.LOST_REQUEST, OutcomeStatus.UNKNOWN, 0),
    ],
)
def test_each_cue_plays_once_and_a_look_up_tells_the_truth(
    actuator: ScriptedActuator, world: ScriptedWorld, cue: Cue, status: OutcomeStatus, effects: int
) -> None:
    world.cue("door.drain", cue)
    assert act(actuator, "door.drain") is status
    assert world.effects["k"] == effects
    looked_up = actuator.look_up(Action("door.drain", SIM), "k").status
    assert looked_up is (OutcomeStatus.DONE if effects else OutcomeStatus.FAILED)
    assert act(actuator, "door.drain", "later") is OutcomeStatus.DONE


@pytest.mark.parametrize(("cue", "effects"), [(Cue.CRASH_BEFORE, 0), (Cue.CRASH_AFTER, 1)])
def test_a_crash_passes_every_handler_and_the_world_survives_it(world: ScriptedWorld, cue: Cue, effects: int) -> None:
    world.cue("door.drain", cue)
    with pytest.raises(ScriptedCrash):
        ActuatorRegistry([ScriptedActuator([DRAIN, UNDRAIN], world)]).apply(Action("door.drain", SIM), "k")
    assert world.effects["k"] == effects


def test_a_blocked_look_up_leaves_the_outcome_unknown(actuator: ScriptedActuator, world: ScriptedWorld) -> None:
    world.lookups_blocked = True
    assert actuator.look_up(Action("door.drain", SIM), "k").status is OutcomeStatus.UNKNOWN


def test_an_unmet_need_fails_for_good_in_rehearsal_and_act(actuator: ScriptedActuator) -> None:
    for outcome in (actuator.rehearse(Action("engine.resume", SIM)), actuator.apply(Action("engine.resume", SIM), "k")):
        assert outcome.status is OutcomeStatus.FAILED
        assert outcome.permanent


def test_a_harmless_verb_changes_no_state(actuator: ScriptedActuator, world: ScriptedWorld) -> None:
    before = world.facts(SIM)
    assert act(actuator, "engine.canary", deadline_s=1) is OutcomeStatus.DONE
    assert world.facts(SIM) == before


def test_dry_run_shows_from_and_to_and_changes_nothing(actuator: ScriptedActuator, world: ScriptedWorld) -> None:
    outcome = DryRun(actuator).apply(Action("door.drain", SIM), "k")
    assert outcome.status is OutcomeStatus.DONE
    assert outcome.detail.startswith("dry run: ")
    assert (outcome.before["drained"], outcome.after["drained"]) == (False, True)
    assert not world.effects
    assert DryRun(actuator).look_up(Action("door.drain", SIM), "k").status is OutcomeStatus.FAILED


def test_dry_run_fails_where_the_act_would(actuator: ScriptedActuator, world: ScriptedWorld) -> None:
    world.cue("door.drain", Cue.FAIL)
    assert DryRun(actuator).apply(Action("door.drain", SIM), "k").status is OutcomeStatus.FAILED
    assert act(actuator, "door.drain") is OutcomeStatus.FAILED


def test_dry_run_really_probes_because_a_probe_is_harmless(actuator: ScriptedActuator, world: ScriptedWorld) -> None:
    assert DryRun(actuator).apply(Action("engine.canary", SIM), "probe").status is OutcomeStatus.DONE
    assert world.effects["probe"] == 1


def test_the_registry_sends_each_verb_to_its_owner(actuator: ScriptedActuator) -> None:
    registry = ActuatorRegistry([actuator])
    assert set(registry.verbs) == {"door.drain", "door.undrain", "door.set_weight", "engine.canary", "engine.resume"}
    assert registry.apply(Action("door.drain", SIM), "k").status is OutcomeStatus.DONE
    assert registry.owner_of("door.drain") is actuator
    assert registry.owner_of("door.slam") is None


def test_the_registry_refuses_unknown_verbs_and_wrong_arguments(actuator: ScriptedActuator) -> None:
    registry = ActuatorRegistry([actuator])
    unknown = registry.apply(Action("door.slam", SIM), "k")
    assert (unknown.status, unknown.permanent) == (OutcomeStatus.FAILED, True)
    assert "door.drain" in unknown.detail
    assert "needs 'weight'" in registry.rehearse(Action("door.set_weight", SIM)).detail


def test_two_owners_of_one_verb_or_an_undo_without_owner_are_refused(
    actuator: ScriptedActuator, world: ScriptedWorld
) -> None:
    with pytest.raises(ValueError, match="offered by both"):
        ActuatorRegistry([actuator, ScriptedActuator([UNDRAIN], world)])
    with pytest.raises(ValueError, match="no actuator offers"):
        ActuatorRegistry([ScriptedActuator([DRAIN], world)])


def test_an_actuator_that_raises_becomes_an_outcome() -> None:
    class Broken(ScriptedActuator):
        def rehearse(self, action: Action) -> Outcome:
            raise RuntimeError(action.verb)

        def apply(self, action: Action, key: str) -> Outcome:
            raise RuntimeError(action.verb, key)

        look_up = apply

    registry, action = ActuatorRegistry([Broken([UNDRAIN], ScriptedWorld())]), Action("door.undrain", SIM)
    assert registry.rehearse(action).status is OutcomeStatus.FAILED
    assert registry.apply(action, "k").status is OutcomeStatus.UNKNOWN
    assert registry.look_up(action, "k").status is OutcomeStatus.UNKNOWN
