"""Kinds of faults and decoys, and one of them at work: onset, undo, and whether a repair has cured it.

A kind moves levers of the fleet's columns; what follows from that (queues, latencies, refused scrapes) is the model's doing.
`level`, from 0 (well) to 1 (as bad as its parameters say), is what an onset changes over time.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

import numpy as np

from serving.fleet.entity import Entity, EntityKind
from serving.virtual.fleet import VirtualFleet
from serving.virtual.plan import DOOR, SCRAPE

Parameters = Mapping[str, float]


class Onset(StrEnum):
    """How a fault comes: all at once, growing until it is whole after `RAMP_S`, or coming and going."""

    SUDDEN = "sudden"
    CREEPING = "creeping"
    FLAPPING = "flapping"


class Cure(StrEnum):
    """What ends a fault for good, besides its undo."""

    PROCESS = "process"  # a new process of the engine
    GPU = "gpu"  # a reset of the GPU, a reboot or a replacement of its node
    NODE = "node"  # a reboot or a replacement of the node
    EVICTION = "eviction"  # ending the process that does not belong there
    REFRESH = "refresh"  # the door reading its engines anew
    ROLLBACK = "rollback"  # the revision before
    NOTHING = "nothing"  # only its undo: users, switches and telemetry are nobody's to restart


RAMP_S = 90.0
RAMP_STEPS = 9
FLAP_ON_S, FLAP_OFF_S = 45.0, 20.0

Lever = Callable[[VirtualFleet, int, float, Parameters], None]


@dataclass(frozen=True)
class Kind:
    """One kind of fault or decoy.

    `on`: what it happens to. `lever` sets it, for the place of a target among the fleet's columns, to a level. `cites`: the
    public report it is built after. `defaults` are its parameters. `onsets`: in which ways it may come. `eligible` tells
    which places it can happen to.
    """

    name: str
    on: EntityKind
    says: str
    cites: str
    cure: Cure
    lever: Lever
    defaults: Parameters = field(default_factory=lambda: MappingProxyType({}))
    onsets: tuple[Onset, ...] = (Onset.SUDDEN,)
    eligible: Callable[[VirtualFleet], Sequence[int]] | None = None

    def targets(self, fleet: VirtualFleet) -> tuple[Entity, ...]:
        """Everything in `fleet` that it can happen to."""
        everything = entities(fleet, self.on)
        places = range(len(everything)) if self.eligible is None else self.eligible(fleet)
        return tuple(everything[place] for place in places)

    def parameters(self, given: Parameters) -> Parameters:
        """The defaults with what is given. Raises ValueError, naming it, for a parameter that the kind does not have."""
        unknown = sorted(set(given) - set(self.defaults))
        if unknown:
            known = ", ".join(self.defaults) or "none"
            raise ValueError(f"{self.name} has no parameter {unknown[0]!r} (known: {known})")
        return MappingProxyType({**self.defaults, **given})


class Injection:
    """One fault at work on its targets. `undo` takes it back, as often as one likes."""

    def __init__(
        self, fleet: VirtualFleet, kind: Kind, targets: Sequence[Entity], given: Parameters, onset: Onset = Onset.SUDDEN
    ) -> None:
        """Begin. Raises ValueError for a target of another kind, a wrong parameter, or an onset that it cannot have."""
        if onset not in kind.onsets:
            raise ValueError(f"{kind.name} does not come {onset}; it can come {', '.join(kind.onsets)}")
        wrong = next((target for target in targets if target.kind is not kind.on), None)
        if wrong is not None:
            raise ValueError(f"{kind.name} happens to a {kind.on}, not to {wrong}")
        self.kind, self.targets = kind, tuple(targets)
        self._fleet = fleet
        self._given = kind.parameters(given)
        everything = entities(fleet, kind.on)
        self._places = [everything.index(target) for target in targets]
        self._over = False
        self._marks = [self._mark(place) for place in self._places]
        self._begin(onset)
        self._marks = [self._mark(place) for place in self._places]  # a lever may itself start a process

    def undo(self) -> None:
        """Take it back where no repair has done so."""
        if not self._over:
            self._set(0.0)
            self._over = True

    def cured(self) -> bool:
        """Whether a repair has ended it on all of its targets."""
        return not self._over and all(
            self._is_cured(place, mark) for place, mark in zip(self._places, self._marks, strict=True)
        )

    def _begin(self, onset: Onset) -> None:
        now = self._fleet.now
        if onset is Onset.SUDDEN:
            self._set(1.0)
        elif onset is Onset.CREEPING:
            for step in range(RAMP_STEPS):
                self._later(now + RAMP_S * step / RAMP_STEPS, (step + 1) / RAMP_STEPS)
        else:
            self._flap(now)

    def _flap(self, moment: float) -> None:
        self._later(moment, 1.0)
        self._later(moment + FLAP_ON_S, 0.0)
        again = moment + FLAP_ON_S + FLAP_OFF_S
        self._fleet.at(again, lambda: None if self._over else self._flap(again))

    def _later(self, moment: float, level: float) -> None:
        self._fleet.at(moment, lambda: None if self._over else self._set(level))

    def _set(self, level: float) -> None:
        for place, mark in zip(self._places, self._marks, strict=True):
            if not self._is_cured(place, mark):
                self.kind.lever(self._fleet, place, level, self._given)

    def _mark(self, place: int) -> float:
        """What a repair of the right kind changes; the fault is cured when it is no longer as it was."""
        fleet = self._fleet
        columns = {
            Cure.PROCESS: fleet.processes.since,
            Cure.GPU: fleet.hardware.gpu_generation,
            Cure.NODE: fleet.hardware.node_generation,
            Cure.EVICTION: fleet.hardware.evictions,
            Cure.ROLLBACK: fleet.rollbacks,
        }
        if self.kind.cure is Cure.REFRESH:
            return float(fleet.door.refreshed)
        return float(columns[self.kind.cure][place]) if self.kind.cure in columns else 0.0

    def _is_cured(self, place: int, mark: float) -> bool:
        return self._mark(place) != mark


def entities(fleet: VirtualFleet, kind: EntityKind) -> tuple[Entity, ...]:
    """Everything of a kind, in the order of its columns."""
    plan = fleet.plan
    everything = {
        EntityKind.ENGINE: plan.topology.engines,
        EntityKind.GPU: plan.gpus,
        EntityKind.NODE: plan.node_entities,
        EntityKind.SWITCH: tuple(Entity(kind, f"s{number}") for number in range(len(fleet.hardware.switch_errors))),
        EntityKind.MODEL: tuple(Entity(kind, model.name) for model in plan.models),
        EntityKind.GATEWAY: (DOOR,),
        EntityKind.TELEMETRY: (SCRAPE,),
    }
    return everything.get(kind, ())


def one(place: int) -> np.ndarray:
    """A row of columns as an index."""
    return np.array([place])
