"""A trial's record held against what was really made, on records made by hand."""

import pytest
from made_records import BEGAN, Story, record

from actuators.action import VerbSpec
from agent.scoreboard.judge import Judgement, Made, judge
from agent.scoreboard.trial import FaultSpec
from agent.scoreboard.truth import Allowed, Expected, reach
from serving.fleet.entity import Entity, EntityKind
from serving.fleet.topology import EngineFacts, Relation, Topology

NODES = [Entity(EntityKind.NODE, f"n{number}") for number in range(2)]
GPUS = [Entity(EntityKind.GPU, f"n{number // 2}:{number % 2}") for number in range(4)]
ENGINES = [Entity.engine(f"e{number}") for number in range(4)]
TOPOLOGY = Topology(
    [EngineFacts(engine.name, "http://e", "m") for engine in ENGINES],
    [
        *((engine, Relation.RUNS_ON, gpu) for engine, gpu in zip(ENGINES, GPUS, strict=True)),
        *((engine, Relation.RUNS_ON, NODES[number // 2]) for number, engine in enumerate(ENGINES)),
        *((gpu, Relation.MEMBER_OF, NODES[number // 2]) for number, gpu in enumerate(GPUS)),
    ],
)
VERBS = {
    "engine.canary": VerbSpec("engine.canary", "", {}, harmless=True),
    "door.drain": VerbSpec("door.drain", "", {}, undo="door.undrain", takes_capacity=True),
    "door.undrain": VerbSpec("door.undrain", "", {}, recovery=True),
    "door.refresh": VerbSpec("door.refresh", "", {}, recovery=True),
    "door.set_weight": VerbSpec("door.set_weight", "", {}, undo="door.set_weight"),
    "process.restart": VerbSpec("process.restart", "", {}, takes_capacity=True),
    "node.reboot": VerbSpec("node.reboot", "", {}, takes_capacity=True),
}
HUNG = Expected(
    causes=("engine.hung",),
    on=(EntityKind.ENGINE,),
    first=("door.drain",),
    later=("process.restart",),
    also=("overload",),
    because="a test",
)
FAULTED = Expected(
    causes=("gpu.faulted",), on=(EntityKind.GPU,), first=("door.drain",), later=("node.reboot",), because="a test"
)
SURGE = Expected(causes=("overload",), on=(EntityKind.MODEL,), because="people are told; no engine is at fault")
QUIET = Allowed(causes=("clients.leaving",), because="a test")


def _made(
    expected: Expected | Allowed, target: Entity, at: float = 10.0, cured: float | None = None, name: str = "x"
) -> Made:
    spec = FaultSpec(name, at, 300.0, 0.0)
    cured_at = None if cured is None else BEGAN + cured
    return Made(spec, (target,), reach(TOPOLOGY, target), BEGAN + at, cured_at, expected)


def _judged(made: list[Made], *stories: Story) -> Judgement:
    return judge(record(*stories), made, VERBS, ["door.drain"])


def test_a_fault_that_is_found_named_and_repaired_has_all_its_times_from_its_beginning() -> None:
    story = Story("engine/e0", 20.0, "engine.hung")
    story.acts(21.0, "engine.canary", "door.drain", "process.restart", "door.undrain", took=2.0).resolved(100.0)
    (fault,) = _judged([_made(HUNG, ENGINES[0], cured=25.0)], story).faults
    assert (fault.detected_after, fault.isolated_after, fault.recovered_after) == (10.0, 15.0, 90.0)
    assert (fault.cause, fault.right_cause, fault.right_action) == ("engine.hung", True, True)
    assert fault.first_action == "door.drain on engine/e0"
    assert fault.cured


def test_a_fault_of_which_nothing_is_said_is_missed_and_nothing_about_it_is_right() -> None:
    (fault,) = _judged([_made(HUNG, ENGINES[0])]).faults
    assert not fault.detected
    assert not fault.right_cause
    assert not fault.right_action
    assert fault.recovered_after is None


def test_an_incident_without_enough_evidence_finds_nothing_until_it_has_enough() -> None:
    thin = Story("engine/e0", 12.0, "engine.slow", enough=False)
    assert not _judged([_made(HUNG, ENGINES[0])], thin).faults[0].detected
    thin.then(30.0, "engine.hung")
    (fault,) = _judged([_made(HUNG, ENGINES[0])], thin).faults
    assert (fault.detected_after, fault.right_cause) == (20.0, True)


def test_only_the_first_diagnosis_with_enough_evidence_counts_as_the_cause() -> None:
    story = Story("engine/e0", 12.0, "engine.slow").then(20.0, "engine.hung")
    (fault,) = _judged([_made(HUNG, ENGINES[0])], story).faults
    assert (fault.cause, fault.right_cause) == ("engine.slow", False)


def test_the_right_cause_on_a_neighbour_is_a_false_incident_and_no_find() -> None:
    judged = _judged([_made(HUNG, ENGINES[0])], Story("engine/e1", 20.0, "engine.hung"))
    assert judged.false_incidents == ("engine.hung on engine/e1",)
    assert not judged.faults[0].detected


def test_a_cause_on_something_that_the_fault_stands_on_is_about_it_though_not_right() -> None:
    judged = _judged([_made(HUNG, ENGINES[0])], Story("node/n0", 20.0, "node.unhealthy"))
    assert judged.false_incidents == ()
    assert judged.faults[0].detected
    assert not judged.faults[0].right_cause


def test_a_fault_of_a_gpu_must_be_found_on_that_very_gpu() -> None:
    assert _judged([_made(FAULTED, GPUS[0])], Story("gpu/n0:0", 20.0, "gpu.faulted")).faults[0].right_cause
    other = _judged([_made(FAULTED, GPUS[0])], Story("gpu/n0:1", 20.0, "gpu.faulted"))
    assert other.false_incidents == ("gpu.faulted on gpu/n0:1",)


def test_what_is_said_before_the_fault_began_is_false() -> None:
    judged = _judged([_made(HUNG, ENGINES[0], at=50.0)], Story("engine/e0", 20.0, "engine.hung"))
    assert judged.false_incidents == ("engine.hung on engine/e0",)
    assert not judged.faults[0].detected


def test_an_honest_consequence_elsewhere_is_neither_right_nor_false() -> None:
    judged = _judged([_made(HUNG, ENGINES[0])], Story("engine/e3", 20.0, "overload"))
    assert judged.false_incidents == ()
    assert not judged.faults[0].detected


def test_a_restart_of_a_healthy_engine_is_a_false_and_a_destructive_action() -> None:
    judged = _judged([_made(HUNG, ENGINES[0])], Story("engine/e1", 20.0, "engine.hung").acts(21.0, "process.restart"))
    assert judged.false_actions == judged.destructive_actions == ("process.restart on engine/e1",)


def test_an_action_that_can_be_taken_back_and_takes_nothing_is_false_but_not_destructive() -> None:
    judged = _judged([_made(HUNG, ENGINES[0])], Story("engine/e1", 20.0, "engine.slow").acts(21.0, "door.set_weight"))
    assert judged.false_actions == ("door.set_weight on engine/e1",)
    assert judged.destructive_actions == ()


def test_the_wrong_kind_of_action_on_what_is_faulty_is_destructive_too() -> None:
    story = Story("engine/e0", 20.0, "engine.hung").acts(21.0, "node.reboot", on="node/n0")
    judged = _judged([_made(HUNG, ENGINES[0])], story)
    assert judged.destructive_actions == ("node.reboot on node/n0",)
    assert not judged.faults[0].right_action


def test_the_node_of_a_broken_gpu_may_be_booted_but_no_other() -> None:
    right = Story("gpu/n0:0", 20.0, "gpu.faulted").acts(21.0, "node.reboot", on="node/n0")
    assert _judged([_made(FAULTED, GPUS[0])], right).destructive_actions == ()
    wrong = Story("gpu/n0:0", 20.0, "gpu.faulted").acts(21.0, "node.reboot", on="node/n1")
    assert _judged([_made(FAULTED, GPUS[0])], wrong).destructive_actions == ("node.reboot on node/n1",)


def test_where_people_are_to_be_told_doing_nothing_is_right_and_doing_anything_is_not() -> None:
    target = Entity(EntityKind.MODEL, "m")
    told = _judged([_made(SURGE, target)], Story("model/m", 20.0, "overload"))
    assert told.faults[0].right_action
    acted = _judged([_made(SURGE, target)], Story("engine/e0", 20.0, "engine.slow").acts(21.0, "process.restart"))
    assert not acted.faults[0].right_action
    assert acted.destructive_actions == ("process.restart on engine/e0",)


def test_what_gives_capacity_back_is_never_false_and_right_where_the_fault_calls_for_it() -> None:
    door = Expected(
        causes=("gateway.broken",), on=(EntityKind.MODEL,), first=("door.refresh",), because="stands for a front door"
    )
    target = Entity(EntityKind.MODEL, "m")
    story = Story("model/m", 20.0, "gateway.broken").acts(21.0, "door.refresh")
    judged = _judged([_made(door, target)], story)
    assert judged.faults[0].right_action
    assert judged.false_actions == ()
    assert _judged([], Story("engine/e0", 20.0, "engine.dead").acts(21.0, "door.undrain")).false_actions == ()


@pytest.mark.parametrize("cured", [None, 30.0])
def test_recovered_needs_the_fault_gone_and_every_incident_about_it_resolved(cured: float | None) -> None:
    first = Story("engine/e0", 20.0, "engine.hung").acts(21.0, "door.drain").resolved(60.0)
    (fault,) = _judged([_made(HUNG, ENGINES[0], cured=cured)], first).faults
    assert fault.recovered_after == (None if cured is None else 50.0)
    second = Story("engine/e0", 80.0, "engine.slow").escalated(90.0)
    assert _judged([_made(HUNG, ENGINES[0], cured=cured)], first, second).faults[0].recovered_after is None


def test_about_a_decoy_only_what_is_true_of_it_may_be_said_and_nothing_done() -> None:
    made = [_made(QUIET, ENGINES[0])]
    judged = _judged(made, Story("engine/e2", 20.0, "clients.leaving"))
    assert judged.false_incidents == ()
    assert judged.faults == ()
    judged = _judged(made, Story("engine/e0", 20.0, "engine.hung").acts(21.0, "process.restart"))
    assert judged.false_incidents == ("engine.hung on engine/e0",)
    assert judged.destructive_actions == ("process.restart on engine/e0",)


def test_of_two_faults_each_gets_the_incident_on_its_own_target() -> None:
    made = [_made(HUNG, ENGINES[0], name="hang"), _made(FAULTED, GPUS[1], name="xid")]
    hang, xid = _judged(
        made,
        Story("gpu/n0:1", 15.0, "gpu.faulted"),
        Story("engine/e0", 25.0, "engine.hung"),
        Story("node/n0", 40.0, "other"),
    ).faults
    assert (hang.name, hang.detected_after, hang.right_cause) == ("hang", 15.0, True)
    assert (xid.name, xid.detected_after, xid.right_cause) == ("xid", 5.0, True)


def test_in_healthy_time_everything_is_false() -> None:
    judged = _judged([], Story("engine/e0", 20.0, "engine.slow", enough=False), Story("model/m", 30.0, "overload"))
    assert judged.false_incidents == ("engine.slow on engine/e0", "overload on model/m")


def test_the_reach_of_an_engine_is_what_it_stands_on_and_not_its_neighbours() -> None:
    found = reach(TOPOLOGY, ENGINES[0])
    assert {ENGINES[0], GPUS[0], NODES[0], Entity(EntityKind.MODEL, "m")} <= found
    assert ENGINES[1] not in found
    assert {ENGINES[0], ENGINES[1]} <= reach(TOPOLOGY, NODES[0])
    assert ENGINES[2] not in reach(TOPOLOGY, NODES[0])
