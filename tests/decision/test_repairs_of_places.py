"""Repairs of GPUs and nodes: which engines count, in which order things are done, and what is left to people."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from conftest import NOW, UNTOUCHED, Fleet, begun, opened

from actuators.action import Action, Outcome, OutcomeStatus
from actuators.binding import verbs_of
from actuators.virtual import VirtualActuator
from agent.decision.breaker import repairs_of
from agent.decision.decide import decide, ending_of
from agent.decision.decision import Decision, Reason, Verdict
from agent.decision.facts import facts, outcomes
from agent.decision.policy import Policy
from agent.decision.rollback import rollback_progress
from agent.decision.state import FleetState, Switches, touched_by
from agent.decision.steps import Stage, changes, progress, step_key
from agent.diagnosis.catalogue import load_catalogue
from agent.diagnosis.diagnosis import Diagnosis
from agent.incident import (
    Ended,
    Ending,
    Finished,
    Incident,
    IncidentState,
    Intended,
    Opened,
    RollbackStarted,
    StepPassed,
    apply,
    fold,
)
from detectors.finding import Finding, Symptom
from runbooks.loader import load_library
from serving.fleet.entity import Entity, EntityKind
from serving.fleet.topology import Relation, Topology
from serving.telemetry.columns import SignalMatrix
from serving.telemetry.window import Table, Window

SPECS = verbs_of(VirtualActuator)
LIBRARY = load_library(SPECS, load_catalogue().names)
S = Symptom
NODES = tuple(Entity(EntityKind.NODE, f"n{number}") for number in range(4))
GPUS = tuple(Entity(EntityKind.GPU, f"n{number // 2}:{number % 2}") for number in range(8))


class Placed(Fleet):
    """Engine sim-N computes on GPU N; two GPUs to a node. `gauges` are those of the tables, by entity and signal."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        relations = []
        for number, name in enumerate(self.names):
            engine, gpu, node = Entity.engine(name), GPUS[number], NODES[number // 2]
            relations += [(engine, Relation.RUNS_ON, gpu), (engine, Relation.RUNS_ON, node), (gpu, Relation.MEMBER_OF, node)]
        self.topology = Topology([self.topology.facts(engine) for engine in self.topology.engines], relations)
        self.gauges: dict[tuple[Entity, str], float] = {}

    def window(self) -> Window:
        tables = {}
        for kind, entities in ((EntityKind.GPU, GPUS), (EntityKind.NODE, NODES)):
            names = {name for entity, name in self.gauges if entity.kind is kind}
            at = np.tile(self.times, (len(entities), 1))
            rows = {
                name: np.array([np.full(len(self.times), self.gauges.get((e, name), np.nan)) for e in entities])
                for name in names
            }
            tables[kind] = Table(NOW, entities, self.times, {name: SignalMatrix(row, at) for name, row in rows.items()})
        return replace(super().window(), tables=MappingProxyType(tables))


def found(cause: str, entity: Entity, *symptoms: Symptom, name: str = "i-1", score: float = 0.9) -> Incident:
    explains = tuple(Finding(symptom, entity, NOW - 30.0, 0.9) for symptom in symptoms)
    return fold([Opened(name, NOW - 20.0, Diagnosis(cause, entity, score, NOW - 30.0, explains))])


def decision(fleet: Fleet, incident: Incident, *others: Incident, switches: Switches = UNTOUCHED, **budget: Any) -> Decision:
    policy = Policy.model_validate({"autonomy": "auto", **budget})
    state = fleet.state([incident, *others], policy, switches)
    return decide(incident, LIBRARY.for_cause(incident.cause), state, policy, SPECS, now=NOW)


def after(incident: Incident, *done: tuple[str, str, Entity], passed: tuple[str, ...] = ()) -> Incident:
    """The incident after actions, each (step, verb, target), that changed something, and with steps that are over."""
    incident = begun(incident, LIBRARY.for_cause(incident.cause).name)  # type: ignore[union-attr]
    for step, verb, target in done:
        incident = did_on(incident, step, verb, target)
    for step in passed:
        incident = apply(incident, StepPassed(incident.id, NOW - 5.0, step, "over"))
    return incident


def did_on(incident: Incident, step: str, verb: str, target: Entity, status: OutcomeStatus = OutcomeStatus.DONE) -> Incident:
    key = step_key(incident, incident.attempt, step)
    incident = apply(incident, Intended(incident.id, NOW - 10.0, key, step, incident.attempt, Action(verb, target)))
    outcome = Outcome(status, "as told", MappingProxyType({"x": False}), MappingProxyType({"x": True}))
    return apply(incident, Finished(incident.id, NOW - 9.0, key, outcome))


def where(fleet: Fleet, incident: Incident) -> Any:
    return progress(incident, LIBRARY.for_cause(incident.cause), fleet.state([incident]), SPECS, now=NOW)


SYMPTOM_AND_STEPS: Mapping[Symptom, list[str]] = {
    S.XID_RESTART_APP: ["drain", "restart", "try"],
    S.XID_RESET_GPU: ["cordon", "drain", "reset", "try"],
    S.REMAP_PENDING: ["cordon", "drain", "reset", "try"],
    S.ECC_UNCORRECTED: ["cordon", "drain", "reset", "try"],
    S.XID_REBOOT_NODE: ["cordon", "drain", "drain_node", "reboot", "try", "try_node"],
    S.REMAP_FAILED: ["cordon", "drain"],
    S.XID_CHECK: [],
}


@pytest.mark.parametrize("symptom", list(SYMPTOM_AND_STEPS))
def test_a_faulty_gpu_is_acted_on_by_the_class_of_its_fault(symptom: Symptom) -> None:
    """Every step is done as soon as it is due, and the engine answers."""
    fleet, incident = Placed(6).set("door.in_flight", 0.0), found("gpu.faulted", GPUS[0], symptom)
    taken: list[str] = []
    incident = begun(incident, "gpu-faulted")
    for _ in range(60):
        at = where(fleet, incident)
        if at.stage is Stage.DUE:
            if at.step not in taken:
                taken.append(at.step)
            incident = did_on(incident, at.step, at.action.verb, at.action.target)
        elif at.stage in {Stage.PASSED, Stage.LATE, Stage.HOLDING}:
            incident = apply(incident, StepPassed(incident.id, NOW - 5.0, at.step, "over"))
        else:
            break
    taking = [step for step in taken if not step.startswith("un")]
    assert taking == SYMPTOM_AND_STEPS[symptom]
    assert at.stage is (Stage.HANDED_OVER if symptom in {S.REMAP_FAILED, S.XID_CHECK} else Stage.COMPLETE)
    left = {change.operation.action.verb for change in changes(incident, SPECS)}
    assert left == ({"node.cordon", "door.drain"} if symptom is S.REMAP_FAILED else set())


def test_a_step_on_the_engines_of_a_node_is_done_to_one_after_the_other() -> None:
    incident = after(found("node.unhealthy", NODES[0], S.NODE_NOT_READY), passed=("cordon", "leave"))
    first = where(Placed(6), incident)
    assert (first.stage, first.action.target.name) == (Stage.DUE, "sim-0")
    incident = did_on(incident, "drain", "door.drain", Entity.engine("sim-0"))
    second = where(Placed(6), incident)
    assert (second.stage, second.step, second.action.target.name) == (Stage.DUE, "drain", "sim-1")
    incident = did_on(incident, "drain", "door.drain", Entity.engine("sim-1"))
    assert where(Placed(6), incident).stage is Stage.HOLDING
    assert len({operation.key for operation in incident.operations}) == 2


def test_a_step_that_failed_for_one_of_many_has_failed() -> None:
    incident = after(found("node.unhealthy", NODES[0], S.NODE_NOT_READY), passed=("cordon", "leave", "drain", "service"))
    incident = apply(incident, StepPassed(incident.id, NOW - 4.0, "restart", "over"))
    incident = apply(incident, StepPassed(incident.id, NOW - 4.0, "reboot", "over"))
    incident = did_on(incident, "try", "engine.canary", Entity.engine("sim-0"), OutcomeStatus.FAILED)
    incident = did_on(incident, "try", "engine.canary", Entity.engine("sim-1"))
    assert outcomes(incident)["try"] == "failed"


def test_a_rollback_takes_back_what_was_done_to_each() -> None:
    fleet = Placed(6)
    for node in NODES:
        fleet.gauges[node, "node.ready"] = 1.0
    done = (("cordon", "node.cordon", NODES[0]), *(("drain", "door.drain", Entity.engine(f"sim-{n}")) for n in (0, 1)))
    incident = apply(
        after(found("node.unhealthy", NODES[0], S.NODE_NOT_READY), *done), RollbackStarted("i-1", NOW - 4.0, "late")
    )
    back = []
    for _ in range(5):
        state = fleet.state([incident])
        at = rollback_progress(incident, LIBRARY.for_cause(incident.cause), state, SPECS, now=NOW)
        if at.stage is not Stage.DUE or at.action is None or at.step is None:
            break
        back.append((at.action.verb, at.action.target.name))
        incident = did_on(incident, at.step, at.action.verb, at.action.target)
    assert back == [("door.undrain", "sim-1"), ("door.undrain", "sim-0"), ("node.uncordon", "n0")]


def test_a_node_that_is_not_ready_stays_cordoned_and_its_engines_out_of_rotation() -> None:
    fleet = Placed(6)
    fleet.gauges[NODES[0], "node.ready"] = 0.0
    done = (("cordon", "node.cordon", NODES[0]), ("drain", "door.drain", Entity.engine("sim-0")))
    incident = apply(
        after(found("node.unhealthy", NODES[0], S.NODE_NOT_READY), *done), RollbackStarted("i-1", NOW - 40.0, "late")
    )
    at = rollback_progress(incident, LIBRARY.for_cause(incident.cause), fleet.state([incident]), SPECS, now=NOW)
    assert at.stage is Stage.COMPLETE
    assert "node.cordon on node/n0 still holds" in at.says


def test_a_reboot_must_leave_every_model_its_capacity_without_all_engines_of_the_node() -> None:
    steps = ("look", "cordon", "drain", "service", "drain_node", "restart", "reset")
    for size, reason in ((6, Reason.STEP_DUE), (3, Reason.SERVING_BUDGET)):
        incident = after(found("gpu.faulted", GPUS[0], S.XID_REBOOT_NODE), passed=steps)
        told = decision(Placed(size), incident)
        assert told.reason is reason, told.says
        assert told.action is not None
        assert (told.action.verb, told.action.target) == ("node.reboot", NODES[0])


def test_engines_on_what_is_faulty_do_not_count_as_healthy() -> None:
    state = Placed(6).state([found("node.unhealthy", NODES[1], S.NODE_NOT_READY)])
    assert state.blamed == {"sim-2", "sim-3"}
    assert Placed(6).state([found("gpu.faulted", GPUS[4], S.XID_RESET_GPU)]).blamed == {"sim-4"}
    assert Placed(6).state([found("gpu.memory_vampire", GPUS[4], S.GPU_MEMORY_FOREIGN)]).blamed == frozenset()


@pytest.mark.parametrize("holder", ["engine/sim-1", "node/n0", "gpu/n0:0"])
def test_whoever_opts_out_keeps_the_repair_of_its_gpu_and_node_away(holder: str) -> None:
    switches = Switches(opted_out=frozenset({Entity.parse(holder)}))
    told = decision(Placed(6), found("gpu.faulted", GPUS[0], S.XID_REBOOT_NODE), switches=switches)
    assert told.reason is Reason.OPTED_OUT
    elsewhere = decision(Placed(6), found("gpu.faulted", GPUS[4], S.XID_REBOOT_NODE), switches=switches)
    assert elsewhere.verdict is Verdict.ACT


def test_an_engine_on_a_node_under_repair_is_explained_by_it() -> None:
    rebooting = after(found("gpu.faulted", GPUS[0], S.XID_REBOOT_NODE), ("reboot", "node.reboot", NODES[0]))
    assert touched_by(Placed(6).topology, rebooting) >= {GPUS[0], NODES[0], Entity.engine("sim-0"), Entity.engine("sim-1")}
    dead = opened("engine.dead", "sim-1", name="i-2")
    told = decision(Placed(6).set("scrape.up", 0.0, 1), dead, rebooting, max_concurrent_repairs=5)
    assert told.reason in {Reason.ALREADY_COVERED, Reason.EXPLAINED_BY_REPAIR}


def test_handing_over_ends_the_incident_with_what_was_made_safe_and_counts_for_no_breaker() -> None:
    done = (("cordon", "node.cordon", NODES[0]), ("drain", "door.drain", Entity.engine("sim-0")))
    incident = after(found("gpu.degraded", GPUS[0], S.GPU_THROTTLED), *done, passed=("cordon", "drain"))
    told = decision(Placed(6), incident)
    assert (told.verdict, told.reason) == (Verdict.REFUSE, Reason.HANDED_OVER)
    assert "door.drain on engine/sim-0 still holds" in told.says
    ending = ending_of(incident, told)
    assert ending == (IncidentState.ESCALATED, Ending.HANDED_OVER)
    assert tuple(repairs_of(apply(incident, Ended(incident.id, NOW, *ending, told.says)))) == ()


def test_where_a_runbook_has_nothing_to_do_a_person_is_told() -> None:
    told = decision(Placed(6), found("gpu.faulted", GPUS[0], S.XID_CHECK))
    assert (told.verdict, told.reason, told.action) == (Verdict.REFUSE, Reason.HANDED_OVER, None)


def _facts(state: FleetState, incident: Incident) -> Mapping[str, Any]:
    return facts(incident, state)


def test_of_a_place_facts_tell_the_worst_of_its_engines_and_its_own_measures() -> None:
    fleet = Placed(6).set("scrape.up", 0.0, 1).set("door.in_flight", 7.0, 1)
    fleet.gauges[NODES[0], "node.ready"] = 1.0
    incident = found("node.unhealthy", NODES[0], S.NODE_NETWORK_ERRORS)
    known = _facts(fleet.state([incident]), incident)
    assert known["ready"] is False
    assert known["target_state"] == "down"
    assert known["total_peers"] == 4.0
    assert known["signal"]["door.in_flight"] == 7.0
    assert known["signal"]["scrape.up"] == 0.0
    assert known["signal"]["node.ready"] == 1.0
    assert known["shown"]["node.network_errors"] == 1.0
    assert known["shown"]["node.not_ready"] == 0.0
    other = found("gpu.memory_vampire", GPUS[2], S.GPU_MEMORY_FOREIGN)
    assert _facts(fleet.state([other]), other)["ready"] is True


def test_users_of_a_place_are_served_as_by_its_worst_engine_in_rotation() -> None:
    fleet = Placed(6).observe("door.ttft", 1.0, 2.0, 1)
    incident = found("node.unhealthy", NODES[0], S.NODE_CLOCK_OFF)
    slow = _facts(fleet.state([incident]), incident)["slo"]["ttft"]
    fleet.set("door.drained", 1.0, 1)
    assert _facts(fleet.state([incident]), incident)["slo"]["ttft"] < slow


def test_without_the_verbs_of_nodes_and_gpus_the_rest_of_a_runbook_is_left(world: Any) -> None:
    assert [step.id for step in world.library.for_cause("gpu.degraded").steps] == ["drain", "repair"]
    assert world.library.by_cause["gpu.degraded"].left_out == ("cordon: nobody here offers node.cordon",)
    assert {step.do for step in world.library.for_cause("gpu.faulted").steps}.isdisjoint({"gpu.reset", "node.reboot"})
    assert [loaded.left_out for loaded in LIBRARY.by_cause.values() if loaded.left_out] == []
