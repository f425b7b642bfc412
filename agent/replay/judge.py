"""Judge: the rows of a replay held against the truth. Pure.

A row is about a fault when it is on the fault's target (on anything where the target is `all`) and began while the fault
lasted or within `AFTERMATH` after it; of two faults that fit, the later one. What began outside all faults is false.
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from statistics import median

from agent.replay.rows import Record, Row
from agent.replay.truth import EVERYWHERE, Fault
from serving.fleet.entity import Entity, EntityKind

AFTERMATH = 60.0
"""Seconds after a fault in which what is seen on its target is its after-effect: queues empty, caches warm up."""


class Verdict(StrEnum):
    """How one fault was told."""

    RIGHT = "right"
    WRONG = "wrong"  # the first cause with enough evidence is not the right one
    NOT_ENOUGH = "not_enough_evidence"
    MISSED = "missed"


class FaultRow(Record):
    """One fault and what was made of it. Times are Unix seconds, `detect_seconds` from `start` to enough evidence.

    `also` are later incidents of other causes in the fault's time: consequences, or names that are wrong. `near_noise`:
    the effect is close to the recorded machine's noise, so that nothing said, or "not enough evidence", is honest too.
    """

    fault: str
    target: str
    start: float
    end: float
    expected: tuple[str, ...]
    near_noise: bool
    verdict: Verdict
    incident: str | None
    cause: str | None
    score: float | None
    detect_seconds: float | None
    also: tuple[str, ...]

    @property
    def good(self) -> bool:
        """Whether nothing is to be said against how it was told."""
        return self.verdict is Verdict.RIGHT or (self.near_noise and self.verdict in {Verdict.NOT_ENOUGH, Verdict.MISSED})


class Totals(Record):
    """The sums of a comparison with the truth; docs/replay.md says how each is counted."""

    faults: int
    found: int
    right_cause_first: int
    not_enough_evidence: int
    false_incidents: int
    destructive_steps_on_healthy: int
    detect_seconds_p50: float | None
    detect_seconds_max: float | None


class Judgement(Record):
    """Everything about one recording. `false` and `destructive` are ids of incidents."""

    faults: tuple[FaultRow, ...]
    false: tuple[str, ...]
    destructive: tuple[str, ...]
    totals: Totals

    @property
    def good(self) -> bool:
        """Whether all was found and rightly named, and nothing else was raised or endangered."""
        return all(fault.good for fault in self.faults) and not self.false and not self.destructive


def judge(rows: Iterable[Row], faults: Sequence[Fault]) -> Judgement:
    """Hold the rows of a replay against the faults that were made."""
    all_rows = tuple(rows)
    about = {row.incident: _fault_of(row, faults) for row in all_rows}
    judged = tuple(
        _judged(fault, [row for row in all_rows if about[row.incident] is fault] or _still_open(fault, all_rows))
        for fault in faults
    )
    false = tuple(row.incident for row in all_rows if about[row.incident] is None)
    destructive = [row for row in all_rows for _ in range(_destructive_on_healthy(row, faults))]
    delays = [fault.detect_seconds for fault in judged if fault.detect_seconds is not None]
    totals = Totals(
        faults=len(faults),
        found=sum(fault.verdict in {Verdict.RIGHT, Verdict.WRONG} for fault in judged),
        right_cause_first=sum(fault.verdict is Verdict.RIGHT for fault in judged),
        not_enough_evidence=sum(
            fault.verdict is Verdict.NOT_ENOUGH or (fault.near_noise and fault.verdict is Verdict.MISSED) for fault in judged
        ),
        false_incidents=len(false),
        destructive_steps_on_healthy=len(destructive),
        detect_seconds_p50=round(median(delays), 1) if delays else None,
        detect_seconds_max=round(max(delays), 1) if delays else None,
    )
    return Judgement(
        faults=judged, false=false, destructive=tuple(dict.fromkeys(row.incident for row in destructive)), totals=totals
    )


def _fault_of(row: Row, faults: Sequence[Fault]) -> Fault | None:
    """The fault that a row is about: the latest that covers the moment at which it had enough evidence."""
    at = row.enough_at if row.enough_at is not None else row.first_seen
    return next((fault for fault in reversed(faults) if _covers(fault, row.entity, at)), None)


def _covers(fault: Fault, entity: str, at: float) -> bool:
    inside = fault.start <= at <= fault.end + AFTERMATH
    return inside and (fault.target == EVERYWHERE or Entity.parse(entity).name == fault.target)


def _still_open(fault: Fault, rows: Iterable[Row]) -> list[Row]:
    """The row that was still open from before when the fault began, and showed the fault's cause anew."""
    return [row for row in rows if row.enough and _named(row, fault) and _anew(fault, row) is not None]


def _anew(fault: Fault, row: Row) -> float | None:
    """When a row's cause was first seen in the fault's time."""
    began = (begin for begin, _ in row.spells if _covers(fault, row.entity, begin))
    return next(began, None)


def _detected(fault: Fault, row: Row) -> float:
    """When a row had enough evidence for the fault; for one that was open before, when it showed the cause again."""
    at = row.enough_at if row.enough_at is not None else row.first_seen
    return at if at >= fault.start else (_anew(fault, row) or at)


def _judged(fault: Fault, about: Sequence[Row]) -> FaultRow:
    sure = sorted((row for row in about if row.enough), key=lambda row: _detected(fault, row))
    first = sure[0] if sure else None
    if first is None:
        verdict = Verdict.NOT_ENOUGH if about else Verdict.MISSED
    else:
        verdict = Verdict.RIGHT if _named(first, fault) else Verdict.WRONG
    shown = first or (about[0] if about else None)
    return FaultRow(
        fault=fault.kind,
        target=fault.target,
        start=fault.start,
        end=fault.end,
        expected=fault.expected.causes,
        near_noise=fault.expected.optional,
        verdict=verdict,
        incident=shown.incident if shown else None,
        cause=shown.cause if shown else None,
        score=shown.score if shown else None,
        detect_seconds=round(_detected(fault, first) - fault.start, 1) if first else None,
        also=tuple(f"{row.cause} on {row.entity}" for row in sure[1:]),
    )


def _named(row: Row, fault: Fault) -> bool:
    return row.cause in fault.expected.causes and Entity.parse(row.entity).kind is fault.on


def _destructive_on_healthy(row: Row, faults: Sequence[Fault]) -> int:
    """How many destructive steps the row proposes for an engine that no fault had made sick at that time."""
    at = row.decided_at if row.decided_at is not None else row.first_seen
    sick = any(fault.expected.sick and _covers(fault, row.entity, at) for fault in faults)
    if sick and Entity.parse(row.entity).kind is EntityKind.ENGINE:
        return 0
    return sum(step.destructive for step in row.would_do)
