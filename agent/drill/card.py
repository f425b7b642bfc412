"""The scorecard of one drill: what the warden made of it, and the verdict with its reasons.

The keys of the models are the keys of `fleetwarden drill run --json` and `history --json`, and of the lines of
drills/history.jsonl; they stay stable. Times are Unix seconds, spans are seconds from the injection, unknown is null.
"""

from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field

from runbooks.drill import FleetKind


class Verdict(StrEnum):
    """How a drill came out. Not steady: nothing was broken. Interrupted: its process ended in the middle."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_STEADY = "not_steady"
    ABORTED = "aborted"
    INTERRUPTED = "interrupted"


class _Row(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class FaultRow(_Row):
    """One fault as it was made. `undone` is None where it was never made; `undo` says how it was undone, or why not."""

    key: str
    fault: str
    target: str
    parameters: dict[str, float] = Field(default_factory=dict)
    injected_at: float | None = None
    undone: bool | None = None
    undo: str = ""


class IncidentRow(_Row):
    """One expected incident and the one that came, if any. `met`: everything about it was as expected."""

    expected_cause: str
    expected_on: str
    met: bool
    incident: str | None = None
    cause: str | None = None
    first_cause: str | None = None
    entity: str | None = None
    cause_right: bool = False
    first_action: str | None = None
    first_action_right: bool | None = None
    ending: str | None = None
    detected_after: float | None = None
    isolated_after: float | None = None
    recovered_after: float | None = None
    reasons: list[str] = Field(default_factory=list)


class Card(_Row):
    """The whole scorecard. `failed_requests` counts users at the front door, from the first injection to the last undo."""

    run: str
    drill: str
    fleet: FleetKind
    decoy: bool
    began_at: float
    injected_at: float | None
    ended_at: float
    verdict: Verdict
    reasons: list[str]
    faults: list[FaultRow]
    incidents: list[IncidentRow]
    others: list[str]
    failed_requests: float | None
    undone: bool
    steady_again_after: float | None
