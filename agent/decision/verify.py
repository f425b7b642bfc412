"""Verification: are users served well again? Judged by the runbook's conditions over fresh telemetry. Pure.

No data is not success: without enough answers, or with a measure that cannot be read, nothing is called recovered.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from agent.decision.facts import facts, last_change
from agent.decision.slo import Span
from agent.decision.state import FleetState
from agent.incident import Incident
from runbooks.conditions import Answer, Facts, Truth, compiled
from runbooks.runbook import Runbook, Verification

MIN_MOMENTS = 3
"""Samples inside the hold that must each satisfy the conditions: fewer cannot show that something held."""


class Verified(StrEnum):
    """What verification comes to."""

    RECOVERED = "recovered"
    NOT_YET = "not_yet"
    FAILED = "failed"
    NO_DATA = "no_data"  # time is up and too little could be read to tell


@dataclass(frozen=True, slots=True)
class Recovery:
    """The judgement and why, in words with its numbers."""

    verified: Verified
    says: str


def judge_recovery(incident: Incident, runbook: Runbook, state: FleetState, *, now: float, since: float) -> Recovery:
    """Whether the target has recovered by `now`, when verification began at `since`.

    Conditions on signals must be true at every sample of the last `hold` seconds; conditions on `slo` are true of those
    seconds as a whole, in which at least `min_requests` answers must have come.
    """
    wanted = runbook.verify
    waited = now - since
    if state.is_blind(incident.entity):
        return Recovery(Verified.NOT_YET, f"{incident.entity} cannot be seen, so nothing can be said of its recovery")
    if waited < wanted.hold:
        return Recovery(Verified.NOT_YET, f"recovery must hold for {wanted.hold:.0f} s; {waited:.0f} s have passed")
    worst, says = _judged(incident, wanted, state, now)
    if worst is Truth.TRUE:
        return Recovery(Verified.RECOVERED, says)
    if waited <= wanted.within:
        return Recovery(Verified.NOT_YET, f"{says}; {wanted.within - waited:.0f} s left")
    late = f"{says}, {waited:.0f} s after the last step (allowed {wanted.within:.0f} s)"
    return Recovery(Verified.NO_DATA if worst is Truth.UNREADABLE else Verified.FAILED, late)


def _judged(incident: Incident, wanted: Verification, state: FleetState, now: float) -> tuple[Truth, str]:
    span = Span(now - wanted.hold, now)
    present = facts(incident, state, since=last_change(incident), span=span)
    answers = [compiled(condition).holds(present) for condition in wanted.require]
    false = [answer.why for answer in answers if answer.truth is Truth.FALSE]
    if false:
        return Truth.FALSE, "; ".join(false)
    requests = _requests(present)
    if wanted.min_requests and not requests >= wanted.min_requests:
        got = "an unknown number of" if np.isnan(requests) else f"{requests:.0f}"
        says = f"{got} answers in {wanted.hold:.0f} s, {wanted.min_requests} are needed to tell"
        return Truth.UNREADABLE, says
    unread = [answer.why for answer in answers if answer.truth is Truth.UNREADABLE]
    if unread:
        return Truth.UNREADABLE, "; ".join(unread)
    return _held(incident, wanted, state, span, answers)


def _held(
    incident: Incident, wanted: Verification, state: FleetState, span: Span, answers: list[Answer]
) -> tuple[Truth, str]:
    """Whether the conditions were true at every sample of the span, not only now."""
    times = state.window.times
    moments = [float(t) for t in times[(times >= span.begin) & (times <= span.end)]]
    if len(moments) < MIN_MOMENTS:
        return Truth.UNREADABLE, f"{len(moments)} samples in {wanted.hold:.0f} s, {MIN_MOMENTS} are needed to tell"
    for moment in moments:
        then = facts(incident, state, since=-np.inf, at=moment, span=span)
        for condition in wanted.require:
            answer = compiled(condition).holds(then)
            if not answer:
                return answer.truth, f"{span.end - moment:.0f} s ago {answer.why}"
    return Truth.TRUE, f"held for {wanted.hold:.0f} s: " + "; ".join(answer.why for answer in answers)


def _requests(known: Facts) -> float:
    slo = known.get("slo")
    return float(slo.get("requests", np.nan)) if isinstance(slo, Mapping) else np.nan
