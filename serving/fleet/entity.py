"""Entities: the things a finding, a diagnosis or an action can be about."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Self


class EntityKind(StrEnum):
    """Every kind of thing on the map. `TELEMETRY` is a source of measurements, itself able to fail."""

    CELL = "cell"
    ZONE = "zone"
    SWITCH = "switch"
    NODE = "node"
    GPU = "gpu"
    ENGINE = "engine"
    RANK = "rank"
    MODEL = "model"
    GATEWAY = "gateway"
    TENANT = "tenant"
    LANE = "lane"
    TELEMETRY = "telemetry"


@dataclass(frozen=True, slots=True, order=True)
class Entity:
    """One thing on the map, identified by kind and name. Written `kind/name`, as in `engine/sim-0`."""

    kind: EntityKind
    name: str

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `kind/name`. Raises ValueError, naming the text, when the kind is unknown or the name is empty."""
        kind, slash, name = text.partition("/")
        if not slash or not name or kind not in set(EntityKind):
            kinds = ", ".join(EntityKind)
            raise ValueError(f"{text!r} is not an entity: write kind/name, where kind is one of {kinds}")
        return cls(EntityKind(kind), name)

    @classmethod
    def engine(cls, name: str) -> Self:
        """The engine called `name`."""
        return cls(EntityKind.ENGINE, name)
