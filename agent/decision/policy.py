"""Policy: the settings that decide reads. Plain pydantic models; loading them from files belongs elsewhere."""

import math
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from runbooks.runbook import Autonomy, Runbook
from serving.fleet.entity import Entity

Share = Annotated[float, Field(ge=0, le=1)]
Span = Annotated[float, Field(ge=0, le=604_800, description="a span in seconds")]


class Settings(BaseModel):
    """Frozen, and unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Grant(Settings):
    """How far the warden may go with a runbook in a cell; `*` is any. The most specific grant wins, runbook before cell."""

    runbook: str = "*"
    cell: str = "*"
    autonomy: Autonomy


class Minimum(Settings):
    """The healthy engines that must remain: the larger of a count and a share of the total, rounded up."""

    engines: Annotated[int, Field(ge=0)] = 0
    share: Share = 0.0

    def of(self, total: int) -> int:
        """How many of `total` engines must stay healthy."""
        return min(total, max(self.engines, math.ceil(self.share * total - 1e-9)))


class ServingBudget(Settings):
    """The capacity that repairs must leave.

    Every model has a minimum: its own or `default`, and never less than one engine, so the last healthy engine is never
    taken. Zones (counted per model) and groups (peers, named `model/hardware/role`) have one only where it is stated.
    """

    default: Minimum = Minimum(share=0.5)
    models: dict[str, Minimum] = Field(default_factory=dict)
    zones: dict[str, Minimum] = Field(default_factory=dict)
    groups: dict[str, Minimum] = Field(default_factory=dict)

    def for_model(self, model: str, total: int) -> int:
        """The healthy engines that `model` must keep of its `total`."""
        return max(1, self.models.get(model, self.default).of(total))


class BreakerSettings(Settings):
    """When the warden stops trusting itself.

    Over `span` seconds it trips at `max_repairs` finished repairs or at `max_unhelpful` that did not help; and at once
    while more than `max_faulty` of the engines, and at least `min_faulty` of them, are faulty together: then the cause is
    hardly in the engines. It stays open for `open_for` seconds, then tries one repair.
    """

    span: Span = 1_800.0
    max_repairs: Annotated[int, Field(ge=1)] = 12
    max_unhelpful: Annotated[int, Field(ge=1)] = 3
    max_faulty: Share = 0.5
    min_faulty: Annotated[int, Field(ge=1)] = 3
    open_for: Span = 600.0


class Freeze(Settings):
    """A span, in Unix seconds, in which no repair begins; one under way is finished. `cell` `*` is any."""

    begins: float
    ends: float
    cell: str = "*"
    because: str = ""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.ends <= self.begins:
            raise ValueError(f"a freeze that begins at {self.begins} cannot end at {self.ends}")
        return self


class Objectives(Settings):
    """What users are promised: 95 % of first tokens and of tokens come within so many seconds, and so many answers succeed.

    Where the healthy peers of an engine are themselves slower than that, the engine need not beat `peers_factor` times
    their median: a busy fleet is not that engine's fault.
    """

    ttft: Annotated[float, Field(gt=0)] = 2.0
    inter_token: Annotated[float, Field(gt=0)] = 0.5
    success: Share = 0.95
    peers_factor: Annotated[float, Field(ge=1)] = 3.0


class Policy(Settings):
    """All that an operator states about how far and how fast the warden may go."""

    cell: str = "local"
    autonomy: Autonomy = Autonomy.RECOMMEND
    grants: list[Grant] = Field(default_factory=list)
    serving: ServingBudget = ServingBudget()
    objectives: Objectives = Objectives()
    model_objectives: dict[str, Objectives] = Field(default_factory=dict)
    breaker: BreakerSettings = BreakerSettings()
    max_concurrent_repairs: Annotated[int, Field(ge=0)] = 1
    cool_down: Annotated[Span, Field(description="between two repairs of one target, if the runbook asks for less")] = 0.0
    probe_cool_down: Annotated[Span, Field(description="before a cause that a probe disproved is tried again")] = 60.0
    ineffective_after: Annotated[int, Field(ge=1, description="equal repairs that did not last, then a person")] = 3
    ineffective_span: Annotated[Span, Field(description="over how long equal repairs are counted")] = 1_800.0
    approval_expiry: Span = 900.0
    freshness: Annotated[Span, Field(gt=0, description="an older sample tells nothing")] = 15.0
    freezes: list[Freeze] = Field(default_factory=list)
    opt_outs: Annotated[list[str], Field(description="entities as kind/name")] = Field(default_factory=list)

    @field_validator("opt_outs")
    @classmethod
    def _are_entities(cls, names: list[str]) -> list[str]:
        for name in names:
            Entity.parse(name)
        return names

    def granted(self, runbook: Runbook, cell: str) -> Autonomy:
        """How far the warden may go: the best fitting grant (or the default), but never further than the runbook allows."""
        fitting = [g for g in self.grants if g.runbook in {runbook.name, "*"} and g.cell in {cell, "*"}]
        best = max(fitting, key=lambda g: (g.runbook != "*", g.cell != "*"), default=None)
        granted = self.autonomy if best is None else best.autonomy
        order = list(Autonomy)
        return min(granted, runbook.autonomy, key=order.index)

    def objectives_for(self, model: str) -> Objectives:
        """What users of `model` are promised."""
        return self.model_objectives.get(model, self.objectives)
