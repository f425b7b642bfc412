"""DrillFleet: the port behind which a fleet stands for drills, in real and in virtual time alike.

Time comes from the fleet's own clock: in virtual time `clock.sleep` is what moves the fleet on.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

from agent.incident import Incident, IncidentEvent
from agent.journal.port import Note
from runbooks.drill import FaultOrder, FleetKind
from serving.clock import Clock
from serving.fleet.entity import Entity, EntityKind


class DrillFleetError(Exception):
    """The fleet cannot be seen or reached. The message says what to do."""


class InjectionError(DrillFleetError):
    """A fault could not be made; nothing of it is left. The message says why and what to do."""


@dataclass(frozen=True, slots=True)
class EngineSeen:
    """One engine as the warden sees it. `state`: serving, suspect, drained, ejected, down or unseen; None: not measured."""

    name: str
    model: str
    state: str
    in_flight: float | None = None
    waiting: float | None = None
    kv_usage: float | None = None


@dataclass(frozen=True, slots=True)
class Sight:
    """The fleet as the warden saw it at `at` (Unix seconds).

    `open`: ids of incidents. `autonomy` may be `dry run`. `paused` and `breaker` say who or what holds the warden back;
    empty while nothing does.
    """

    at: float
    engines: tuple[EngineSeen, ...]
    open: tuple[str, ...] = ()
    autonomy: str = "auto"
    paused: str = ""
    breaker: str = ""


@dataclass(frozen=True, slots=True)
class UserCounts:
    """What the front door has counted since it started. `bounds` ends with infinity; `first_bytes` is cumulative over it."""

    results: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    bounds: tuple[float, ...] = ()
    first_bytes: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class History:
    """One incident with all its events, oldest first."""

    incident: Incident
    events: tuple[IncidentEvent, ...]


@dataclass(frozen=True, slots=True)
class Undone:
    """What became of an undo. `ok` False: it is still on record, and `says` why."""

    ok: bool
    says: str


class DrillFleet(Protocol):
    """One fleet. Every method but `clear` may raise DrillFleetError."""

    @property
    def clock(self) -> Clock:
        """The clock that this fleet lives by."""
        ...

    @property
    def kind(self) -> FleetKind:
        """What it is made of."""
        ...

    def sight(self) -> Sight:
        """How the warden sees it now."""
        ...

    def users(self) -> UserCounts:
        """What the front door has counted; empty where there is none."""
        ...

    def histories(self, since: float) -> tuple[History, ...]:
        """Incidents that were opened at `since` (Unix seconds) or later, oldest first."""
        ...

    def entities(self, kind: EntityKind) -> tuple[Entity, ...]:
        """What there is of this kind and could be broken, in a stable order."""
        ...

    def around(self, target: Entity) -> frozenset[Entity]:
        """What a repair of `target` may touch, itself included."""
        ...

    def inject(self, key: str, order: FaultOrder, target: Entity) -> None:
        """Make the fault now, recorded under `key` before anything is touched. Raises InjectionError, leaving nothing."""
        ...

    def at_work(self, key: str) -> bool:
        """Whether the injection is on record, so that there is something to undo."""
        ...

    def clear(self, key: str) -> Undone:
        """Undo the injection; may be repeated, and an unknown key is undone already. Never raises."""
        ...

    def note(self, note: Note) -> None:
        """Write a note into the warden's journal, so that people see that it was a drill."""
        ...
