"""Facts: what the conditions of a runbook are told about an incident's target at one moment. Pure.

The names and their meaning are in `runbooks.conditions.VARIABLES`. What could not be measured is left out or NaN. Each fact
is worked out when a condition first asks for it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Generic, TypeVar

import numpy as np

from actuators.action import OutcomeStatus
from agent.decision.capacity import Standing
from agent.decision.slo import GOALS, MEASURES, Span
from agent.decision.state import FleetState, engines_of
from agent.incident import Incident
from detectors.finding import Symptom
from runbooks.conditions import Fact, Facts
from serving.fleet.entity import Entity, EntityKind
from serving.fleet.topology import Relation
from serving.telemetry import counters

SLO_SPAN = 30.0
"""Seconds over which `slo` is measured outside verification: enough answers for a quantile at one request a second."""

TABLE_FRESH = 60.0
"""Seconds for which what an exporter of GPUs or nodes said is of now: they are read every 15 or 30 s."""

QUEUE_EMPTY = 1.0
"""Requests: one may always be about to be let in."""

CACHE_ROOMY = 0.8
"""Share of the KV blocks in use up to which an engine has room for more requests than it has."""

EVEN = 1.0
"""Tokens of the hottest expert over the mean of its layer where all get as many."""

_WORSE = (Standing.SERVING, Standing.DRAINED, Standing.EJECTED, Standing.DOWN, Standing.BLIND)
_MORE_IS_BETTER = frozenset({"requests", "success", "steps_per_second", "generation_tokens_per_second"})

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
        "shown": lambda: shown(incident),
    }
    engines = _scene(incident.entity, state)
    if engines:
        ways |= _of_engines(engines, incident.entity, state, since, moment)
        ways |= _of_users(engines, state, span or Span(max(since, moment - SLO_SPAN), moment))
    elif incident.entity.kind in state.window.tables:
        ways["signal"] = lambda: OnDemand(_of_table(incident.entity, state, since, moment))
    return OnDemand(ways)


def outcomes(incident: Incident) -> dict[str, str]:
    """The newest outcome of each step of the present attempt: done only where it is for all that the step is done to."""
    newest = {
        (operation.step, operation.action.target): operation.outcome.status
        for operation in incident.operations
        if operation.attempt == incident.attempt and operation.outcome is not None
    }
    found: dict[str, str] = {}
    for (step, _), status in newest.items():
        found[step] = str(status) if found.get(step, OutcomeStatus.DONE) == OutcomeStatus.DONE else found[step]
    return found


def shown(incident: Incident) -> dict[str, float]:
    """1.0 for each symptom on the target that the diagnosis explains, 0.0 for every other."""
    present = {finding.symptom for finding in incident.diagnosis.explains if finding.entity == incident.entity}
    return {symptom: float(symptom in present) for symptom in Symptom}


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


def _scene(entity: Entity, state: FleetState) -> tuple[Entity, ...]:
    """The engines by which it is judged how a target fares: itself, those that it has, or those that it sends users to."""
    if entity.kind is EntityKind.GATEWAY:
        return tuple(e for e in state.topology.related(entity, Relation.ROUTES_TO) if e.kind is EntityKind.ENGINE)
    return engines_of(state.topology, entity)


def _of_engines(
    engines: tuple[Entity, ...], target: Entity, state: FleetState, since: float, at: float
) -> dict[str, Callable[[], Fact]]:
    """Facts of the engines of a target; of several, what the worst of them shows."""
    ups = [latest(state, "scrape.up", engine, since, at) for engine in engines]
    known: dict[str, Callable[[], Fact]] = {
        "target_state": lambda: str(max((state.standing[engine.name] for engine in engines), key=_WORSE.index)),
        "healthy_peers": lambda: float(min(len(_healthy(peers, state)) for peers in _others(engines, state).values())),
        "roomy_peers": lambda: float(min(_roomy(peers, state) for peers in _others(engines, state).values())),
        "hottest_expert": lambda: _hottest_expert(engines, state, since, at),
        "total_peers": lambda: float(min(map(len, _others(engines, state).values()))),
        "signal": lambda: OnDemand(_signals(engines, target, state, since, at)),
    }
    return known if np.isnan(ups).any() else known | {"ready": lambda: min(ups) >= 1.0}


def _hottest_expert(engines: tuple[Entity, ...], state: FleetState, since: float, at: float) -> float:
    """The imbalance of the experts of a target's engines; an engine that counts none has none that is hot."""
    found = np.array([latest(state, "experts.imbalance", engine, since, at) for engine in engines])
    return float(np.max(np.where(np.isnan(found), EVEN, found)))


def _others(engines: tuple[Entity, ...], state: FleetState) -> dict[int, list[Entity]]:
    """The peers of a target's engines that are not of it themselves, by the number of their group (Topology.peer_group)."""
    topology, inside = state.topology, frozenset(engines)
    of_engines = {_group(engine, state) for engine in engines}
    found: dict[int, list[Entity]] = {group: [] for group in of_engines}
    for engine, group in zip(topology.engines, topology.peer_group.tolist(), strict=True):
        if group in of_engines and engine not in inside:
            found[group].append(engine)
    return found


def _group(engine: Entity, state: FleetState) -> int:
    return int(state.topology.peer_group[state.topology.row_of[engine.name]])


def _signals(
    engines: tuple[Entity, ...], target: Entity, state: FleetState, since: float, at: float
) -> dict[str, Callable[[], float]]:
    """The newest value of each signal: the largest of the engines (whether they answer: the least), or the target's own."""

    def of_engines(name: str) -> float:
        values = [latest(state, name, engine, since, at) for engine in engines]
        return float(np.min(values) if name == "scrape.up" else np.max(values))

    found = {name: partial(of_engines, name) for name in state.window.signals}
    return {**found, **_of_table(target, state, since, at)}


def _of_table(target: Entity, state: FleetState, since: float, at: float) -> dict[str, Callable[[], float]]:
    """The newest value of each signal in the target's own row of a table: of a GPU, or a node."""
    table = state.window.tables.get(target.kind)
    if table is None or target not in table.row_of:
        return {}
    row, end = table.row_of[target], int(np.searchsorted(table.times, at, side="right"))
    within = max(state.policy.freshness, TABLE_FRESH)

    def value(name: str) -> float:
        matrix = table.signals[name]
        present = np.flatnonzero(~np.isnan(matrix.values[row, :end]))
        if not len(present):
            return np.nan
        taken = float(matrix.sampled_at[row, present[-1]])
        return float(matrix.values[row, present[-1]]) if taken > since and at - taken <= within else np.nan

    return {name: partial(value, name) for name in table.signals}


def _of_users(engines: tuple[Entity, ...], state: FleetState, span: Span) -> dict[str, Callable[[], Fact]]:
    """How users of the target's engines are served; of several that are in rotation, as the worst of them serves."""
    rows, window = state.topology.row_of, state.window
    judged = [e for e in engines if state.standing[e.name] is not Standing.DRAINED] or list(engines)
    healthy = {
        group: [rows[peer.name] for peer in _healthy(others, state)] for group, others in _others(engines, state).items()
    }
    peers = {e: healthy[_group(e, state)] for e in judged}
    promised = {e: state.policy.objectives_for(state.topology.facts(e).model) for e in judged}

    def measured(name: str) -> float:
        values = [MEASURES[name](window, rows[e.name], peers[e], span) for e in judged]
        return float(np.min(values) if name in _MORE_IS_BETTER else np.max(values))

    def aimed(name: str) -> float:
        return float(np.max([GOALS[name](window, peers[e], span, promised[e]) for e in judged]))

    slo = OnDemand({name: partial(measured, name) for name in MEASURES})
    goal = OnDemand({name: partial(aimed, name) for name in GOALS})
    return {"slo": lambda: slo, "goal": lambda: goal}


def _roomy(peers: Iterable[Entity], state: FleetState) -> int:
    """How many of the healthy can take more; NaN in what they tell counts as no room."""
    rows = [state.topology.row_of[peer.name] for peer in _healthy(peers, state)]
    waiting = state.window.latest("engine.waiting", state.policy.freshness)[rows]
    usage = state.window.latest("engine.kv_usage", state.policy.freshness)[rows]
    return int(((waiting <= QUEUE_EMPTY) & (usage <= CACHE_ROOMY)).sum())


def _healthy(peers: Iterable[Entity], state: FleetState) -> list[Entity]:
    return [p for p in peers if state.standing[p.name] is Standing.SERVING and p.name not in state.blamed]
