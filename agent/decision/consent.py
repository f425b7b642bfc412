"""Consent: how far the warden may go on its own, and what people have said to it. Pure."""

from agent.decision.decision import Reason
from agent.decision.guards import Held
from agent.decision.state import FleetState
from agent.incident import Approval, Incident
from runbooks.runbook import Autonomy, Runbook


def consent(incident: Incident, runbook: Runbook, state: FleetState, would: str) -> Held | None:
    """Why the next attempt may not begin without people, or None. `would` says what it would do first."""
    cell = state.cell_of(incident.entity)
    granted = state.policy.granted(runbook, cell)
    if granted is Autonomy.OBSERVE:
        return Held(Reason.AUTONOMY_OBSERVE, f"the warden only observes here (runbook {runbook.name}, cell {cell})")
    if not runbook.steps:
        return Held(
            Reason.AUTONOMY_RECOMMEND, f"no repair of the warden's helps against {incident.cause}. {runbook.escalate}"
        )
    if granted is Autonomy.RECOMMEND:
        return Held(Reason.AUTONOMY_RECOMMEND, f"{would}; it is only recommended (runbook {runbook.name}, cell {cell})")
    if granted is Autonomy.AUTO:
        return None
    return _asked(incident, state, would)


def waits_for_answer(incident: Incident, state: FleetState) -> bool:
    """Whether people were asked for the next attempt and may still answer, so that they need not be asked again."""
    approval = incident.approval
    usable = approval is not None and not _void(approval, incident, state)
    return usable and approval is not None and approval.approved is None and state.now < approval.expires_at


def _asked(incident: Incident, state: FleetState, would: str) -> Held | None:
    approval = incident.approval
    if approval is None:
        return Held(Reason.NEEDS_APPROVAL, f"{would}, once a person approves")
    if approval.approved is False:
        return Held(Reason.REJECTED, f"{approval.by or 'a person'} said no to the repair")
    expired = state.now >= approval.expires_at
    if _void(approval, incident, state) or (approval.approved and expired):
        return Held(Reason.NEEDS_APPROVAL, f"{would}, once a person approves; the earlier approval does not count any more")
    if approval.approved:
        return None
    if expired:
        asked = approval.expires_at - approval.asked_at
        return Held(Reason.APPROVAL_EXPIRED, f"nobody answered within {asked:.0f} s whether the repair may be done")
    left = approval.expires_at - state.now
    return Held(Reason.NEEDS_APPROVAL, f"{would}, once a person approves; {left:.0f} s are left to answer")


def _void(approval: Approval, incident: Incident, state: FleetState) -> bool:
    """An approval is good for one attempt, and not across a trip of the breaker."""
    used = any(operation.intended_at >= approval.asked_at for operation in incident.operations)
    return used or approval.asked_at < state.breaker.voids_before
