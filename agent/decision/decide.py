"""Decide: an incident, its runbook and fresh state give one decision with its reason. Pure; it never acts.

The guards are asked in the order of the lines below. Three things stop everything, recoveries too: the big red button,
an opt-out, and a target that cannot be seen. The breaker, the budgets and the waits hold what takes something away; they
never hold what gives capacity back. An operation whose outcome is unknown is never done again.

Each step of the loop asks `advance` first (again, until it has nothing more to write), then `decide`, then `ending_of`.
"""

from collections.abc import Callable, Iterator
from types import MappingProxyType

from actuators.action import Action
from agent.decision import guards
from agent.decision.consent import consent
from agent.decision.decision import Decision, Reason, Verdict
from agent.decision.guards import Held
from agent.decision.policy import Policy
from agent.decision.rollback import left_changed, rollback_progress
from agent.decision.state import ROLLED_BACK, FleetState
from agent.decision.steps import UNKNOWN_LIMIT, Specs, Stage, StepProgress, changes, first_step, progress, reached
from agent.decision.verify import Recovery, Verified, judge_recovery
from agent.incident import (
    ENDED,
    Ended,
    Ending,
    Incident,
    IncidentEvent,
    IncidentState,
    RollbackStarted,
    StepPassed,
    VerificationStarted,
)
from runbooks.runbook import Runbook

GONE_FOR = 120.0
"""Seconds for which a cause must stay away after a rollback before the incident is over: several detector holds."""

_WAITS = frozenset(
    {
        Reason.OUTCOME_UNKNOWN,
        Reason.EVIDENCE_THIN,
        Reason.TARGET_BLIND,
        Reason.EXPLAINED_BY_REPAIR,
        Reason.SERVING_BUDGET,
        Reason.TOO_MANY_REPAIRS,
        Reason.COOLING_DOWN,
        Reason.BREAKER_OPEN,
        Reason.CHANGE_FREEZE,
        Reason.PAUSED,
    }
)

ENDINGS = MappingProxyType(
    {
        Reason.ATTEMPTS_SPENT: (IncidentState.ESCALATED, Ending.GAVE_UP),
        Reason.INEFFECTIVE: (IncidentState.ESCALATED, Ending.GAVE_UP),
        Reason.STEP_FAILED: (IncidentState.ESCALATED, Ending.GAVE_UP),
        Reason.HANDED_OVER: (IncidentState.ESCALATED, Ending.HANDED_OVER),
        Reason.APPROVAL_EXPIRED: (IncidentState.ESCALATED, Ending.GAVE_UP),
        Reason.REJECTED: (IncidentState.SUPPRESSED, Ending.REJECTED),
        Reason.CAUSE_RULED_OUT: (IncidentState.SUPPRESSED, Ending.RULED_OUT),
    }
)
"""The decisions that end an incident, and how. Every other one leaves it open."""


def decide(
    incident: Incident, runbook: Runbook | None, state: FleetState, policy: Policy, specs: Specs, *, now: float
) -> Decision:
    """What to do about `incident` at `now`, and why.

    `state` must have been built (or taken `with_incidents`) since the last action or reserved attempt of any incident.
    `policy` is the one that the state was built with. Raises ValueError for another one, and for an ended incident.
    """
    if incident.state in ENDED:
        raise ValueError(f"incident {incident.id} has ended ({incident.state}); there is nothing to decide")
    if policy != state.policy:
        raise ValueError("the state was built with another policy; build it anew")
    held = guards.paused(state)
    if held is not None:
        return _no(held)
    if incident.pending is not None:
        return _outcome_unknown(incident, now)
    match incident.state:
        case IncidentState.ACTING:
            return _next_step(incident, runbook, state, specs, now)
        case IncidentState.VERIFYING:
            return Decision(Verdict.WAIT, Reason.VERIFYING, _recovery(incident, runbook, state, now).says)
        case IncidentState.ROLLING_BACK:
            back = rollback_progress(incident, runbook, state, specs, now=now)
            if back.stage is not Stage.COMPLETE:
                return _next_undo(incident, back, state)
    return _begin(incident, runbook, state, specs)


def advance(
    incident: Incident, runbook: Runbook | None, state: FleetState, specs: Specs, *, now: float
) -> IncidentEvent | None:
    """The next thing to write about an incident that needs no action: a step is over, a rollback or verification begins.

    None when there is nothing to write, which is always so while an outcome is unknown.
    """
    if incident.pending is not None:
        return None
    if incident.state is IncidentState.ACTING:
        return _after_step(incident, progress(incident, runbook, state, specs, now=now), now)
    if incident.state is IncidentState.VERIFYING:
        return _after_verification(incident, _recovery(incident, runbook, state, now), now)
    if incident.state is IncidentState.ROLLING_BACK:
        return _after_rollback(incident, rollback_progress(incident, runbook, state, specs, now=now), specs, now)
    return None


def ending_of(incident: Incident, decision: Decision) -> tuple[IncidentState, Ending] | None:
    """How `decision` ends the incident, if it does. A failed step is rolled back first, unless its outcome is unknown."""
    rolls_back = incident.state is IncidentState.ACTING and incident.pending is None
    if decision.reason is Reason.STEP_FAILED and rolls_back:
        return None
    return ENDINGS.get(decision.reason)


def _begin(incident: Incident, runbook: Runbook | None, state: FleetState, specs: Specs) -> Decision:
    """The first step of a first or further attempt, or why it may not begin."""
    if runbook is None:
        return Decision(Verdict.REFUSE, Reason.NO_RUNBOOK, f"there is no runbook for {incident.cause}; a person must look")
    first = first_step(incident, runbook, state, specs)
    held = next(_objections(incident, runbook, state, specs, first), None)
    if held is not None:
        left = left_changed(incident, runbook, state, specs) if held.reason in ENDINGS else ()
        says = f"{held.says} Left as it is: {'; '.join(left)}." if left else held.says
        return _no(Held(held.reason, says), first)
    if first.action is None:
        return Decision(Verdict.REFUSE, Reason.HANDED_OVER, f"{first.says}. {runbook.escalate}")
    return Decision(Verdict.ACT, Reason.STEP_DUE, first.says, first.step, first.action)


def _objections(
    incident: Incident, runbook: Runbook, state: FleetState, specs: Specs, first: StepProgress
) -> Iterator[Held]:
    """All that speaks against beginning now, the weightiest first."""
    asked: tuple[Callable[[], Held | None], ...] = (
        lambda: guards.opted_out(incident, state, *reached(incident, runbook, state)),
        lambda: guards.blind(incident, state),
        lambda: guards.covered(incident, runbook, state, specs),
        lambda: guards.thin_evidence(incident, runbook, specs),
        lambda: guards.attempts_spent(incident, runbook),
        lambda: guards.ineffective(incident, runbook, state, specs),
        lambda: guards.conditions(incident, runbook, state),
        lambda: consent(incident, runbook, state, first.says),
        lambda: guards.frozen(incident, state),
        lambda: guards.cooling_down(incident, runbook, state, specs),
        lambda: guards.breaker_open(incident, state),
        lambda: guards.too_many(incident, state),
        lambda: _capacity(incident, first.action, state, specs),
    )
    for question in asked:
        held = question()
        if held is not None:
            yield held


def _next_step(incident: Incident, runbook: Runbook | None, state: FleetState, specs: Specs, now: float) -> Decision:
    """The present step of an attempt under way."""
    at = progress(incident, runbook, state, specs, now=now)
    if at.stage is Stage.RULED_OUT:
        return Decision(Verdict.REFUSE, Reason.CAUSE_RULED_OUT, at.says, at.step)
    if at.stage is Stage.HANDED_OVER:
        left = left_changed(incident, runbook, state, specs)
        kept = f" Left as it is: {'; '.join(left)}." if left else ""
        advice = f" {runbook.escalate}" if runbook else ""
        return Decision(Verdict.REFUSE, Reason.HANDED_OVER, f"{at.says}.{kept}{advice}", at.step)
    if at.stage in {Stage.FAILED, Stage.LATE}:
        return Decision(Verdict.REFUSE, Reason.STEP_FAILED, at.says, at.step)
    if at.stage is not Stage.DUE or at.action is None:
        return Decision(Verdict.WAIT, Reason.STEP_HOLDING, at.says, at.step)
    held = guards.opted_out(incident, state, at.action.target) or guards.blind(incident, state)
    spec = specs.get(at.action.verb)
    if held is None and not (spec is not None and (spec.harmless or spec.recovery)):
        held = guards.breaker_open(incident, state) or _capacity(incident, at.action, state, specs)
    if held is not None:
        return _no(held, at)
    return Decision(Verdict.ACT, Reason.STEP_DUE, at.says, at.step, at.action)


def _next_undo(incident: Incident, back: StepProgress, state: FleetState) -> Decision:
    """The next action of a rollback under way."""
    held = guards.opted_out(incident, state) or guards.blind(incident, state)
    if held is not None:
        return _no(held, back)
    if back.action is None:
        return Decision(Verdict.WAIT, Reason.STEP_HOLDING, back.says, back.step)
    return Decision(Verdict.ACT, Reason.ROLLBACK_DUE, back.says, back.step, back.action)


def _capacity(incident: Incident, action: Action | None, state: FleetState, specs: Specs) -> Held | None:
    """The serving budget, for a verb that takes capacity, or of which nothing is known."""
    if action is None or (action.verb in specs and not specs[action.verb].takes_capacity):
        return None
    return guards.serving_budget(incident, action, state, specs)


def _outcome_unknown(incident: Incident, now: float) -> Decision:
    """Look it up, never repeat it; and after a while leave it to a person."""
    operation = incident.pending
    assert operation is not None  # noqa: S101 - the caller asked
    waited = now - operation.intended_at
    what = f"what became of {operation.action.verb} on {operation.action.target} (step {operation.step}) is not known"
    if waited > UNKNOWN_LIMIT:
        says = f"{what} after {waited:.0f} s: it is not repeated, a person must look"
        return Decision(Verdict.REFUSE, Reason.STEP_FAILED, says, operation.step, operation.action)
    return Decision(
        Verdict.WAIT, Reason.OUTCOME_UNKNOWN, f"{what}; it is looked up, not repeated", operation.step, operation.action
    )


def _recovery(incident: Incident, runbook: Runbook | None, state: FleetState, now: float) -> Recovery:
    if runbook is None:
        return Recovery(
            Verified.NO_DATA, f"the runbook {incident.runbook!r} is not loaded any more: nothing can be verified"
        )
    since = incident.step_since if incident.step_since is not None else incident.opened_at
    return judge_recovery(incident, runbook, state, now=now, since=since)


def _after_step(incident: Incident, at: StepProgress, now: float) -> IncidentEvent | None:
    match at.stage:
        case Stage.PASSED:
            return StepPassed(incident.id, now, at.step or "", at.says)
        case Stage.FAILED | Stage.LATE:
            return RollbackStarted(incident.id, now, at.says)
        case Stage.COMPLETE:
            return VerificationStarted(incident.id, now)
        case _:
            return None


def _after_verification(incident: Incident, recovery: Recovery, now: float) -> IncidentEvent | None:
    match recovery.verified:
        case Verified.RECOVERED:
            return Ended(incident.id, now, IncidentState.RESOLVED, Ending.REPAIRED, recovery.says)
        case Verified.FAILED | Verified.NO_DATA:
            return RollbackStarted(incident.id, now, f"users are not shown to be served well again: {recovery.says}")
        case _:
            return None


def _after_rollback(incident: Incident, back: StepProgress, specs: Specs, now: float) -> IncidentEvent | None:
    if back.stage is not Stage.COMPLETE:
        return None
    if ROLLED_BACK not in incident.passed:
        return StepPassed(incident.id, now, ROLLED_BACK, back.says)
    gone = now - (incident.gone_since if incident.gone_since is not None else now)
    if gone < GONE_FOR or changes(incident, specs):
        return None
    says = f"{incident.cause} has stayed away for {gone:.0f} s since attempt {incident.attempt} was rolled back"
    return Ended(incident.id, now, IncidentState.RESOLVED, Ending.HEALED, says)


def _no(held: Held, at: StepProgress | None = None) -> Decision:
    """A decision not to act; `at` is what would have been done."""
    verdict = Verdict.WAIT if held.reason in _WAITS else Verdict.REFUSE
    if held.reason is Reason.NEEDS_APPROVAL:
        verdict = Verdict.ASK
    return Decision(verdict, held.reason, held.says, at.step if at else None, at.action if at else None)
