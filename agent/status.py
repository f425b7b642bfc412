"""Status: one page of what the warden sees now, for a person's screen and for scripts. A view: nothing reads it back.

The keys of the models below are the keys of `fleetwarden status --json`; they stay stable.
"""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from agent.incident import Incident
from agent.report.plainly import plainly
from serving.fleet.entity import Entity
from serving.telemetry.window import Window

FILE_NAME = "status.json"
FRESH_S = 15.0  # an older sample is not shown: a blank is honest, an old number is not
RATE_S = 15.0


class _Row(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class EngineRow(_Row):
    """One engine. None is "not measured", never zero. Rates are per second over the last 15 s; latencies are medians."""

    engine: str
    model: str
    state: str
    in_flight: float | None
    running: float | None
    waiting: float | None
    kv_usage: float | None
    steps_per_s: float | None
    tokens_per_s: float | None
    requests_per_s: float | None
    ttft_s: float | None
    incident: str | None


class IncidentRow(_Row):
    """One open (or just ended) incident. `says` is the latest decision in words."""

    incident: str
    cause: str
    entity: str
    state: str
    opened_at: float
    score: float
    says: str


class SourceRow(_Row):
    """One source of telemetry; `error` is empty while it answers."""

    source: str
    age_s: float | None
    error: str


class FleetStatus(_Row):
    """The whole page."""

    at: float
    fleet: str
    autonomy: str
    paused: str
    breaker: str
    engines: list[EngineRow]
    incidents: list[IncidentRow]
    sources: list[SourceRow]


def engine_rows(window: Window, open_incidents: Iterable[Incident]) -> list[EngineRow]:
    """One row per engine of the window, in its order."""
    blamed = {incident.entity: incident for incident in open_incidents}
    latest = {name: window.latest(name, FRESH_S) for name in ("scrape.up", "door.drained", "door.ejected", *_GAUGES)}
    rates = {name: window.rate(name, RATE_S) for name in ("engine.steps", "engine.generation_tokens", "door.started")}
    ttft = window.quantile("engine.ttft", 0.5, 4 * RATE_S)
    rows = []
    for row, engine in enumerate(window.topology.engines):
        now = {name: _number(column, row) for name, column in (latest | rates).items()}
        incident = blamed.get(engine)
        rows.append(
            EngineRow(
                engine=engine.name,
                model=window.topology.facts(engine).model,
                state=_state(now, incident),
                in_flight=now["door.in_flight"],
                running=now["engine.running"],
                waiting=now["engine.waiting"],
                kv_usage=now["engine.kv_usage"],
                steps_per_s=now["engine.steps"],
                tokens_per_s=now["engine.generation_tokens"],
                requests_per_s=now["door.started"],
                ttft_s=_number(ttft, row),
                incident=incident.id if incident else None,
            )
        )
    return rows


def incident_rows(incidents: Iterable[Incident]) -> list[IncidentRow]:
    """One row per incident."""
    return [
        IncidentRow(
            incident=incident.id,
            cause=incident.cause,
            entity=str(incident.entity),
            state=incident.state,
            opened_at=incident.opened_at,
            score=round(incident.diagnosis.score, 3),
            says=plainly(incident.says or (incident.decision.says if incident.decision else "")),
        )
        for incident in incidents
    ]


def source_rows(window: Window) -> list[SourceRow]:
    """One row per source of telemetry."""
    return [
        SourceRow(
            source=_entity(status.source),
            age_s=None if status.answered_at is None else round(window.now - status.answered_at, 1),
            error=status.error,
        )
        for status in window.sources
    ]


def write(status: FleetStatus, directory: Path) -> None:
    """Write the page beside the journal, whole or not at all."""
    fresh = directory / f".{FILE_NAME}.new"
    fresh.write_text(status.model_dump_json())
    fresh.replace(directory / FILE_NAME)


def read(directory: Path) -> FleetStatus | None:
    """The newest page; None when no warden has written one here."""
    try:
        return FleetStatus.model_validate_json((directory / FILE_NAME).read_text())
    except FileNotFoundError:
        return None


_GAUGES = ("door.in_flight", "engine.running", "engine.waiting", "engine.kv_usage")


def _state(now: dict[str, float | None], incident: Incident | None) -> str:
    if now["scrape.up"] is None:
        return "unseen"
    if now["scrape.up"] < 1:
        return "down"
    if now["door.drained"]:
        return "drained"
    if now["door.ejected"]:
        return "ejected"
    return "suspect" if incident else "serving"


def _number(column: NDArray[np.float64], row: int) -> float | None:
    value = float(column[row])
    return None if np.isnan(value) else round(value, 4)


def _entity(entity: Entity) -> str:
    return entity.name
