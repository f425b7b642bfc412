"""Every verb over a fleet in virtual time: what its front door, processes, nodes, GPUs and rollouts can be told.

Operations are kept by key, as the real things keep them: the same key twice changes the fleet at most once.
"""

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from actuators.action import Action, Outcome, OutcomeStatus, Scalar, VerbSpec
from actuators.binding import bind, methods_of, verb, verbs_of, with_defaults
from serving.fleet.entity import Entity, EntityKind
from serving.gateway.orders import WARDEN, Order, OrderVerb, Refusal, changed
from serving.virtual.fleet import VirtualFleet

_KINDS = {
    "door": EntityKind.ENGINE,
    "process": EntityKind.ENGINE,
    "engine": EntityKind.ENGINE,
    "experts": EntityKind.ENGINE,
    "node": EntityKind.NODE,
    "gpu": EntityKind.GPU,
    "rollout": EntityKind.MODEL,
}
_OTHER_KINDS = {"door.refresh": EntityKind.GATEWAY}
REBOOT_S = 240.0
ONE_BY_ONE_S = 30.0
REBALANCE_S = 1.5  # in which every request of the engine stands still; 0.9 to 1.7 s were reported (vllm-project/vllm#43219)


class VirtualActuator:
    """All families at once."""

    def __init__(self, fleet: VirtualFleet) -> None:
        self._fleet = fleet
        self._done: dict[str, tuple[str, Outcome]] = {}
        self._specs = verbs_of(self)
        self._methods: Mapping[str, Callable[..., Outcome]] = methods_of(self)
        self.log: list[tuple[float, Action]] = []

    @property
    def verbs(self) -> Mapping[str, VerbSpec]:
        return self._specs

    def rehearse(self, action: Action) -> Outcome:
        problem = self._problem(action)
        if problem is not None:
            return problem
        return Outcome(OutcomeStatus.DONE, f"would do {action.verb} on {action.target}", self._facts(action.target))

    def apply(self, action: Action, key: str) -> Outcome:
        earlier = self.look_up(action, key)
        if earlier.status is OutcomeStatus.DONE or earlier.permanent:
            return earlier
        before = self._facts(action.target)
        arguments = with_defaults(self._specs[action.verb], action.arguments)
        told = self._methods[action.verb](action.target.name, **arguments)
        outcome = Outcome(told.status, told.detail, before, self._facts(action.target), permanent=told.permanent)
        if outcome.status is OutcomeStatus.DONE:
            self._done[key] = (f"{action.verb} {action.target}", outcome)
            self.log.append((self._fleet.now, action))
        return outcome

    def look_up(self, action: Action, key: str) -> Outcome:
        problem = self._problem(action)
        if problem is not None:
            return problem
        known = self._done.get(key)
        if known is None:
            return Outcome(OutcomeStatus.FAILED, f"no operation has the key {key!r}: it never happened")
        if known[0] != f"{action.verb} {action.target}":
            return Outcome(OutcomeStatus.FAILED, f"key {key!r} was already used for {known[0]}", permanent=True)
        return known[1]

    @verb("door.drain", summary="Send the engine nothing new", undo="door.undrain", takes_capacity=True)
    def drain(self, name: str) -> Outcome:
        """Take an engine out of rotation."""
        return self._order(Order("", OrderVerb.DRAIN, name, WARDEN))

    @verb("door.undrain", summary="Send the engine requests again", undo="door.drain", recovery=True)
    def undrain(self, name: str) -> Outcome:
        """Put an engine back into rotation, unless a person drained it."""
        return self._order(Order("", OrderVerb.UNDRAIN, name, WARDEN))

    @verb("door.set_weight", summary="Change the engine's share of new requests", undo="door.set_weight")
    def set_weight(self, name: str, *, weight: float) -> Outcome:
        """Change an engine's share of new requests."""
        return self._order(Order("", OrderVerb.SET_WEIGHT, name, WARDEN, weight))

    @verb("door.refresh", summary="Let the front door read its engines anew", recovery=True)
    def refresh(self, name: str) -> Outcome:
        """What the door had forgotten it knows again."""
        self._fleet.door.refresh()
        return _done(f"{name} knows all engines again")

    @verb(
        "process.restart",
        summary="stop every process of the engine and start it again",
        takes_capacity=True,
        covers=frozenset({"process.kill_orphans"}),
    )
    def restart(self, name: str, *, grace_s: float = 1.0) -> Outcome:  # noqa: ARG002 - virtual processes end at once
        """Restart an engine; it is ready when it has started."""
        self._fleet.restart(np.array([self._fleet.row(name)]))
        return _done(f"{name}: a new process starts")

    @verb("process.kill_orphans", summary="kill processes that a dead engine left behind")
    def kill_orphans(self, name: str) -> Outcome:
        """Free the GPU memory that dead processes of an engine still hold."""
        gpus = self._fleet.plan.gpu_engine == self._fleet.row(name)
        held = float(self._fleet.hardware.orphaned[gpus].sum())
        self._fleet.hardware.orphaned[gpus] = 0.0
        return _done(f"{name}: {held / 2**30:.0f} GiB freed")

    @verb("engine.canary", summary="send the engine one small request", harmless=True)
    def canary(self, name: str, *, deadline_s: float = 10.0) -> Outcome:
        """Whether the engine would answer a small request in time, and with sense."""
        fleet, row = self._fleet, self._fleet.row(name)
        if not fleet.processes.up[row]:
            return Outcome(OutcomeStatus.FAILED, f"{name}: connection refused")
        engines = fleet.engines
        waits = engines.halted[row] or engines.held[row] or fleet.processes.silent[row]
        if waits:
            return Outcome(OutcomeStatus.FAILED, f"{name} did not answer within {deadline_s:g} s")
        if engines.corrupt[row] > 0 and fleet.rng.uniform() < engines.corrupt[row]:
            return Outcome(OutcomeStatus.FAILED, f"{name} answered, and the answer makes no sense")
        return _done(f"{name} answered")

    @verb("node.cordon", summary="let nothing new be placed on the node", undo="node.uncordon")
    def cordon(self, name: str) -> Outcome:
        """Mark a node unschedulable."""
        self._fleet.hardware.unschedulable[self._node(name)] = True
        return _done(f"{name} is cordoned")

    @verb("node.uncordon", summary="let pods be placed on the node again", undo="node.cordon", recovery=True)
    def uncordon(self, name: str) -> Outcome:
        """Mark a node schedulable."""
        self._fleet.hardware.unschedulable[self._node(name)] = False
        return _done(f"{name} is uncordoned")

    @verb(
        "node.reboot",
        summary="boot the node anew, or have it replaced",
        takes_capacity=True,
        covers=frozenset({"gpu.reset", "process.restart"}),
    )
    def reboot(self, name: str) -> Outcome:
        """Everything on the node ends, and starts again when it is back."""
        fleet, node = self._fleet, self._node(name)
        rows = np.unique(fleet.plan.gpu_engine[fleet.plan.gpu_node == node])
        fleet.kill(rows)

        def back() -> None:
            fleet.hardware.repaired(node)
            fleet.restart(rows)

        fleet.hardware.ready[node] = False
        fleet.at(fleet.now + REBOOT_S, back)
        return _done(f"{name} boots anew")

    @verb("gpu.reset", summary="reset the GPU", takes_capacity=True, covers=frozenset({"process.restart"}))
    def reset(self, name: str) -> Outcome:
        """The engine on the GPU ends, the GPU is reset, the engine starts again."""
        fleet, gpu = self._fleet, self._gpu(name)
        rows = fleet.plan.gpu_engine[[gpu]]
        fleet.hardware.reset(gpu)
        fleet.restart(rows)
        return _done(f"{name} was reset")

    @verb("gpu.evict_intruder", summary="end the process on the GPU that is not the engine's")
    def evict_intruder(self, name: str) -> Outcome:
        """Free what the intruder holds."""
        held = self._fleet.hardware.evict(self._gpu(name))
        return _done(f"{name}: {held / 2**30:.0f} GiB freed")

    @verb(
        "rollout.rollback", summary="take the model's engines back to the last good revision"
    )  # one at a time, by the orchestrator
    def rollback(self, name: str) -> Outcome:
        """Engines of the newest revision are restarted one after another with the one before."""
        fleet = self._fleet
        members = np.flatnonzero(fleet.plan.engine_model == [model.name for model in fleet.plan.models].index(name))
        model = int(fleet.plan.engine_model[members[0]])
        fleet.rollbacks[model] += 1
        newest = fleet.processes.revision[members].max()
        new = members[fleet.processes.revision[members] == newest]

        def one_back(row: int) -> None:
            fleet.processes.revision[row] = newest - 1
            fleet.restart(np.array([row]))

        for number, row in enumerate(new.tolist()):
            fleet.at(fleet.now + ONE_BY_ONE_S * number, partial(one_back, row))
        return _done(f"{name}: {len(new)} engines go back to revision {newest - 1:g}")

    @verb("experts.rebalance", summary="let the engine place its experts anew", takes_capacity=True)
    def rebalance(self, name: str) -> Outcome:
        """Hot experts get replicas; everything on the engine stands still meanwhile."""
        fleet, row = self._fleet, self._fleet.row(name)
        if not fleet.experts.present[row]:
            return Outcome(OutcomeStatus.FAILED, f"{name} has no experts", permanent=True)
        fleet.engines.halted[row] = True

        def go_on() -> None:
            fleet.engines.halted[row] = False
            fleet.experts.balanced[row] = True
            fleet.experts.rebalance_seconds[row] = REBALANCE_S

        fleet.at(fleet.now + REBALANCE_S, go_on)
        return _done(f"{name} places its experts anew")

    def _order(self, order: Order) -> Outcome:
        row = self._fleet.row(order.engine)
        after = changed(self._fleet.door.standing[row], order)
        if isinstance(after, Refusal):
            return Outcome(OutcomeStatus.FAILED, after.says, permanent=True)
        self._fleet.door.order(row, after)
        return _done(f"{order.engine}: {order.verb}")

    def _problem(self, action: Action) -> Outcome | None:
        spec = self._specs.get(action.verb)
        if spec is None:
            return Outcome(OutcomeStatus.FAILED, f"{action.verb} is not a verb here", permanent=True)
        wanted = _OTHER_KINDS.get(action.verb, _KINDS[action.verb.partition(".")[0]])
        problems = bind(spec, action.arguments)
        if action.target.kind is not wanted:
            problems = (*problems, f"{action.verb} acts on a {wanted}, not on {action.target}")
        elif action.target not in self._fleet.topology:
            problems = (*problems, f"there is no {action.target}")
        return Outcome(OutcomeStatus.FAILED, "; ".join(problems), permanent=True) if problems else None

    def _facts(self, target: Entity) -> Mapping[str, Scalar]:
        """How the target stands, for the record. A restarted engine says nothing of steps and rates."""
        fleet = self._fleet
        if target.kind is EntityKind.ENGINE:
            row = fleet.row(target.name)
            standing = fleet.door.standing[row]
            return {
                "up": bool(fleet.processes.up[row]),
                "drained": standing.drained_by is not None,
                "drained_by": standing.drained_by,
                "weight": standing.weight,
            }
        if target.kind is EntityKind.NODE:
            node = self._node(target.name)
            return {"ready": bool(fleet.hardware.ready[node]), "unschedulable": bool(fleet.hardware.unschedulable[node])}
        return {}

    def _node(self, name: str) -> int:
        return self._fleet.plan.node_entities.index(Entity(EntityKind.NODE, name))

    def _gpu(self, name: str) -> int:
        return self._fleet.plan.gpus.index(Entity(EntityKind.GPU, name))


def _done(detail: str) -> Outcome:
    return Outcome(OutcomeStatus.DONE, detail)
