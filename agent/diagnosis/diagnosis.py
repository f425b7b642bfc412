"""Diagnosis: one likely cause on one entity, with what speaks for it, against it, and what could not be seen."""

from dataclasses import dataclass

from detectors.finding import Finding
from serving.fleet.entity import Entity


@dataclass(frozen=True, slots=True)
class Rival:
    """Another cause that explains some of the same findings, and why it was put behind."""

    cause: str
    entity: Entity
    score: float
    behind_because: str


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A cause (a kind of the catalogue, such as `engine.hung`) on an entity.

    `score` is from 0 to 1. `explains` are the findings it accounts for; `against` are sentences on what it should have
    shown and did not; `missing` are signals that could not be read and would have told. `enough` is False when the
    honest answer is "not enough evidence". `probe` names a harmless verb (such as `engine.canary`) that would tell this
    cause from its closest rival, when they are close.
    """

    cause: str
    entity: Entity
    score: float
    since: float
    explains: tuple[Finding, ...]
    against: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    rivals: tuple[Rival, ...] = ()
    enough: bool = True
    probe: str | None = None
