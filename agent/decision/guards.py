"""Guards: each a small function that says why something must not be done now, or None. Pure.

A guard reads fresh state and nothing else. `decide` says in which order they are asked.
"""

from dataclasses import dataclass

import numpy as np

from actuators.action import Action, OutcomeStatus
from agent.decision.breaker import BreakerState
from agent.decision.capacity import Standing
from agent.decision.decision import Reason
from agent.decision.facts import facts
from agent.decision.state import FleetState, engines_at, engines_of, touched_by, under_way
from agent.decision.steps import Specs, changes
from agent.incident import Ending, Incident
from runbooks.conditions import Truth, compiled
from runbooks.runbook import Runbook
from serving.fleet.entity import Entity, EntityKind

CONFIRMED_FOR = 600.0
"""Seconds for which a failed probe shows that an engine serves nobody; later it may have come back."""


@dataclass(frozen=True, slots=True)
class Held:
    """Why not, as a reason and in words with its numbers."""

    reason: Reason
    says: str


def paused(state: FleetState) -> Held | None:
    """The big red button. A switch that cannot be read is taken as pressed."""
    if state.switches.paused is None:
        return Held(Reason.PAUSED, "whether the warden is paused cannot be read, so nothing is done")
    if not state.switches.paused:
        return None
    by = f" by {state.switches.paused_by}" if state.switches.paused_by else ""
    return Held(Reason.PAUSED, f"the warden was paused{by}; nothing is done until `fleetwarden resume`")


def opted_out(incident: Incident, state: FleetState, *reached: Entity) -> Held | None:
    """People said hands off: of the target or what else the repair reaches, or of what these run on, belong to or serve.

    What is done to a node or a GPU is done to the engines on it too.
    """
    whole = dict.fromkeys((incident.entity, *reached))
    for entity in dict.fromkeys((*whole, *(engine for place in whole for engine in engines_at(state.topology, place)))):
        holder = state.opts_out(entity)
        if holder is not None:
            whose = f"{entity} has" if holder == entity else f"{holder}, which {entity} is part of, has"
            return Held(Reason.OPTED_OUT, f"{whose} opted out of repairs by the warden")
    return None


def blind(incident: Incident, state: FleetState) -> Held | None:
    """No repair is decided where nothing fresh can be seen."""
    if not state.is_blind(incident.entity):
        return None
    says = (
        f"nothing fresh is known of {incident.entity}: no sample in the last {state.policy.freshness:.0f} s can be trusted"
    )
    return Held(Reason.TARGET_BLIND, says)


def thin_evidence(incident: Incident, runbook: Runbook, specs: Specs) -> Held | None:
    """The diagnosis is too weak. A runbook that begins with the very probe that would tell may begin all the same.

    While a change of our own still holds (an engine kept drained), its symptoms are hidden by that and not gone.
    """
    diagnosis = incident.diagnosis
    if incident.gone_since is not None and not changes(incident, specs):
        return Held(Reason.EVIDENCE_THIN, f"{incident.cause} is no longer diagnosed on {incident.entity}")
    if not diagnosis.enough:
        missing = f"; could not be read: {', '.join(diagnosis.missing)}" if diagnosis.missing else ""
        return Held(Reason.EVIDENCE_THIN, f"there is not enough evidence for {incident.cause}{missing}")
    first = runbook.steps[0].do if runbook.steps else None
    probes = diagnosis.probe is not None and first == diagnosis.probe and first in specs and specs[first].harmless
    if diagnosis.score >= runbook.min_score or probes:
        return None
    return Held(
        Reason.EVIDENCE_THIN, f"score {diagnosis.score:.2f} is below the {runbook.min_score:.2f} that {runbook.name} asks"
    )


def covered(incident: Incident, runbook: Runbook, state: FleetState, specs: Specs) -> Held | None:
    """Another repair of the target is under way that does the same or more, or that makes the target look so."""
    mine = {engine.name for engine in engines_of(state.topology, incident.entity)}
    for other in state.repairs_under_way(incident.id):
        theirs = {entity.name for entity in touched_by(state.topology, other) if entity.kind is EntityKind.ENGINE}
        if other.entity != incident.entity and not mine & theirs:
            continue
        verbs = {o.action.verb for o in other.operations if o.intended_at >= incident.opened_at}
        reach = verbs.union(*(specs[verb].covers for verb in verbs if verb in specs))
        wanted = {s.do for s in runbook.steps if s.do in specs and specs[s.do].takes_capacity}
        if wanted & reach:
            same = ", ".join(sorted(wanted & reach))
            says = f"incident {other.id} ({other.cause} on {other.entity}) has done {same} already, which covers this one"
            return Held(Reason.ALREADY_COVERED, says)
        says = (
            f"incident {other.id} ({other.cause}) has {other.entity} under repair, which may make {incident.entity} look so"
        )
        return Held(Reason.EXPLAINED_BY_REPAIR, says)
    return None


def attempts_spent(incident: Incident, runbook: Runbook) -> Held | None:
    """Attempts are bounded."""
    if incident.attempt < runbook.attempts:
        return None
    says = f"{incident.attempt} of {runbook.attempts} attempts of {runbook.name} did not help. {runbook.escalate}"
    return Held(Reason.ATTEMPTS_SPENT, says)


def ineffective(incident: Incident, runbook: Runbook, state: FleetState, specs: Specs) -> Held | None:
    """The same repair of the same target for the same cause did not last, again and again: a person must look."""
    policy = state.policy
    before = [
        other
        for other in state.incidents.values()
        if other.id != incident.id
        and (other.cause, other.entity) == (incident.cause, incident.entity)
        and other.ended_at is not None
        and state.now - other.ended_at <= policy.ineffective_span
        and _changed_something(other, specs)
    ]
    if len(before) < policy.ineffective_after:
        return None
    says = (
        f"{runbook.name} has repaired {incident.entity} {len(before)} times in {policy.ineffective_span / 60:.0f} min "
        f"and {incident.cause} is back (limit {policy.ineffective_after}). {runbook.escalate}"
    )
    return Held(Reason.INEFFECTIVE, says)


def conditions(incident: Incident, runbook: Runbook, state: FleetState) -> Held | None:
    """The runbook's own guards, all of which must be true; what cannot be read is not true."""
    known = facts(incident, state)
    for guard in runbook.guards:
        answer = compiled(guard.require).holds(known)
        if answer.truth is Truth.FALSE:
            return Held(Reason.GUARD_FALSE, f"{guard.because}: {answer.why}")
        if answer.truth is Truth.UNREADABLE:
            return Held(Reason.GUARD_UNREADABLE, f"{guard.because}: {answer.why}")
    return None


def frozen(incident: Incident, state: FleetState) -> Held | None:
    """A change freeze holds back what has not begun."""
    cell = state.cell_of(incident.entity)
    for freeze in state.policy.freezes:
        if freeze.cell in {"*", cell} and freeze.begins <= state.now < freeze.ends:
            because = f" ({freeze.because})" if freeze.because else ""
            return Held(Reason.CHANGE_FREEZE, f"changes are frozen{because} for {freeze.ends - state.now:.0f} s more")
    return None


def cooling_down(incident: Incident, runbook: Runbook, state: FleetState, specs: Specs) -> Held | None:
    """Time must pass between two repairs of one target, and between two probes that disproved the same cause."""
    for other in {**state.incidents, incident.id: incident}.values():
        if other.entity != incident.entity:
            continue
        ruled_out = other.ending is Ending.RULED_OUT
        if ruled_out and other.cause != incident.cause:
            continue
        if not ruled_out and not _changed_something(other, specs):
            continue
        span = state.policy.probe_cool_down if ruled_out else max(runbook.cool_down, state.policy.cool_down)
        ended = _last_done(other)
        left = ended + span - state.now
        if left > 0:
            what = "a probe ruled this out" if ruled_out else f"the last repair of {incident.entity} ended"
            says = f"{what} {state.now - ended:.0f} s ago (incident {other.id}); {left:.0f} s of {span:.0f} s are left"
            return Held(Reason.COOLING_DOWN, says)
    return None


def breaker_open(incident: Incident, state: FleetState) -> Held | None:
    """The breaker holds everything but recoveries and probes. Half-open, it lets one repair try."""
    breaker = state.breaker
    if breaker.state is BreakerState.OPEN:
        return Held(Reason.BREAKER_OPEN, f"the breaker is open: {breaker.says}")
    first = min((*state.repairs_under_way(incident.id), *_if_begun(incident)), key=_age, default=incident)
    if breaker.state is BreakerState.HALF_OPEN and first.id != incident.id:
        return Held(Reason.BREAKER_OPEN, f"{breaker.says}, and that is incident {first.id}")
    return None


def _if_begun(incident: Incident) -> tuple[Incident, ...]:
    return (incident,) if under_way(incident) else ()


def _age(incident: Incident) -> tuple[float, str]:
    return incident.opened_at, incident.id


def too_many(incident: Incident, state: FleetState) -> Held | None:
    """So many repairs at once and no more."""
    others, limit = state.repairs_under_way(incident.id), state.policy.max_concurrent_repairs
    if len(others) < limit:
        return None
    names = ", ".join(f"{other.id} on {other.entity}" for other in others) or "none"
    return Held(Reason.TOO_MANY_REPAIRS, f"{len(others)} of at most {limit} repairs are under way: {names}")


def serving_budget(incident: Incident, action: Action, state: FleetState, specs: Specs) -> Held | None:
    """Taking the target must leave every model, zone and group its stated healthy capacity.

    An engine that serves nobody anyhow takes nothing with it: one that is drained or down, or whose probe has failed.
    """
    targets = engines_of(state.topology, action.target)
    names = frozenset(engine.name for engine in targets)
    for engine in targets:
        if serves_nobody(engine.name, incident, state, specs):
            continue
        for capacity in state.capacity(engine):
            left = len(capacity.healthy - names)
            if left < capacity.minimum:
                says = f"{action.verb} on {action.target} would leave {left} healthy engines of {capacity}"
                return Held(Reason.SERVING_BUDGET, says)
    return None


def serves_nobody(engine: str, incident: Incident, state: FleetState, specs: Specs) -> bool:
    """Whether users surely get nothing from `engine`: it is drained, down at two scrapes on end, or was probed in vain."""
    if state.standing.get(engine) is Standing.DRAINED:
        return True
    window = state.window
    ups = window.values("scrape.up", state.policy.freshness)[window.topology.row_of[engine]]
    seen = ups[~np.isnan(ups)][-2:]
    if state.standing.get(engine) is Standing.DOWN and len(seen) >= 2 and not seen.any():  # noqa: PLR2004 - two scrapes
        return True
    return any(
        operation.action.verb in specs
        and specs[operation.action.verb].harmless
        and operation.action.target.name == engine
        and operation.attempt == incident.attempt
        and operation.outcome is not None
        and operation.outcome.status is OutcomeStatus.FAILED
        and operation.finished_at is not None
        and state.now - operation.finished_at <= CONFIRMED_FOR
        for operation in incident.operations
    )


def _changed_something(incident: Incident, specs: Specs) -> bool:
    """Whether any operation of the incident did, or may have done, more than probe."""
    return any(
        (o.action.verb not in specs or not specs[o.action.verb].harmless)
        and (o.outcome is None or o.outcome.status is not OutcomeStatus.FAILED)
        for o in incident.operations
    )


def _last_done(incident: Incident) -> float:
    ended = [o.finished_at or o.intended_at for o in incident.operations]
    return max([*ended, incident.ended_at or -np.inf], default=-np.inf)
