"""The stored form of every event and note: a union told apart by `type`, each with the version of its shape.

A shape that changes gets version 2 beside version 1, and the codec learns to read both: what was written stays readable.
"""

# ruff: noqa: D101 - each model mirrors the dataclass that it names as `restores`; its meaning is told there

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from agent.incident import (
    ApprovalAnswered,
    ApprovalAsked,
    AttemptStarted,
    Closed,
    Decided,
    Ended,
    Ending,
    Finished,
    IncidentState,
    Intended,
    Opened,
    Rediagnosed,
    RollbackStarted,
    StepPassed,
    SymptomsBack,
    SymptomsGone,
    VerificationStarted,
    Withdrawn,
)
from agent.journal.port import Note
from agent.journal.values import Stored, StoredAction, StoredDecision, StoredDiagnosis, StoredOutcome, StoredScalar, Text


class Record(Stored):
    """Base of all records."""

    version: Literal[1] = 1
    at: float


class EventRecord(Record):
    """Base of the records of an incident's events."""

    incident: Text


class OpenedRecord(EventRecord):
    restores = Opened
    type: Literal["opened"] = "opened"
    diagnosis: StoredDiagnosis


class RediagnosedRecord(EventRecord):
    restores = Rediagnosed
    type: Literal["rediagnosed"] = "rediagnosed"
    diagnosis: StoredDiagnosis


class SymptomsGoneRecord(EventRecord):
    restores = SymptomsGone
    type: Literal["symptoms_gone"] = "symptoms_gone"


class SymptomsBackRecord(EventRecord):
    restores = SymptomsBack
    type: Literal["symptoms_back"] = "symptoms_back"


class DecidedRecord(EventRecord):
    restores = Decided
    type: Literal["decided"] = "decided"
    decision: StoredDecision


class AttemptStartedRecord(EventRecord):
    restores = AttemptStarted
    type: Literal["attempt_started"] = "attempt_started"
    attempt: int
    runbook: Text


class IntendedRecord(EventRecord):
    restores = Intended
    type: Literal["intended"] = "intended"
    key: Text
    step: Text
    attempt: int
    action: StoredAction


class FinishedRecord(EventRecord):
    restores = Finished
    type: Literal["finished"] = "finished"
    key: Text
    outcome: StoredOutcome


class WithdrawnRecord(EventRecord):
    restores = Withdrawn
    type: Literal["withdrawn"] = "withdrawn"
    key: Text
    says: Text


class StepPassedRecord(EventRecord):
    restores = StepPassed
    type: Literal["step_passed"] = "step_passed"
    step: Text
    says: Text


class RollbackStartedRecord(EventRecord):
    restores = RollbackStarted
    type: Literal["rollback_started"] = "rollback_started"
    says: Text


class VerificationStartedRecord(EventRecord):
    restores = VerificationStarted
    type: Literal["verification_started"] = "verification_started"


class ApprovalAskedRecord(EventRecord):
    restores = ApprovalAsked
    type: Literal["approval_asked"] = "approval_asked"
    expires_at: float
    says: Text


class ApprovalAnsweredRecord(EventRecord):
    restores = ApprovalAnswered
    type: Literal["approval_answered"] = "approval_answered"
    approved: bool
    by: Text


class EndedRecord(EventRecord):
    restores = Ended
    type: Literal["ended"] = "ended"
    state: IncidentState
    ending: Ending
    says: Text
    cost: Text


class ClosedRecord(EventRecord):
    restores = Closed
    type: Literal["closed"] = "closed"
    says: Text


class NoteRecord(Record):
    restores = Note
    type: Literal["note"] = "note"
    kind: Text
    says: Text
    facts: dict[Text, StoredScalar]


AnyRecord = (
    OpenedRecord
    | RediagnosedRecord
    | SymptomsGoneRecord
    | SymptomsBackRecord
    | DecidedRecord
    | AttemptStartedRecord
    | IntendedRecord
    | FinishedRecord
    | WithdrawnRecord
    | StepPassedRecord
    | RollbackStartedRecord
    | VerificationStartedRecord
    | ApprovalAskedRecord
    | ApprovalAnsweredRecord
    | EndedRecord
    | ClosedRecord
    | NoteRecord
)

RECORDS: TypeAdapter[AnyRecord] = TypeAdapter(Annotated[AnyRecord, Field(discriminator="type")])
