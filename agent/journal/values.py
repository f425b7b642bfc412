"""The stored form of the values inside events: findings, diagnoses, decisions, actions and outcomes.

Each model mirrors one frozen dataclass, field by field; `restore` gives the dataclass back. Unknown keys are refused.
"""

# ruff: noqa: D101 - each model mirrors the dataclass that it names as `restores`; its meaning is told there

from dataclasses import fields
from types import MappingProxyType
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, PlainSerializer

from actuators.action import Action, Outcome, OutcomeStatus
from agent.decision.decision import Decision, Reason, Verdict
from agent.diagnosis.diagnosis import Diagnosis, Rival
from detectors.finding import Evidence, Finding, Symptom
from serving.fleet.entity import Entity


def _clean(value: object) -> object:
    """Text from outside may hold lone surrogates, which no UTF-8 store takes; they become U+FFFD."""
    if isinstance(value, str) and not value.isascii():
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return value


def _entity(value: object) -> object:
    return Entity.parse(value) if isinstance(value, str) else value


Text = Annotated[str, BeforeValidator(_clean)]
StoredScalar = Annotated[str | int | float | bool | None, BeforeValidator(_clean)]
EntityText = Annotated[Entity, BeforeValidator(_entity), PlainSerializer(str, return_type=str)]


class Stored(BaseModel):
    """Base of all stored models. `restores` is the dataclass it mirrors."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", from_attributes=True, ser_json_inf_nan="constants", arbitrary_types_allowed=True
    )
    restores: ClassVar[type[Any]]

    def restore(self) -> Any:
        """The dataclass this was made from."""
        return self.restores(**{item.name: _restored(getattr(self, item.name)) for item in fields(self.restores)})


def _restored(value: object) -> object:
    if isinstance(value, Stored):
        return value.restore()
    if isinstance(value, tuple):
        return tuple(_restored(item) for item in value)
    if isinstance(value, dict):
        return MappingProxyType(value)
    return value


class StoredEvidence(Stored):
    restores = Evidence
    signal: Text
    says: Text
    value: float
    expected: float | None
    unit: Text


class StoredFinding(Stored):
    restores = Finding
    symptom: Symptom
    entity: EntityText
    since: float
    severity: float
    evidence: tuple[StoredEvidence, ...]


class StoredRival(Stored):
    restores = Rival
    cause: Text
    entity: EntityText
    score: float
    behind_because: Text


class StoredDiagnosis(Stored):
    restores = Diagnosis
    cause: Text
    entity: EntityText
    score: float
    since: float
    explains: tuple[StoredFinding, ...]
    against: tuple[Text, ...]
    missing: tuple[Text, ...]
    rivals: tuple[StoredRival, ...]
    enough: bool
    probe: Text | None


class StoredAction(Stored):
    restores = Action
    verb: Text
    target: EntityText
    arguments: dict[Text, StoredScalar]


class StoredOutcome(Stored):
    restores = Outcome
    status: OutcomeStatus
    detail: Text
    before: dict[Text, StoredScalar]
    after: dict[Text, StoredScalar]
    permanent: bool


class StoredDecision(Stored):
    restores = Decision
    verdict: Verdict
    reason: Reason
    says: Text
    step: Text | None
    action: StoredAction | None
