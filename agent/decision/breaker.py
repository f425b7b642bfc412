"""The breaker: when the warden stops trusting itself. A pure state machine, folded from the history of its repairs.

Open, it holds everything that is neither harmless nor a recovery. Nothing queues behind it: every decision is taken anew
from fresh state, and consent that people gave before it opened is void. After a while it lets one repair try (half-open);
that one's end closes it or opens it again.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from agent.decision.policy import BreakerSettings
from agent.incident import ENDED, Ending, Incident


class BreakerState(StrEnum):
    """Closed: repairs run. Open: none begins. Half-open: one may try."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


@dataclass(frozen=True, slots=True)
class Breaker:
    """Where the breaker stands, since when (Unix seconds), and why in words. Consent given before `voids_before` is void."""

    state: BreakerState
    since: float
    says: str
    voids_before: float = 0.0


@dataclass(frozen=True, slots=True, order=True)
class Repair:
    """One finished run of a runbook, and whether users were well served after it."""

    finished_at: float
    began_at: float
    incident: str
    helped: bool


def repairs_of(incident: Incident) -> Iterable[Repair]:
    """The finished runs of an incident: every attempt but the last, and the last too once the incident has ended.

    A run that only probed is no repair: it changed nothing, and it counts neither for nor against. Nor does one that made
    things safe for a person, as its runbook wanted.
    """
    if incident.ending is Ending.RULED_OUT:
        return
    for attempt in range(1, incident.attempt + 1):
        mine = [operation for operation in incident.operations if operation.attempt == attempt]
        if not mine:
            continue
        if attempt < incident.attempt:
            yield Repair(max(o.finished_at or o.intended_at for o in mine), mine[0].intended_at, incident.id, helped=False)
        elif incident.state in ENDED and incident.ended_at is not None:
            if incident.ending is Ending.HANDED_OVER:
                return
            helped = incident.ending is Ending.REPAIRED
            yield Repair(incident.ended_at, mine[0].intended_at, incident.id, helped)


def breaker_at(incidents: Iterable[Incident], faulty: int, engines: int, settings: BreakerSettings, now: float) -> Breaker:
    """Where the breaker stands at `now`. `faulty` of `engines` are named by open incidents at this moment."""
    if faulty >= settings.min_faulty and faulty > settings.max_faulty * engines:
        says = (
            f"{faulty} of {engines} engines are faulty at once, more than {settings.max_faulty:.0%}: "
            "the cause is hardly in the engines, so no repair begins while it is so"
        )
        return Breaker(BreakerState.OPEN, now, says, voids_before=now)
    return folded(sorted(r for i in incidents for r in repairs_of(i)), settings, now)


def folded(repairs: Iterable[Repair], settings: BreakerSettings, now: float) -> Breaker:
    """Where the breaker stands at `now` by its history alone; `repairs` in the order in which they finished."""
    counted: list[Repair] = []
    at = Breaker(BreakerState.CLOSED, 0.0, "repairs have kept within their rate and have helped")
    for repair in repairs:
        at = _passed(at, settings, repair.finished_at)
        if at.state is BreakerState.HALF_OPEN and repair.began_at >= at.since:
            counted = []
            at = _after_trial(at, repair)
        if at.state is not BreakerState.CLOSED:
            continue
        counted = [r for r in (*counted, repair) if r.finished_at > repair.finished_at - settings.span]
        at = _tripped(counted, settings, repair.finished_at) or at
    return _passed(at, settings, now)


def _passed(at: Breaker, settings: BreakerSettings, now: float) -> Breaker:
    """Open turns half-open with time."""
    if at.state is not BreakerState.OPEN or now < at.since + settings.open_for:
        return at
    says = f"the breaker was open for {settings.open_for:.0f} s ({at.says}); one repair may try"
    return Breaker(BreakerState.HALF_OPEN, at.since + settings.open_for, says, at.voids_before)


def _after_trial(at: Breaker, repair: Repair) -> Breaker:
    if repair.helped:
        return Breaker(BreakerState.CLOSED, repair.finished_at, "the one repair it let through helped", at.voids_before)
    says = "the one repair it let through did not help"
    return Breaker(BreakerState.OPEN, repair.finished_at, says, voids_before=repair.finished_at)


def _tripped(counted: list[Repair], settings: BreakerSettings, when: float) -> Breaker | None:
    unhelpful = sum(not repair.helped for repair in counted)
    minutes = settings.span / 60
    if unhelpful >= settings.max_unhelpful:
        says = f"{unhelpful} repairs in {minutes:.0f} min did not help (limit {settings.max_unhelpful})"
    elif len(counted) >= settings.max_repairs:
        says = f"{len(counted)} repairs in {minutes:.0f} min (limit {settings.max_repairs})"
    else:
        return None
    return Breaker(BreakerState.OPEN, when, says, voids_before=when)
