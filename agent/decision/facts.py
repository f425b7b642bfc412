"""Facts: what the conditions of a runbook are told about an incident's target at one moment. Pure.

The names and their meaning are in `runbooks.conditions.VARIABLES`. What could not be measured is left out or NaN. Each fact
is worked out when a condition first asks for it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Generic, TypeVar

import numpy as np

from agent.decision.capacity import Standing
from agent.decision.slo import GOALS, MEASURES, Span
from agent.decision.state import FleetState
from agent.incident import Incident
from runbooks.conditions import Fact, Facts
from serving.fleet.entity import Entity, EntityKind
from serving.telemetry import counters

SLO_SPAN = 30.0
"""Seconds over which `slo` is measured outside verification: enough answers for a quantile at one request a second."""

T = TypeVar("T")


class OnDemand(Mapping[str, T], Generic[T]):
    """A mapping whose values are worked out when first asked for."""

    def __init__(self, ways: Mapping[str, Callable[[], T]]) -> None:
        self._ways = ways
        self._found: dict[str, T] = {}

    def __getitem__(self, name: str) -> T:
        if name not in self._found:
            self._found[name] = self._ways[name]()
        return self._found[name]

    def __contains__(self, name: object) -> bool:
        return name in self._ways

    def __iter__(self) -> Iterator[str]:
        return iter(self._ways)

    def __len__(self) -> int:
        return len(self._ways)


def facts(
    incident: Incident, state: FleetState, *, since: float = -np.inf, at: float | None = None, span: Span | None = None
) -> Facts:
    """The facts at `at` (default: now), from samples taken after `since`; `slo` over `span` (default: the last 30 s)."""
    moment = state.now if at is None else at
    ways: dict[str, Callable[[], Fact]] = {
        "score": lambda: incident.diagnosis.score,
        "attempt": lambda: max(1, incident.attempt),
        "outcomes": lambda: outcomes(incident),
    }
    if incident.entity.kind is EntityKind.ENGINE and incident.entity in state.topology:
        ways |= _of_engine(incident.entity, state, since, moment)
        ways |= _of_users(incident.entity, state, span or Span(max(since, moment - SLO_SPAN), moment))
    return OnDemand(ways)


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


def _of_engine(engine: Entity, state: FleetState, since: float, at: float) -> dict[str, Callable[[], Fact]]:
    peers = state.topology.peers(engine)
    up = latest(state, "scrape.up", engine, since, at)
    known: dict[str, Callable[[], Fact]] = {
        "target_state": lambda: str(state.standing[engine.name]),
        "healthy_peers": lambda: float(len(_healthy(peers, state))),
        "total_peers": lambda: float(len(peers)),
        "signal": lambda: OnDemand({name: partial(latest, state, name, engine, since, at) for name in state.window.signals}),
    }
    return known if np.isnan(up) else known | {"ready": lambda: bool(up >= 1.0)}


def _of_users(engine: Entity, state: FleetState, span: Span) -> dict[str, Callable[[], Fact]]:
    rows, window = state.topology.row_of, state.window
    peers = [rows[peer.name] for peer in _healthy(state.topology.peers(engine), state)]
    promised = state.policy.objectives_for(state.topology.facts(engine).model)
    row = rows[engine.name]
    slo = OnDemand({name: partial(measure, window, row, peers, span) for name, measure in MEASURES.items()})
    goal = OnDemand({name: partial(aim, window, peers, span, promised) for name, aim in GOALS.items()})
    return {"slo": lambda: slo, "goal": lambda: goal}


def _healthy(peers: Iterable[Entity], state: FleetState) -> list[Entity]:
    return [p for p in peers if state.standing[p.name] is Standing.SERVING and p.name not in state.blamed]
