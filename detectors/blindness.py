"""Blindness: whether the fleet fell silent or the eyes did.

A source that failed for long, samples that stopped coming from most engines, or most targets lost within one moment
while the front door goes on serving: all point at telemetry, and no repair is decided on what cannot be seen.
"""

import numpy as np

from detectors.finding import Evidence, Finding, Symptom
from detectors.parameters import BlindnessParameters
from detectors.statistics import condition, sample_times, trailing_run
from serving.fleet.entity import Entity, EntityKind
from serving.telemetry.window import SourceStatus, Window

NEEDS: frozenset[str] = frozenset()
HELPED_BY = frozenset({"scrape.up", "engine.steps", "door.finished.ok"})

_HEARTBEATS = frozenset({"engine.steps", "engine.running", "engine.generation_tokens"})
"""Of one scrape, and of every engine: if one of them stays away while another comes, it was renamed."""


def detect(window: Window, parameters: BlindnessParameters) -> tuple[Finding, ...]:
    """SOURCE_BLIND on telemetry sources and MOST_TARGETS_LOST on the source that scrapes them."""
    blind = [finding for status in window.sources if (finding := _source(window, parameters, status)) is not None]
    if window.rows and len(window.times):
        blind.extend(_stale(window, parameters))
        blind.extend(_lost(window, parameters))
    return tuple(blind)


def _source(window: Window, parameters: BlindnessParameters, status: SourceStatus) -> Finding | None:
    begun = window.times[0] if len(window.times) else window.now
    answered = status.answered_at if status.answered_at is not None else float(begun)
    silent = window.now - answered
    if not status.error and silent < parameters.hold:
        return None
    if silent < parameters.hold:
        return None
    why = f": {status.error}" if status.error else ""
    says = f"the source has not answered for {silent:.0f} s{why}"
    evidence = (Evidence("source", says, float(silent), expected=0.0, unit="seconds"),)
    return Finding(Symptom.SOURCE_BLIND, status.source, answered, 0.9, evidence)


def scraper(window: Window) -> Entity:
    """The source that carries the engines' own metrics, as far as known."""
    if window.sources:
        return window.sources[0].source
    return next(window.topology.entities(EntityKind.TELEMETRY), Entity(EntityKind.TELEMETRY, "scrape"))


def _stale(window: Window, parameters: BlindnessParameters) -> list[Finding]:
    """Targets said to be up whose samples are old: the source repeats itself or lags."""
    age = window.age("engine.steps")
    up = window.latest("scrape.up", np.inf)
    stale = (age > parameters.hold) & np.isfinite(age) & (up != 0)
    known = np.isfinite(age)
    if stale.any():  # where the engine's other series are fresh, one was renamed: detectors.series says so
        stale &= np.fmin.reduce([window.age(name) for name in window.signals if name in _HEARTBEATS]) > parameters.hold
    if not known.any() or stale.sum() < max(parameters.least, parameters.share * known.sum()):
        return []
    oldest = float(age[stale].min())
    says = f"{stale.sum()} of {known.sum()} engines gave no fresh sample for {oldest:.0f} s or more, none reported down"
    evidence = (Evidence("engine.steps", says, float(stale.sum()), expected=0.0, unit="engines"),)
    return [Finding(Symptom.SOURCE_BLIND, scraper(window), window.now - oldest, 0.8, evidence)]


def _lost(window: Window, parameters: BlindnessParameters) -> list[Finding]:
    up = window.values("scrape.up")
    run = trailing_run(condition(up, up == 0), sample_times(window, "scrape.up"))
    answered = (up == 1).any(axis=1)
    down = answered & (run.held >= parameters.hold_lost)
    if down.sum() < max(parameters.least, parameters.share * answered.sum()):
        return []
    spread = float(np.nanmax(run.since[down]) - np.nanmin(run.since[down]))
    if spread > parameters.together:
        return []
    since = float(np.nanmin(run.since[down]))
    served = window.increase("door.finished.ok", max(parameters.hold_lost, window.now - since))
    if np.isnan(served).all():
        door, severity = "no front door to ask", 0.6
    elif np.nansum(served[down]) >= parameters.served:
        door, severity = f"the front door had {np.nansum(served[down]):.0f} answers from them since", 0.95
    else:
        return []
    says = f"{down.sum()} of {answered.sum()} engines vanished from telemetry within {spread:.0f} s, {door}"
    evidence = (Evidence("scrape.up", says, float(down.sum()), expected=0.0, unit="engines"),)
    return [Finding(Symptom.MOST_TARGETS_LOST, scraper(window), since, severity, evidence)]
