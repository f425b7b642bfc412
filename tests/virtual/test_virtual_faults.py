"""Every fault and decoy of the fleet in virtual time can be made, does what it says, and is taken back whole."""

import copy

import numpy as np
import pytest

from actuators.action import Action, OutcomeStatus
from actuators.virtual import VirtualActuator
from serving.fleet.entity import Entity, EntityKind
from serving.virtual.faults.catalogue import DECOYS, FAULTS
from serving.virtual.faults.kind import Injection, Kind, Onset
from serving.virtual.fleet import VirtualFleet
from serving.virtual.plan import FleetPlan, ModelPlan

EVERYTHING = {**FAULTS, **DECOYS}
PLAN = FleetPlan((ModelPlan(engines=8, tp=2, experts=16),))
LEVERS = {
    "engines": ("halted", "held", "slow", "leaked", "most_running", "runaway", "corrupt"),
    "hardware": (
        *(
            "clock",
            "throttle",
            "intruder",
            "orphaned",
            "lost",
            "wedged",
            "ready",
            "unschedulable",
            "rejects",
            "disk_readonly",
        ),
        *("network_errors", "host_slow", "switch_errors", "allocatable"),
    ),
    "processes": ("silent", "start_slow", "leak_rate"),
    "users": ("rate", "long_share", "endless_share"),
    "door": ("blind", "weight", "drained"),
    "experts": ("repeated",),
}


def _levers(fleet: VirtualFleet) -> dict[str, list[float]]:
    read = {
        f"{part}.{name}": getattr(getattr(fleet, part), name).tolist() for part, names in LEVERS.items() for name in names
    }
    pipeline = fleet.pipeline
    return {
        **read,
        "pauses": fleet.engines.pauses.length.tolist(),
        "floods": sorted(fleet.users.floods),
        "pipeline": [sorted(pipeline.gone), pipeline.down, sorted(pipeline.doubled)],
    }


@pytest.fixture(scope="module")
def warm() -> VirtualFleet:
    fleet = VirtualFleet(PLAN)
    fleet.advance(30)
    return fleet


@pytest.fixture
def fleet(warm: VirtualFleet) -> VirtualFleet:
    return copy.deepcopy(warm)


def _inject(fleet: VirtualFleet, kind: Kind, onset: Onset = Onset.SUDDEN) -> Injection:
    return Injection(fleet, kind, kind.targets(fleet)[:1], {}, onset)


LONG = {"rolling-upgrade"}
CASES = [(name, onset) for name, kind in EVERYTHING.items() for onset in kind.onsets]


@pytest.mark.parametrize(("name", "onset"), CASES, ids=[f"{name}-{onset}" for name, onset in CASES])
def test_a_fault_taken_back_leaves_no_lever_moved(fleet: VirtualFleet, name: str, onset: Onset) -> None:
    before = _levers(fleet)
    injection = _inject(fleet, EVERYTHING[name], onset)
    fleet.advance(35)
    injection.undo()
    injection.undo()
    fleet.advance(250 if name in LONG else 70)  # whatever it had put down for later comes and changes nothing
    after = _levers(fleet)
    if name == "clock-skew":
        assert fleet.hardware.clock_offset[0] == 0
    assert {key: value for key, value in after.items() if value != before[key]} == {}


def test_every_kind_says_what_it_is_built_after() -> None:
    assert all(kind.cites and kind.says for kind in EVERYTHING.values())
    assert not set(FAULTS) & set(DECOYS)


@pytest.mark.parametrize("name", ["engine-hang", "gc-stall", "slow-engine", "kv-leak", "bad-output", "api-hang"])
def test_a_new_process_cures_what_was_wrong_with_the_old_one(fleet: VirtualFleet, name: str) -> None:
    injection = _inject(fleet, FAULTS[name])
    assert not injection.cured()
    fleet.advance(10)
    assert VirtualActuator(fleet).apply(Action("process.restart", injection.targets[0]), "k").status is OutcomeStatus.DONE
    assert injection.cured()
    moved = {key for key, value in _levers(fleet).items() if value != _levers(VirtualFleet(PLAN))[key]}
    assert moved == set()


def test_a_restart_does_not_help_against_a_wedged_gpu_and_a_reset_does(fleet: VirtualFleet) -> None:
    injection = _inject(fleet, FAULTS["gpu-fault"])
    engine = Entity.engine(fleet.plan.engine_names[0])
    actuator = VirtualActuator(fleet)
    actuator.apply(Action("process.restart", engine), "a")
    fleet.advance(120)
    assert fleet.engines.halted[0]
    assert not injection.cured()
    actuator.apply(Action("gpu.reset", injection.targets[0]), "b")
    fleet.advance(120)
    assert not fleet.engines.halted[0]
    assert injection.cured()


def test_a_creeping_fault_grows(fleet: VirtualFleet) -> None:
    _inject(fleet, FAULTS["slow-engine"], Onset.CREEPING)
    seen = []
    for _ in range(5):
        fleet.advance(25)
        seen.append(float(fleet.engines.slow[0]))
    assert seen == sorted(seen)
    assert seen[0] < seen[2] < seen[-1] == 2.5


def test_a_fault_of_another_kind_of_thing_a_wrong_parameter_and_a_wrong_onset_are_refused(fleet: VirtualFleet) -> None:
    node = Entity(EntityKind.NODE, "n0")
    with pytest.raises(ValueError, match="engine-hang happens to a engine, not to node/n0"):
        Injection(fleet, FAULTS["engine-hang"], [node], {})
    with pytest.raises(ValueError, match="has no parameter 'factr'"):
        Injection(fleet, FAULTS["slow-engine"], [Entity.engine("llama-0")], {"factr": 2.0})
    with pytest.raises(ValueError, match="does not come flapping"):
        Injection(fleet, FAULTS["surge"], [Entity(EntityKind.MODEL, "llama")], {}, Onset.FLAPPING)


def test_the_same_order_under_the_same_key_changes_the_fleet_once(fleet: VirtualFleet) -> None:
    actuator = VirtualActuator(fleet)
    restart = Action("process.restart", Entity.engine("llama-2"))
    first = actuator.apply(restart, "key")
    since = float(fleet.processes.since[2])
    fleet.advance(5)
    assert actuator.apply(restart, "key") == first == actuator.look_up(restart, "key")
    assert fleet.processes.since[2] == since
    other = Action("door.drain", Entity.engine("llama-2"))
    assert actuator.apply(other, "key").status is OutcomeStatus.FAILED


def test_an_engine_that_a_person_drained_stays_drained(fleet: VirtualFleet) -> None:
    kind = DECOYS["rolling-upgrade"]
    Injection(fleet, kind, kind.targets(fleet)[:1], {})
    fleet.advance(3)
    outcome = VirtualActuator(fleet).apply(Action("door.undrain", Entity.engine("llama-0")), "k")
    assert outcome.status is OutcomeStatus.FAILED
    assert fleet.door.drained[0]


def test_a_rehearsal_changes_nothing(fleet: VirtualFleet) -> None:
    actuator = VirtualActuator(fleet)
    before = _levers(fleet)
    for name, spec in actuator.verbs.items():
        kinds = (Entity.engine("llama-0"), Entity(EntityKind.NODE, "n0"), Entity(EntityKind.GPU, "n0:0"))
        for target in kinds:
            arguments = {"weight": 0.5} if "weight" in spec.parameters else {}
            actuator.rehearse(Action(name, target, arguments))
    assert _levers(fleet) == before
    assert np.isfinite(fleet.door.failed)
