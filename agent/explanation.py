"""Explanation: the whole record of one incident as data, for `fleetwarden explain` and whoever reads its JSON. Pure.

The keys of the models are the keys of `fleetwarden incidents --json` and `explain --json`; they stay stable. Times are Unix
seconds; what is not known is null. Does not belong here: how it looks (agent.cli), the short story for a message
(agent.report.story), whose words are used.
"""

import math
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from pydantic import BaseModel, ConfigDict

from agent.diagnosis.diagnosis import Diagnosis
from agent.incident import (
    Ended,
    Incident,
    IncidentEvent,
    Opened,
    Operation,
    Rediagnosed,
    RollbackStarted,
    VerificationStarted,
    Withdrawn,
)
from agent.report import wording
from agent.report.outlook import NEEDS_PERSON, outlook
from agent.report.plainly import plainly
from agent.report.story import story

LAST = "last"
_SUGGESTED = 3


class Row(BaseModel):
    """Base of the models: frozen, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class IncidentSummary(Row):
    """One incident in a list. `needs_person`: somebody has to do something now. `says`: its end, or the latest decision."""

    incident: str
    cause: str
    entity: str
    state: str
    ending: str | None
    opened_at: float
    ended_at: float | None
    gone_since: float | None
    attempt: int
    score: float
    enough: bool
    needs_person: bool
    says: str
    cost: str


class EvidenceRow(Row):
    """One number that shows a symptom."""

    symptom: str
    entity: str
    since: float
    severity: float
    signal: str
    says: str
    value: float | None
    expected: float | None
    unit: str


class RivalRow(Row):
    """Another cause that was weighed, and why it was put behind."""

    cause: str
    entity: str
    score: float
    behind_because: str


class OperationRow(Row):
    """One action. `outcome` is done, failed, unknown, pending or withdrawn (it never touched the world)."""

    key: str
    attempt: int
    step: str
    verb: str
    target: str
    arguments: dict[str, str | int | float | bool | None]
    intended_at: float
    finished_at: float | None
    outcome: str
    detail: str


class VerificationRow(Row):
    """One check of recovery. `verdict` is recovered, not_recovered or under_way."""

    began_at: float
    ended_at: float | None
    verdict: str
    says: str


class TimelineRow(Row):
    """One line of the record: every decision with its reason, and everything else that was written."""

    at: float
    type: str
    says: str


class Explanation(Row):
    """Everything about one incident."""

    incident: IncidentSummary
    headline: str
    what: str
    since: float
    evidence: list[EvidenceRow]
    against: list[str]
    missing: list[str]
    rivals: list[RivalRow]
    ruled_out: list[str]
    operations: list[OperationRow]
    verifications: list[VerificationRow]
    served: str
    cost: str
    todo: list[str]
    timeline: list[TimelineRow]


def summary(incident: Incident) -> IncidentSummary:
    """One incident in short."""
    return IncidentSummary(
        incident=incident.id,
        cause=incident.cause,
        entity=str(incident.entity),
        state=incident.state,
        ending=incident.ending,
        opened_at=incident.opened_at,
        ended_at=incident.ended_at,
        gone_since=incident.gone_since,
        attempt=incident.attempt,
        score=round(incident.diagnosis.score, 3),
        enough=incident.diagnosis.enough,
        needs_person=outlook(incident) in NEEDS_PERSON,
        says=plainly(incident.says or (incident.decision.says if incident.decision else "")),
        cost=incident.cost,
    )


def explanation(incident: Incident, events: Sequence[IncidentEvent]) -> Explanation:
    """The whole record of `incident`, whose `events` are given oldest first."""
    told = story(incident, events)
    diagnosis = incident.diagnosis
    return Explanation(
        incident=summary(incident),
        headline=told.headline,
        what=told.what,
        since=told.since,
        evidence=_evidence(diagnosis),
        against=list(diagnosis.against),
        missing=list(diagnosis.missing),
        rivals=[
            RivalRow(cause=r.cause, entity=str(r.entity), score=round(r.score, 3), behind_because=r.behind_because)
            for r in sorted(diagnosis.rivals, key=lambda rival: -rival.score)
        ],
        ruled_out=_earlier(events, diagnosis.cause),
        operations=_operations(incident, events),
        verifications=_verifications(events),
        served=told.served,
        cost=incident.cost,
        todo=[line for line in told.todo if "fleetwarden explain" not in line],
        timeline=[TimelineRow(at=e.at, type=type(e).__name__, says=wording.transition(e, incident)) for e in events],
    )


def named(incidents: Sequence[Incident], text: str) -> Incident | None:
    """The incident that `text` names: its id, the only id that begins so, or `last` for the one opened last."""
    if text == LAST:
        return incidents[-1] if incidents else None
    exact = next((incident for incident in incidents if incident.id == text), None)
    begins = [incident for incident in incidents if text and incident.id.startswith(text)]
    return exact or (begins[0] if len(begins) == 1 else None)


def not_found(incidents: Sequence[Incident], text: str) -> str:
    """Why `text` names no incident, and which ids were perhaps meant."""
    if not incidents:
        return "there is no incident in this journal yet"
    ids = [incident.id for incident in incidents]
    begins = [name for name in ids if text and name.startswith(text)]
    if begins:
        return f"{text!r} begins {len(begins)} incidents: {', '.join(begins[-_SUGGESTED:])}; name one in full"
    holds = [name for name in ids if text and text in name]
    close = holds[-_SUGGESTED:] or get_close_matches(text, ids, _SUGGESTED, cutoff=0.5) or ids[-_SUGGESTED:]
    return f"no incident is called {text!r}; there are, among others: {', '.join(close)} (or say `last`)"


def _evidence(diagnosis: Diagnosis) -> list[EvidenceRow]:
    return [
        EvidenceRow(
            symptom=finding.symptom,
            entity=str(finding.entity),
            since=finding.since,
            severity=round(finding.severity, 3),
            signal=item.signal,
            says=item.says,
            value=_finite(item.value),
            expected=_finite(item.expected),
            unit=item.unit,
        )
        for finding in sorted(diagnosis.explains, key=lambda finding: -finding.severity)
        for item in finding.evidence
    ]


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _earlier(events: Iterable[IncidentEvent], cause: str) -> list[str]:
    """What the incident was taken for before, and when that changed."""
    lines: list[str] = []
    before = ""
    for event in events:
        if not isinstance(event, Opened | Rediagnosed):
            continue
        if before and event.diagnosis.cause != before:
            lines.append(f"{before}: later evidence spoke for {event.diagnosis.cause}")
        before = event.diagnosis.cause
    return [line for line in lines if not line.startswith(f"{cause}:")]


def _operations(incident: Incident, events: Iterable[IncidentEvent]) -> list[OperationRow]:
    because = {event.key: event.says for event in events if isinstance(event, Withdrawn)}
    rows = [_operation(o, o.outcome.status if o.outcome else "pending", _detail(o)) for o in incident.operations]
    rows += [_operation(operation, "withdrawn", because.get(operation.key, "")) for operation in incident.withdrawn]
    return sorted(rows, key=lambda row: row.intended_at)


def _operation(operation: Operation, outcome: str, detail: str) -> OperationRow:
    return OperationRow(
        key=operation.key,
        attempt=operation.attempt,
        step=operation.step,
        verb=operation.action.verb,
        target=str(operation.action.target),
        arguments=dict(operation.action.arguments),
        intended_at=operation.intended_at,
        finished_at=operation.finished_at,
        outcome=outcome,
        detail=detail,
    )


def _detail(operation: Operation) -> str:
    return operation.outcome.detail if operation.outcome else ""


def _verifications(events: Iterable[IncidentEvent]) -> list[VerificationRow]:
    rows: list[VerificationRow] = []
    began: float | None = None
    for event in events:
        if isinstance(event, VerificationStarted):
            began = event.at
        elif began is not None and isinstance(event, Ended | RollbackStarted):
            verdict = "recovered" if isinstance(event, Ended) and event.state == "resolved" else "not_recovered"
            rows.append(VerificationRow(began_at=began, ended_at=event.at, verdict=verdict, says=plainly(event.says)))
            began = None
    if began is not None:
        rows.append(VerificationRow(began_at=began, ended_at=None, verdict="under_way", says=""))
    return rows
