"""Rows: the incidents of a replay as plain records, for tables, JSON and pages. docs/replay.md tells their keys."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from pydantic import BaseModel, ConfigDict

from actuators.action import Scalar, VerbSpec
from agent.decision.decision import Decision, Reason, Verdict
from agent.diagnosis.diagnosis import Diagnosis
from agent.incident import Decided, IncidentEvent, Opened, Rediagnosed
from agent.replay.play import Played, Told
from runbooks.runbook import UNDO, Runbook, Step


class Record(BaseModel):
    """Frozen, and unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class NamedCause(Record):
    """What an incident was taken for, from `at` (Unix seconds) on."""

    at: float
    cause: str
    score: float
    enough: bool


class RivalRow(Record):
    """Another cause that was thought of."""

    cause: str
    entity: str
    score: float
    behind_because: str


class WouldDo(Record):
    """One step that the warden would have taken.

    `takes_back` names the earlier step that it undoes. `harmless`: it only asks. `destructive`: users of the target lose
    something by it.
    """

    step: str
    verb: str
    target: str
    arguments: dict[str, Scalar]
    takes_back: str | None = None
    harmless: bool = False
    destructive: bool = False


class Row(Record):
    """One incident. Times are Unix seconds; `after` is seconds from the beginning of the recording to `first_seen`.

    `cause`, `score`, `rivals`, `evidence` and `missing` are those of the first diagnosis with enough evidence; of the
    newest one where there never was enough (`enough` false). `enough_at` is when that diagnosis was made. `spells` are the
    times, from and to, in which that cause was diagnosed; `until` is when it last was, None when it still was at the end.
    `course` is what the incident was taken for, one after the other. `verdict`, `reason` and `says` are those of the
    decision that tells most (to act, else to ask or refuse, else to wait), `decided_at` its time. `would_do` is empty
    unless the warden would have acted, asked or recommended. `advice` is what the runbook tells a person who is called.
    """

    incident: str
    entity: str
    first_seen: float
    after: float
    enough_at: float | None
    until: float | None
    spells: tuple[tuple[float, float], ...]
    cause: str
    score: float
    enough: bool
    course: tuple[NamedCause, ...]
    rivals: tuple[RivalRow, ...]
    evidence: tuple[str, ...]
    missing: tuple[str, ...]
    verdict: str
    reason: str
    says: str
    decided_at: float | None
    would_do: tuple[WouldDo, ...]
    advice: str

    @property
    def destructive(self) -> bool:
        """Whether any proposed step takes something from users."""
        return any(step.destructive for step in self.would_do)


def rows(played: Played) -> tuple[Row, ...]:
    """One row per incident, in the order in which they opened."""
    return tuple(_row(incident, events, played) for incident, events in played.events.items())


def is_destructive(spec: VerbSpec | None) -> bool:
    """Whether a verb takes capacity or cannot be taken back. One that nothing is known of is taken as such."""
    if spec is None:
        return True
    return not spec.harmless and not spec.recovery and (spec.takes_capacity or spec.undo is None)


def _row(incident: str, events: Sequence[IncidentEvent], played: Played) -> Row:
    told = [(event.at, event.diagnosis) for event in events if isinstance(event, Opened | Rediagnosed)]
    at, best = next(((at, diagnosis) for at, diagnosis in told if diagnosis.enough), told[-1])
    spells = _spells(incident, told[0][0], (best.cause, best.entity), played)
    decided = _telling(events)
    decision = decided.decision if decided is not None else None
    runbook = played.runbooks.get(best.cause)
    return Row(
        incident=incident,
        entity=str(best.entity),
        first_seen=told[0][0],
        after=round(told[0][0] - played.begun, 3),
        enough_at=at if best.enough else None,
        until=None if spells and spells[-1][1] >= played.ended else (spells[-1][1] if spells else at),
        spells=spells,
        cause=best.cause,
        score=best.score,
        enough=best.enough,
        course=tuple(_course(told)),
        rivals=tuple(
            RivalRow(cause=r.cause, entity=str(r.entity), score=r.score, behind_because=r.behind_because)
            for r in best.rivals
        ),
        evidence=tuple(evidence.says for finding in best.explains for evidence in finding.evidence),
        missing=best.missing,
        verdict=str(decision.verdict) if decision else "",
        reason=str(decision.reason) if decision else "",
        says=decision.says if decision else "",
        decided_at=decided.at if decided else None,
        would_do=tuple(_would_do(decision, runbook, best, played.verbs)),
        advice=runbook.escalate.strip() if runbook is not None else "",
    )


def _course(told: Iterable[tuple[float, Diagnosis]]) -> Iterator[NamedCause]:
    """The causes that the incident was taken for one after the other; changes of the score alone are left out."""
    before: tuple[str, bool] | None = None
    for at, diagnosis in told:
        if (diagnosis.cause, diagnosis.enough) != before:
            yield NamedCause(at=at, cause=diagnosis.cause, score=diagnosis.score, enough=diagnosis.enough)
        before = (diagnosis.cause, diagnosis.enough)


def _telling(events: Iterable[IncidentEvent]) -> Decided | None:
    """The decision that tells most of what the warden would have done."""
    decided = [event for event in events if isinstance(event, Decided)]
    for wanted in ({Verdict.ACT}, {Verdict.ASK, Verdict.REFUSE}, {Verdict.WAIT}):
        for event in decided:
            if event.decision.verdict in wanted:
                return event
    return None


def _spells(incident: str, opened: float, told: Told, played: Played) -> tuple[tuple[float, float], ...]:
    """The times in which the cause was diagnosed, from the incident's opening until the next incident of the same."""
    later = (
        events[0].at
        for other, events in played.events.items()
        if other != incident
        and events[0].at > opened
        and isinstance(events[0], Opened)
        and (events[0].diagnosis.cause, events[0].diagnosis.entity) == told
    )
    end = min(later, default=float("inf"))
    return tuple((s.began, s.last) for s in played.spells.get(told, ()) if s.last >= opened and s.began < end)


def _would_do(
    decision: Decision | None, runbook: Runbook | None, diagnosis: Diagnosis, verbs: Mapping[str, VerbSpec]
) -> Iterator[WouldDo]:
    """The runbook's steps from the decided one on: what the warden would do as long as each goes as expected."""
    if decision is None or runbook is None or decision.action is None:
        return
    if decision.verdict not in {Verdict.ACT, Verdict.ASK} and decision.reason is not Reason.AUTONOMY_RECOMMEND:
        return
    names = [step.id for step in runbook.steps]
    first = names.index(decision.step) if decision.step in names else 0
    for step in runbook.steps[first:]:
        yield _as_planned(step, runbook, diagnosis, verbs)


def _as_planned(step: Step, runbook: Runbook, diagnosis: Diagnosis, verbs: Mapping[str, VerbSpec]) -> WouldDo:
    target = str(diagnosis.entity)
    if step.do == UNDO:
        taken_back = next((other for other in runbook.steps if other.id == step.arguments.get("step")), None)
        spec = verbs.get(taken_back.do) if taken_back else None
        verb = (spec.undo if spec else None) or UNDO
        return WouldDo(step=step.id, verb=verb, target=target, arguments={}, takes_back=str(step.arguments.get("step")))
    spec = verbs.get(step.do)
    return WouldDo(
        step=step.id,
        verb=step.do,
        target=target,
        arguments=dict(step.arguments),
        harmless=spec is not None and spec.harmless,
        destructive=is_destructive(spec),
    )
