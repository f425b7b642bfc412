"""Compare: a board held against an earlier one, saying only what differs by more than chance explains. Pure.

Two figures differ when their 95 % intervals do not overlap: stricter than a test at 5 % for one figure, which is right where
dozens are looked at together.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from agent.scoreboard.board import Board, FaultRow, HealthyRow
from agent.scoreboard.statistics import Frequency, Quantile, Rate

Figure = Rate | Frequency | Quantile


@dataclass(frozen=True, slots=True)
class Change:
    """One figure that is really other than before. `better`: in the direction that users would want."""

    row: str
    figure: str
    before: float
    now: float
    better: bool

    def __str__(self) -> str:
        return f"{self.row}, {self.figure}: {self.before:.3g} before, {self.now:.3g} now"


def compare(now: Board, before: Board) -> tuple[Change, ...]:
    """What changed beyond the intervals, what got worse first. Rows that only one of them has are left out."""
    found = [change for change in _changes(now, before) if change is not None]
    return tuple(sorted(found, key=lambda change: (change.better, change.row, change.figure)))


def lost_rows(now: Board, before: Board) -> tuple[str, ...]:
    """Faults and decoys that the earlier board has and this one lacks: nothing is known of them any more."""
    rows_now = {row.fault for row in now.faults} | {row.decoy for row in now.decoys}
    rows_then = [*(row.fault for row in before.faults), *(row.decoy for row in before.decoys)]
    return tuple(row for row in rows_then if row not in rows_now)


def _changes(now: Board, before: Board) -> Iterator[Change | None]:
    faults = {row.fault: row for row in (*before.faults, *before.groups, before.overall)}
    for row in (*now.faults, *now.groups, now.overall):
        if row.fault in faults:
            yield from _of_fault(row, faults[row.fault])
    decoys = {row.decoy: row for row in before.decoys}
    for decoy in now.decoys:
        if decoy.decoy in decoys:
            yield _change(decoy.decoy, "trials without anything false", decoy.quiet, decoys[decoy.decoy].quiet, more=True)
    yield from _of_healthy(now.healthy, before.healthy)


def _of_fault(now: FaultRow, before: FaultRow) -> Iterator[Change | None]:
    for figure in ("recall", "right_cause_first", "right_first_action", "recovered"):
        yield _change(now.fault, figure, getattr(now, figure), getattr(before, figure), more=True)
    for figure in ("detect_p50", "detect_p99", "isolate_p50", "recover_p50", "recover_p99"):
        yield _change(now.fault, figure, getattr(now, figure), getattr(before, figure), more=False)


def _of_healthy(now: HealthyRow, before: HealthyRow) -> Iterator[Change | None]:
    for figure in ("false_incidents", "false_destructive"):
        yield _change("healthy time", figure, getattr(now, figure), getattr(before, figure), more=False)


def _change(row: str, figure: str, now: Figure, before: Figure, *, more: bool) -> Change | None:
    """The change, if the intervals do not overlap. `more`: a larger value is better."""
    if now.value is None or before.value is None or now.low is None or before.high is None:
        return None
    if now.high is None or before.low is None or (now.low <= before.high and before.low <= now.high):
        return None
    return Change(row, figure, before.value, now.value, (now.value > before.value) is more)
