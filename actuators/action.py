"""Action and Outcome, and the port every actuator stands behind."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Protocol

from serving.fleet.entity import Entity

Scalar = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Action:
    """One change to one target. `verb` is `family.name`, such as `door.drain`; `arguments` fit the verb's signature."""

    verb: str
    target: Entity
    arguments: Mapping[str, Scalar] = field(default_factory=lambda: MappingProxyType({}))


class OutcomeStatus(StrEnum):
    """Done: the world is now as asked (also when it already was). Failed: it is not. Unknown: look it up, never repeat."""

    DONE = "done"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of an action. `before` and `after` are the target's state as read. `permanent`: a retry cannot help."""

    status: OutcomeStatus
    detail: str
    before: Mapping[str, Scalar] = field(default_factory=lambda: MappingProxyType({}))
    after: Mapping[str, Scalar] = field(default_factory=lambda: MappingProxyType({}))
    permanent: bool = False


@dataclass(frozen=True, slots=True)
class VerbSpec:
    """What the loop must know of a verb before using it.

    `parameters`: name -> (type, default or ...) of its arguments, taken from the real signature. `undo`: the verb that
    takes it back, if any. `takes_capacity`: the target serves nobody while it lasts. `harmless`: changes nothing (a
    probe), so neither budget nor breaker holds it. `recovery`: gives capacity back, so it passes an open breaker.
    `covers`: verbs that are superseded by this one on the same target.
    """

    verb: str
    summary: str
    parameters: Mapping[str, tuple[type, object]]
    undo: str | None = None
    takes_capacity: bool = False
    harmless: bool = False
    recovery: bool = False
    covers: frozenset[str] = frozenset()


class Actuator(Protocol):
    """All verbs of one family of targets.

    `key` is the operation's key (incident, step, attempt): applying the same key twice changes the world at most once.
    None of these raise; what went wrong is in the Outcome.
    """

    @property
    def verbs(self) -> Mapping[str, VerbSpec]:
        """The verbs this actuator offers, by full name."""
        ...

    def rehearse(self, action: Action) -> Outcome:
        """Dry run: read the live state, say from what to what, and fail where `apply` would. Changes nothing."""
        ...

    def apply(self, action: Action, key: str) -> Outcome:
        """Re-check the precondition against the live world, then act."""
        ...

    def look_up(self, action: Action, key: str) -> Outcome:
        """What became of an operation whose outcome was lost: done, failed (it never happened), or still unknown."""
        ...
