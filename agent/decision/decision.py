"""Decision: act, wait, ask or refuse, always with a typed reason. Doing nothing is a decision too."""

from dataclasses import dataclass
from enum import StrEnum

from actuators.action import Action


class Verdict(StrEnum):
    """What to do about an incident now."""

    ACT = "act"
    WAIT = "wait"
    ASK = "ask"
    REFUSE = "refuse"


class Reason(StrEnum):
    """Why. Each value appears in one place of agent.decision only, so a reader can go from a record to its rule."""

    # act
    STEP_DUE = "step_due"
    ROLLBACK_DUE = "rollback_due"
    # wait
    STEP_HOLDING = "step_holding"  # a step's `until` is not true yet
    VERIFYING = "verifying"
    OUTCOME_UNKNOWN = "outcome_unknown"
    EVIDENCE_THIN = "evidence_thin"
    TARGET_BLIND = "target_blind"  # the target cannot be seen: no repair is decided there
    EXPLAINED_BY_REPAIR = "explained_by_repair"  # our own repair of the target makes it look so
    SERVING_BUDGET = "serving_budget"
    TOO_MANY_REPAIRS = "too_many_repairs"
    COOLING_DOWN = "cooling_down"
    BREAKER_OPEN = "breaker_open"
    CHANGE_FREEZE = "change_freeze"
    PAUSED = "paused"  # the big red button
    # ask
    NEEDS_APPROVAL = "needs_approval"
    # refuse
    AUTONOMY_OBSERVE = "autonomy_observe"
    AUTONOMY_RECOMMEND = "autonomy_recommend"
    NO_RUNBOOK = "no_runbook"
    GUARD_FALSE = "guard_false"
    GUARD_UNREADABLE = "guard_unreadable"
    OPTED_OUT = "opted_out"
    REJECTED = "rejected"
    APPROVAL_EXPIRED = "approval_expired"
    ATTEMPTS_SPENT = "attempts_spent"
    INEFFECTIVE = "ineffective"
    CAUSE_RULED_OUT = "cause_ruled_out"  # a probe step answered otherwise than the cause predicts
    STEP_FAILED = "step_failed"
    HANDED_OVER = "handed_over"  # the runbook has done all that it can; the rest is for a person
    ALREADY_COVERED = "already_covered"  # another incident's action on the target covers this one


@dataclass(frozen=True, slots=True)
class Decision:
    """What was decided for one incident at one moment.

    `says` is the reason in words with its numbers. `action` and `step` are what is done, or would be if it were allowed.
    """

    verdict: Verdict
    reason: Reason
    says: str
    step: str | None = None
    action: Action | None = None
