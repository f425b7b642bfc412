"""Drill: a fault made on purpose, in which state of the fleet, how far it may reach, and what is expected of the warden.

A drill is data, and the same for every kind of fleet. Does not belong here: reading files (runbooks.drill_loader), running
one (agent.drill), and how a fault is made (serving.faults).
"""

from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from runbooks.runbook import Name, Seconds, Strict

ANY, BUSIEST, DOOR = "any", "busiest", "door"
TARGET = r"^(any|busiest|door|any [a-z]+|[a-z]+/.+)$"
NOTHING = "nothing"
ON_TARGET = "target"

Share = Annotated[float, Field(ge=0, le=1)]
Few = Annotated[int, Field(ge=1, le=100_000)]
Requests = Annotated[int, Field(ge=0, le=1_000_000_000)]
Hyphenated = Annotated[str, Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$", max_length=64)]


class FleetKind(StrEnum):
    """What a fleet is made of."""

    SIMULATED = "simulated"
    VLLM = "vllm"
    VIRTUAL = "virtual"


class FleetNeeds(Strict):
    """Which fleets a drill can be run on: of these kinds, with at least (and at most) so many engines of one model."""

    kinds: list[FleetKind] = Field(default=list(FleetKind), min_length=1)
    engines: Few = 2
    engines_at_most: Few | None = None

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.engines_at_most is not None and self.engines_at_most < self.engines:
            raise ValueError(f"`engines_at_most` {self.engines_at_most} is less than `engines` {self.engines}")
        return self


class SteadyState(Strict):
    """What must hold for `hold` seconds on end before anything is broken, and be so within `within` seconds.

    Always: every engine serves, nothing is open, nobody pressed pause, the breaker is closed. `require` (CEL, see
    runbooks.drill_conditions) adds to it. `autonomy` `any` lets a drill run where the warden may not repair by itself.
    """

    require: list[str] = Field(default_factory=list)
    hold: Seconds = 10.0
    within: Seconds = 120.0
    autonomy: Literal["auto", "any"] = "auto"

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.hold > self.within:
            raise ValueError(f"`within` must not be shorter than `hold` ({self.hold:g} s): it could never be steady")
        return self


class FaultOrder(Strict):
    """One fault. `after` is counted from the first injection; after `lasts` it is undone (None: when the drill ends).

    `target`: `any` engine (drawn by the seed), the `busiest` one, the front `door` (loads only), `any KIND`, or one entity
    as `kind/name`.
    """

    fault: Hyphenated
    target: Annotated[str, Field(pattern=TARGET, max_length=128)] = ANY
    parameters: dict[Name, Annotated[float, Field(allow_inf_nan=False)]] = Field(default_factory=dict)
    after: Seconds = 0.0
    lasts: Seconds | None = None


class BlastRadius(Strict):
    """How much of the capacity may be lost at once: so many engines of the model (None: not counted), and this share."""

    engines: Few | None = 1
    share: Share = 0.5


class AbortCondition(Strict):
    """A condition (CEL) upon which the drill is called off at once."""

    when: str
    because: str


class Expected(Strict):
    """One incident that must be opened.

    `of`: which fault of the drill it is about (default: the one at the same place). `on`: the fault's own target, or any
    entity of a kind, such as `model`. `first_action`: the first verb that changes something; `nothing` where people are
    only to be told. Spans count from the injection of its fault.
    """

    cause: Name
    of: Few | None = None
    on: Name = ON_TARGET
    first_action: Name | None = None
    ending: Literal["resolved", "escalated", "any"] = "resolved"
    detected_within: Seconds = 60.0
    isolated_within: Seconds | None = None
    recovered_within: Seconds = 300.0


class Tolerated(Strict):
    """An incident that may be opened beside the expected ones, as an effect of the fault, on an entity of this kind."""

    cause: Name
    on: Name | None = None


class Expectation(Strict):
    """What the warden is expected to do. No incident at all: the drill is a decoy, and nothing may be repaired."""

    incidents: list[Expected] = Field(default_factory=list)
    tolerated: list[Tolerated] = Field(default_factory=list)
    failed_at_most: Requests | None = None

    @property
    def decoy(self) -> bool:
        """Whether nothing is wrong in truth."""
        return not self.incidents


class Limits(Strict):
    """`watch`: most seconds from the first injection until all is undone. `recover`: then, until it is steady again."""

    watch: Annotated[float, Field(gt=0, le=86_400)] = 360.0
    recover: Seconds = 120.0


class Drill(Strict):
    """One drill. `story`: what happened to whom, which the drill follows. Everything is always undone at its end."""

    name: Hyphenated
    summary: str
    story: str = ""
    fleet: FleetNeeds = FleetNeeds()
    steady: SteadyState = SteadyState()
    faults: list[FaultOrder] = Field(min_length=1, max_length=8)
    blast_radius: BlastRadius = BlastRadius()
    abort: list[AbortCondition] = Field(default_factory=list)
    expect: Expectation
    limits: Limits = Limits()
    tags: list[Hyphenated] = Field(default_factory=list)

    def fault_of(self, number: int) -> int:
        """The index of the fault that the expected incident with this index is about."""
        of = self.expect.incidents[number].of
        return (of - 1) if of is not None else min(number, len(self.faults) - 1)
