"""Outlook: what a message about an incident says in one word, namely who has to do something now.

From it follows when an incident that is told once is told, and when that is worth a second line.
"""

from enum import StrEnum

from agent.decision.decision import Reason, Verdict
from agent.incident import Ending, Incident, IncidentState


class Outlook(StrEnum):
    """Who has to do something about an incident."""

    WORKING = "working"  # the warden: it is repairing, or waits for what may still come
    ASKS = "asks"  # a person is asked to approve
    RECOMMENDS = "recommends"  # a person: the warden may not, or cannot, do what is needed
    GAVE_UP = "gave_up"  # a person: escalated
    REPAIRED = "repaired"  # nobody
    HEALED = "healed"  # nobody: it went away by itself
    DISMISSED = "dismissed"  # nobody: not what it seemed, or part of another incident


NEEDS_PERSON = frozenset({Outlook.ASKS, Outlook.RECOMMENDS, Outlook.GAVE_UP})
OVER = frozenset({Outlook.REPAIRED, Outlook.HEALED, Outlook.DISMISSED})

# Refusals that leave the incident open and that only a person can lift.
_ONLY_A_PERSON = frozenset({Reason.AUTONOMY_RECOMMEND, Reason.NO_RUNBOOK, Reason.GUARD_UNREADABLE, Reason.APPROVAL_EXPIRED})


def outlook(incident: Incident) -> Outlook:
    """Who has to do something about `incident` now."""
    match incident.state:
        case IncidentState.RESOLVED:
            return Outlook.REPAIRED if incident.ending is Ending.REPAIRED else Outlook.HEALED
        case IncidentState.SUPPRESSED:
            return Outlook.DISMISSED
        case IncidentState.ESCALATED:
            return Outlook.GAVE_UP if incident.closed_at is None else Outlook.HEALED
    if incident.approval is not None and incident.approval.approved is None:
        return Outlook.ASKS
    decision = incident.decision
    if decision is not None and decision.verdict is Verdict.REFUSE and decision.reason in _ONLY_A_PERSON:
        return Outlook.RECOMMENDS
    return Outlook.WORKING


def worth_telling(incident: Incident, now: float, patience: float) -> bool:
    """Whether an incident that nobody was told of is due to be told.

    It is when a person is needed, when it is over, or when it has been open for `patience` seconds, whichever comes
    first. One that was merged into another is left to the other's message.
    """
    if incident.ending is Ending.MERGED:
        return False
    return outlook(incident) is not Outlook.WORKING or now - incident.opened_at >= patience


def worth_a_second_line(told: Incident, incident: Incident) -> bool:
    """Whether `incident` has come out differently from what was said when it stood as `told`.

    A person who was asked, or recommended something, and under whom nothing was done since, knows that it is theirs: the
    escalation that follows is not told again. That the warden is working is never worth a second line. A new request for
    approval is, as it has a new deadline.
    """
    said, is_now = outlook(told), outlook(incident)
    if is_now is Outlook.WORKING or incident.ending is Ending.MERGED:
        return False
    if is_now is Outlook.GAVE_UP and said in {Outlook.ASKS, Outlook.RECOMMENDS}:
        return incident.attempt > told.attempt
    if is_now is Outlook.ASKS and said is Outlook.ASKS:
        return (
            incident.approval is not None
            and told.approval is not None
            and incident.approval.asked_at > told.approval.asked_at
        )
    return is_now is not said
