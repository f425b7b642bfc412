"""Making the faults of a trial: aimed, begun and undone at their times, and asked whether a repair has cured them."""

from collections.abc import Iterable
from dataclasses import dataclass

from agent.scoreboard.judge import Made
from agent.scoreboard.trial import FaultSpec, TrialSpec
from agent.scoreboard.truth import Allowed, Expected, Truth, below, grounds, reach
from serving.fleet.entity import Entity
from serving.fleet.topology import Topology
from serving.virtual.faults.catalogue import DECOYS, FAULTS
from serving.virtual.faults.kind import Cure, Injection, Kind, Onset
from serving.virtual.fleet import VirtualFleet


@dataclass(eq=False)
class _Underway:
    """One fault of the trial. `begins` in Unix seconds; `injection` is None before that."""

    spec: FaultSpec
    kind: Kind
    targets: tuple[Entity, ...]
    begins: float
    injection: Injection | None = None
    cured_at: float | None = None
    undone: bool = False

    @property
    def ends(self) -> float:
        return self.begins + self.spec.lasts


class Making:
    """All faults of one trial. Raises ValueError for a fault that this fleet cannot have."""

    def __init__(self, spec: TrialSpec, fleet: VirtualFleet) -> None:
        self._fleet = fleet
        self._catalogue = FAULTS if spec.kind.faulty else DECOYS
        self._faults: list[_Underway] = []
        taken: set[Entity] = set()
        for fault in spec.faults:
            kind = self._catalogue[fault.name]
            targets = _aimed(fault, kind, fleet, taken)
            taken.update(entity for target in targets for entity in below(fleet.topology, target))
            self._faults.append(_Underway(fault, kind, targets, fleet.now + fault.at))

    def until(self, moment: float) -> None:
        """Let the fleet live until `moment`, in whole seconds, and make and undo what is due on the way."""
        while True:
            due = [at for one in self._faults if (at := self._next(one)) is not None and at <= moment]
            self._fleet.advance(max(0.0, min(due, default=moment) - self._fleet.now))
            if not due:
                break
            for one in self._faults:
                self._do(one)
        for one in self._faults:
            if one.injection is not None and one.cured_at is None and not one.undone and one.injection.cured():
                one.cured_at = self._fleet.now

    def all_begun(self) -> bool:
        """Whether every fault has begun."""
        return all(one.injection is not None for one in self._faults)

    def all_cured(self) -> bool:
        """Whether a repair has ended every fault."""
        return all(one.cured_at is not None for one in self._faults)

    def made(self, truth: Truth) -> tuple[Made, ...]:
        """What was made, for judging."""
        table = truth.faults if self._catalogue is FAULTS else truth.decoys
        topology = self._fleet.topology
        return tuple(
            Made(
                spec=one.spec,
                targets=one.targets,
                reach=frozenset().union(*(reach(topology, target) for target in one.targets)),
                began=one.begins,
                cured_at=one.cured_at,
                expected=_here(table[one.spec.name], self._fleet),
                curable=one.kind.cure is not Cure.NOTHING,
                grounds=_grounds(topology, one.targets, table[one.spec.name]),
            )
            for one in self._faults
        )

    def _next(self, one: _Underway) -> float | None:
        if one.injection is None:
            return one.begins
        return None if one.undone else max(one.ends, self._fleet.now)

    def _do(self, one: _Underway) -> None:
        now = self._fleet.now
        if one.injection is None and one.begins <= now:
            given = dict(one.spec.parameters)
            one.injection = Injection(self._fleet, one.kind, one.targets, given, Onset(one.spec.onset))
        elif one.injection is not None and not one.undone and one.ends <= now:
            one.injection.undo()
            one.undone = True


def _here(expected: Expected | Allowed, fleet: VirtualFleet) -> Expected | Allowed:
    """What is expected in this fleet: nothing is to be done about what only makes ranks wait where engines have one rank."""
    if isinstance(expected, Allowed) or not expected.between_ranks or any(model.tp > 1 for model in fleet.plan.models):
        return expected
    return expected.model_copy(update={"first": (), "later": ()})


def _grounds(topology: Topology, targets: Iterable[Entity], expected: Expected | Allowed) -> frozenset[Entity]:
    if isinstance(expected, Allowed):
        return frozenset()
    return frozenset().union(*(grounds(topology, target, expected) for target in targets))


def _aimed(fault: FaultSpec, kind: Kind, fleet: VirtualFleet, taken: set[Entity]) -> tuple[Entity, ...]:
    """The targets, from the aimed one on in the fleet's order; where there are any, such as no other fault has hit."""
    possible = kind.targets(fleet)
    if not possible:
        raise ValueError(f"nothing in this fleet can have {fault.name}")
    first = int(fault.aim * len(possible))
    turned = (*possible[first:], *possible[:first])
    free = [target for target in turned if taken.isdisjoint(below(fleet.topology, target))]
    return tuple((free or turned)[: fault.hits])
