"""Rollback: taking back what a failed attempt has changed, newest first, then the runbook's own rollback steps. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

from actuators.action import Action, OutcomeStatus
from agent.decision.facts import facts, last_change
from agent.decision.state import ROLLED_BACK, FleetState
from agent.decision.steps import RETRY_FIRST, Change, Specs, Stage, StepProgress, actions_of, changes
from agent.incident import Incident, Operation
from runbooks.conditions import Answer, Truth, compiled
from runbooks.runbook import Runbook, Step

SETTLE = 30.0
"""Seconds for which a rollback waits for telemetry to tell whether a change had better stay (`undo_when`)."""
MAX_TRIES = 3
"""A failed undo is tried so often (while a retry may help); after that a person is told what is left."""


@dataclass(frozen=True, slots=True)
class _Planned:
    step: str
    action: Action


def rollback_progress(
    incident: Incident, runbook: Runbook | None, state: FleetState, specs: Specs, *, now: float
) -> StepProgress:
    """Where the rollback of the present attempt stands: DUE with its action, HOLDING before another try, or COMPLETE."""
    if ROLLED_BACK in incident.passed:
        return StepProgress(Stage.COMPLETE, _over(incident, runbook, state, specs))
    unsettled = _unsettled(incident, runbook, state, specs, now)
    if unsettled is not None:
        return unsettled
    for planned in _plan(incident, runbook, state, specs):
        tried = [o for o in incident.operations if o.attempt == incident.attempt and _is_of(o, planned)]
        if not tried:
            says = f"rollback: {planned.action.verb} on {planned.action.target} is due"
            return StepProgress(Stage.DUE, says, planned.step, planned.action)
        again = _again(planned, tried, now)
        if again is not None:
            return again
    return StepProgress(Stage.COMPLETE, _over(incident, runbook, state, specs))


def left_changed(incident: Incident, runbook: Runbook | None, state: FleetState, specs: Specs) -> tuple[str, ...]:
    """What the incident changed and nothing will take back any more, as sentences for the person who takes over."""
    return tuple(
        f"{change.operation.action.verb} on {change.operation.action.target} still holds"
        + (f" ({answer.why})" if (answer := _wanted(change, incident, runbook, state)) is not None else "")
        for change in changes(incident, specs)
    )


def _plan(incident: Incident, runbook: Runbook | None, state: FleetState, specs: Specs) -> Iterator[_Planned]:
    for change in changes(incident, specs):
        answer = _wanted(change, incident, runbook, state)
        if answer is None or answer:
            yield _Planned(f"undo.{change.operation.step}", change.undo)
    for step in runbook.rollback if runbook else ():
        for action in actions_of(step, incident, state, specs):
            planned, mine = _Planned(step.id, action), (o for o in incident.operations if o.attempt == incident.attempt)
            if not any(_is_of(o, planned) and _is_done(o) for o in mine):
                yield planned


def _is_of(operation: Operation, planned: _Planned) -> bool:
    return operation.step == planned.step and operation.action.target == planned.action.target


def _unsettled(
    incident: Incident, runbook: Runbook | None, state: FleetState, specs: Specs, now: float
) -> StepProgress | None:
    """A short wait while telemetry has not told yet whether a change had better stay."""
    waited = now - (incident.step_since if incident.step_since is not None else now)
    answers = (_wanted(change, incident, runbook, state) for change in changes(incident, specs))
    unread = next((a for a in answers if a is not None and a.truth is Truth.UNREADABLE), None)
    if unread is None or waited >= SETTLE:
        return None
    return StepProgress(Stage.HOLDING, f"rollback: {unread.why}; it is asked for {SETTLE - waited:.0f} s more")


def _wanted(change: Change, incident: Incident, runbook: Runbook | None, state: FleetState) -> Answer | None:
    """Whether a change is to be taken back, by its step's `undo_when`; None when nothing is asked."""
    step = _step(runbook, change.operation.step)
    if step is None or step.undo_when is None:
        return None
    return compiled(step.undo_when).holds(facts(incident, state, since=last_change(incident)))


def _step(runbook: Runbook | None, name: str) -> Step | None:
    return next((step for step in runbook.steps if step.id == name), None) if runbook else None


def _again(planned: _Planned, tried: list[Operation], now: float) -> StepProgress | None:
    """The next try of an undo that failed and may succeed yet; None when there is none."""
    newest = tried[-1]
    if newest.outcome is None or newest.outcome.status is not OutcomeStatus.FAILED or newest.outcome.permanent:
        return None
    if len(tried) >= MAX_TRIES:
        return None
    wait = (newest.finished_at or now) + RETRY_FIRST * len(tried) - now
    if wait > 0:
        says = f"rollback: {planned.action.verb} failed ({newest.outcome.detail}); try {len(tried) + 1} in {wait:.0f} s"
        return StepProgress(Stage.HOLDING, says, planned.step)
    says = f"rollback: {planned.action.verb} on {planned.action.target} is due again, try {len(tried) + 1}"
    return StepProgress(Stage.DUE, says, planned.step, planned.action)


def _is_done(operation: Operation) -> bool:
    return operation.outcome is not None and operation.outcome.status is OutcomeStatus.DONE


def _over(incident: Incident, runbook: Runbook | None, state: FleetState, specs: Specs) -> str:
    left = left_changed(incident, runbook, state, specs)
    return f"the rollback is over; {'; '.join(left)}" if left else "the rollback is over; nothing is left changed"
