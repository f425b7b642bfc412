"""Facts: what the conditions of a runbook are told about an incident's target at one moment. Pure.

The names and their meaning are in `runbooks.conditions.VARIABLES`. What could not be measured is left out.
"""

import numpy as np

from agent.decision.capacity import Standing
from agent.decision.slo import Span, goals, measures
from agent.decision.state import FleetState
from agent.incident import Incident
from runbooks.conditions import Facts
from serving.fleet.entity import Entity, EntityKind
from serving.telemetry import counters

SLO_SPAN = 30.0
"""Seconds over which `slo` is measured outside verification: enough answers for a quantile at one request a second."""


def facts(
    incident: Incident, state: FleetState, *, since: float = -np.inf, at: float | None = None, span: Span | None = None
) -> Facts:
    """The facts at `at` (default: now), from samples taken after `since`; `slo` over `span` (default: the last 30 s)."""
    moment = state.now if at is None else at
    known: dict[str, object] = {
        "score": incident.diagnosis.score,
        "attempt": max(1, incident.attempt),
        "outcomes": outcomes(incident),
    }
    if incident.entity.kind is EntityKind.ENGINE and incident.entity in state.topology:
        known |= _of_engine(incident.entity, state, since, moment)
        chosen = span or Span(max(since, moment - SLO_SPAN), moment)
        known |= _of_users(incident.entity, state, chosen)
    return known  # type: ignore[return-value] # built piece by piece


def outcomes(incident: Incident) -> dict[str, str]:
    """The newest outcome of each step of the present attempt: done, failed or unknown."""
    return {
        operation.step: str(operation.outcome.status)
        for operation in incident.operations
        if operation.attempt == incident.attempt and operation.outcome is not None
    }


def last_change(incident: Incident) -> float:
    """When the newest operation of the incident ended: what was sampled before tells nothing of the world since then."""
    ended = (o.finished_at for o in incident.operations if o.finished_at is not None)
    return max(ended, default=-np.inf)


def latest(state: FleetState, signal: str, engine: Entity, since: float, at: float) -> float:
    """The newest sample of `signal` for `engine` as of `at`: fresh, and taken after `since`. NaN where there is none."""
    window = state.window
    matrix = window.signals.get(signal)
    end = int(np.searchsorted(window.times, at, side="right"))
    if matrix is None or end == 0:
        return np.nan
    row = window.topology.row_of[engine.name]
    values = matrix.values[row : row + 1, :end]
    taken = np.where(np.isnan(values), np.nan, matrix.sampled_at[row : row + 1, :end])
    sampled = counters.last_present(taken)[0, -1]
    usable = sampled > since and at - sampled <= state.policy.freshness
    return float(counters.last_present(values)[0, -1]) if usable else np.nan


def _of_engine(engine: Entity, state: FleetState, since: float, at: float) -> dict[str, object]:
    peers = state.topology.peers(engine)
    healthy = [p for p in peers if state.standing[p.name] is Standing.SERVING and p.name not in state.blamed]
    up = latest(state, "scrape.up", engine, since, at)
    known: dict[str, object] = {
        "target_state": str(state.standing[engine.name]),
        "healthy_peers": float(len(healthy)),
        "total_peers": float(len(peers)),
        "signal": {name: latest(state, name, engine, since, at) for name in state.window.signals},
    }
    return known if np.isnan(up) else known | {"ready": bool(up >= 1.0)}


def _of_users(engine: Entity, state: FleetState, span: Span) -> dict[str, object]:
    rows = state.topology.row_of
    peers = [
        rows[peer.name]
        for peer in state.topology.peers(engine)
        if state.standing[peer.name] is Standing.SERVING and peer.name not in state.blamed
    ]
    objectives = state.policy.objectives_for(state.topology.facts(engine).model)
    return {
        "slo": measures(state.window, rows[engine.name], peers, span),
        "goal": goals(state.window, peers, span, objectives),
    }
