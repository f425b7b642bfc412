"""Status: one page of what the warden sees now, for a person's screen and for scripts. A view: nothing reads it back.

The keys of the models below are the keys of `fleetwarden status --json`; they stay stable.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from agent.incident import Incident
from agent.report.plainly import plainly
from serving.telemetry.window import Window

FILE_NAME = "status.json"
FRESH_S = 15.0  # an older sample is not shown: a blank is honest, an old number is not
RATE_S = 15.0

Column = list[float | None]


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
    shown = {name: _column(window.latest(name, FRESH_S)) for name in _GAUGES}
    shown |= {name: _column(window.rate(name, RATE_S)) for name in _COUNTERS}
    ttft = _column(window.quantile("engine.ttft", 0.5, 4 * RATE_S))
    rows = []
    for row, engine in enumerate(window.topology.engines):
        incident = blamed.get(engine)
        rows.append(
            EngineRow(
                engine=engine.name,
                model=window.topology.facts(engine).model,
                state=_state(shown, row, incident),
                in_flight=shown["door.in_flight"][row],
                running=shown["engine.running"][row],
                waiting=shown["engine.waiting"][row],
                kv_usage=shown["engine.kv_usage"][row],
                steps_per_s=shown["engine.steps"][row],
                tokens_per_s=shown["engine.generation_tokens"][row],
                requests_per_s=shown["door.started"][row],
                ttft_s=ttft[row],
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
            source=status.source.name,
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


_STANDING = ("scrape.up", "door.drained", "door.ejected")
_GAUGES = (*_STANDING, "door.in_flight", "engine.running", "engine.waiting", "engine.kv_usage")
_COUNTERS = ("engine.steps", "engine.generation_tokens", "door.started")


def _state(shown: Mapping[str, Column], row: int, incident: Incident | None) -> str:
    up, drained, ejected = (shown[name][row] for name in _STANDING)
    if up is None:
        return "unseen"
    if up < 1:
        return "down"
    if drained:
        return "drained"
    if ejected:
        return "ejected"
    return "suspect" if incident else "serving"


def _column(values: NDArray[np.float64]) -> Column:
    """Plain numbers for a page, a blank where nothing was measured: one conversion for all engines."""
    return [None if value != value else value for value in np.round(values, 4).tolist()]  # noqa: PLR0124 - only NaN differs
