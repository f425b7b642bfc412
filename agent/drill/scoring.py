"""From the course of a drill to its card. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from agent.drill import judge
from agent.drill.card import Card, FaultRow, IncidentRow, Verdict
from agent.drill.judge import Matched, Plan, Verbs
from runbooks.drill import Drill, FleetKind


@dataclass(frozen=True, slots=True)
class Stop:
    """Why the watch ended. `verdict` None: as planned, so the incidents tell how it came out."""

    verdict: Verdict | None
    reasons: tuple[str, ...]


@dataclass(slots=True)
class Course:
    """What has happened in one run so far."""

    run: str
    drill: Drill
    fleet: FleetKind
    began_at: float
    plan: Plan = field(init=False)
    matched: Matched = field(default_factory=lambda: Matched({}))
    faults: tuple[FaultRow, ...] = ()
    failed: float | None = None
    steady_again_after: float | None = None
    unsteady: tuple[str, ...] = ()
    _told: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.plan = Plan(self.drill, (), ())

    def is_news(self, incident: str, state: str) -> bool:
        """Whether this state of the incident was not told yet; from now on it was."""
        news = self._told.get(incident) != state
        self._told[incident] = state
        return news


def card_of(course: Course, stop: Stop, verbs: Verbs, now: float) -> Card:
    """The scorecard of a run that ended by `stop`."""
    broken = course.plan.began is not None
    rows = list(judge.rows(course.plan, course.matched, verbs, now)) if broken else []
    undone = all(row.undone is not False for row in course.faults)
    reasons = [*stop.reasons]
    verdict = stop.verdict
    if verdict in {None, Verdict.FAILED}:
        reasons += [each for each in _shortcomings(course, rows) if each not in reasons]
        verdict = Verdict.FAILED if reasons or not undone else Verdict.PASSED
    if not undone:
        reasons.append("not everything could be undone: `fleetwarden drill recover` tries again")
    return Card(
        run=course.run,
        drill=course.drill.name,
        fleet=course.fleet,
        decoy=course.drill.expect.decoy,
        began_at=course.began_at,
        injected_at=course.plan.began,
        ended_at=now,
        verdict=verdict or Verdict.FAILED,
        reasons=reasons,
        faults=list(course.faults),
        incidents=rows,
        others=judge.others(course.matched),
        failed_requests=course.failed,
        undone=undone,
        steady_again_after=course.steady_again_after,
    )


def _shortcomings(course: Course, rows: list[IncidentRow]) -> Iterator[str]:
    for row in rows:
        yield from row.reasons
    most = course.drill.expect.failed_at_most
    if most is not None and course.failed is not None and course.failed > most:
        yield f"{course.failed:.0f} user requests failed; at most {most} were allowed"
    if course.steady_again_after is None:
        why = "; ".join(course.unsteady) or "it was not looked at"
        yield f"the fleet is not steady again {course.drill.limits.recover:.0f} s after the undo: {why}"
