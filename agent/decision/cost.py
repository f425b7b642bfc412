"""What an incident cost users, in words and numbers, from the front door's counts. Pure."""

import numpy as np

from agent.decision.slo import TTFT, Span, counted, failures, quantiles
from agent.decision.state import FleetState, engines_of
from agent.incident import Incident
from serving.fleet.entity import Entity, EntityKind
from serving.fleet.topology import Relation
from serving.telemetry.window import Window

_WORDS = {"timeout": "timed out", "connection": "lost their connection", "http_5xx": "were answered with a server error"}


def cost_to_users(incident: Incident, state: FleetState) -> str:
    """What the incident cost users from its first symptom until now, as a sentence."""
    return cost_between(state.window, incident.entity, min(incident.diagnosis.since, incident.opened_at), state.now)


def cost_between(window: Window, entity: Entity, began: float, ended: float) -> str:
    """What users of the entity's model suffered from `began` to `ended`: failed answers, clients that left, late answers.

    Says so when the window does not reach back far enough, and says that it is unknown when the door was not seen.
    """
    rows = _rows(window, entity)
    reach = float(window.times[0]) if len(window.times) else window.now
    span = Span(max(began, reach), ended)
    ok = counted(window, "door.finished.ok", rows, span) if rows else np.array([])
    if not len(ok) or np.isnan(ok).all():
        return "what it cost users is unknown: the front door's counts were not seen"
    failed = {result: float(np.nansum(counts)) for result, counts in failures(window, rows, span).items()}
    left = float(np.nansum(counted(window, "door.finished.client_closed", rows, span)))
    parts = [_failed(failed, float(np.nansum(ok)))]
    if left:
        parts.append(f"{left:.0f} clients left before their answer was whole")
    parts += _late(window, rows, entity, span)
    since = (
        f" (counted from {span.begin - began:.0f} s after it began: earlier counts are gone)" if span.begin > began else ""
    )
    return f"in {ended - began:.0f} s {'; '.join(parts)}{since}"


def _failed(failed: dict[str, float], ok: float) -> str:
    total = sum(failed.values())
    if not total:
        return f"no answer failed at the front door, {ok:.0f} were whole"
    how = ", ".join(f"{count:.0f} {_WORDS[result]}" for result, count in failed.items() if count)
    retried = "what failed before its first byte was tried elsewhere"
    return f"{total:.0f} of {total + ok:.0f} tries to answer failed ({how}); {retried}"


def _late(window: Window, rows: list[int], entity: Entity, span: Span) -> list[str]:
    """How late first bytes came at the entity's engine, beside the others of its model."""
    mine = window.topology.row_of.get(entity.name) if entity.kind is EntityKind.ENGINE else None
    if mine is None:
        late = quantiles(window, TTFT, rows, 0.95, span)
        worst = float(np.nanmax(late)) if not np.isnan(late).all() else np.nan
        return [] if np.isnan(worst) else [f"95 % of first bytes came within {worst:.2f} s at the slowest engine"]
    here = float(quantiles(window, TTFT, [mine], 0.95, span)[0])
    if np.isnan(here):
        return [f"{entity.name} answered nobody"]
    elsewhere = quantiles(window, TTFT, [row for row in rows if row != mine], 0.95, span)
    seen = elsewhere[~np.isnan(elsewhere)]
    beside = f", {float(np.median(seen)):.2f} s elsewhere" if len(seen) else ""
    return [f"95 % of first bytes came within {here:.2f} s at {entity.name}{beside}"]


def _rows(window: Window, entity: Entity) -> list[int]:
    """The rows of the engines that share a model with the entity; all of them where it has no model."""
    topology = window.topology
    scene = (entity,) if entity.kind is EntityKind.MODEL else engines_of(topology, entity)
    served = (other for thing in scene for other in topology.related(thing, Relation.SERVES))
    models = [entity] if entity.kind is EntityKind.MODEL else list(dict.fromkeys(served))
    engines = [engine for model in models for engine in topology.inverse(model, Relation.SERVES)] or list(topology.engines)
    return sorted(topology.row_of[engine.name] for engine in engines if engine.name in topology.row_of)
