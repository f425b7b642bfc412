"""Score: how well one candidate accounts for what is seen, with what speaks against it and what could not be seen.

The score is the mean strength of its musts, raised by what it usually shows and by how early and how common it is, and
cut by each symptom it cannot show and each must it does not. It orders candidates; it is no probability.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agent.diagnosis.candidates import Candidate, Scene
from agent.diagnosis.catalogue import Cause, Clause
from detectors.catalogue import DETECTORS
from detectors.finding import Finding, Symptom
from serving.fleet.entity import Entity, EntityKind
from serving.telemetry.columns import Floats, HistogramMatrix
from serving.telemetry.window import Window

Bools = NDArray[np.bool_]

READABLE_WITHIN = 30.0  # seconds; a signal older than that tells nothing of the present
READABLE_IN_TABLES = 90.0  # exporters of GPUs and nodes are read every 15 or 30 s
FOUNDATION = 0.7  # the part of the score that the musts carry
BY_USUAL, BY_EARLINESS, BY_COMMONNESS = 0.15, 0.05, 0.10  # the rest, so that musts at full strength and all else reach 1
CONTRADICTED = 0.45  # one symptom that cannot be leaves less than half
WITHOUT_MUST = 0.3  # a must that is not seen although its signals are readable
EARLY_WITHIN = 15.0  # seconds: detectors' holds differ by about as much


@dataclass(frozen=True, slots=True)
class Scored:
    """A candidate with its score, from 0 to 1. `complete` when every must is seen."""

    candidate: Candidate
    score: float
    complete: bool
    since: float
    musts: tuple[Finding, ...]
    explains: tuple[Finding, ...]
    against: tuple[str, ...]
    missing: tuple[str, ...]


def score(window: Window, scene: Scene, candidate: Candidate) -> Scored:
    """Weigh `candidate` against everything in `scene`."""
    form, entity = candidate.form, candidate.entity
    explains = scene.matching(entity, form.explained)
    musts: dict[int, Finding] = {}
    strengths: list[float] = []
    against: list[str] = []
    missing: dict[str, None] = dict.fromkeys(s for s in form.told_by if not _readable(window, entity, s))
    complete = True
    for clause in form.must:
        seen = _satisfied(scene, entity, clause)
        musts.update({id(finding): finding for finding in seen})
        if seen:
            strengths.append(0.5 + 0.5 * max(finding.severity for finding in seen))
            continue
        complete = False
        unread = _unreadable(window, entity, clause.any)
        missing.update(dict.fromkeys(unread))
        strengths.append(0.5 if unread else WITHOUT_MUST)
        against.append(f"it should show {' or '.join(clause.any)} and does not{' (unreadable)' if unread else ''}")
    usual, notes = _usual(window, scene, entity, form)
    against.extend(notes)
    contradictions = [s for s in form.cannot if s in scene.shown(entity)]
    against.extend(f"{symptom} does not go with it" for symptom in contradictions)
    early = _earliness(explains, tuple(musts.values()))
    carried = float(np.prod(strengths)) ** (1 / len(strengths)) if strengths else 0.0
    value = FOUNDATION * carried + BY_USUAL * usual + BY_EARLINESS * early + BY_COMMONNESS * form.commonness
    value *= CONTRADICTED ** len(contradictions) * (1.0 if complete else 0.5)
    since = min((finding.since for finding in musts.values()), default=window.now)
    return Scored(
        candidate, min(1.0, value), complete, since, tuple(musts.values()), explains, tuple(against), tuple(missing)
    )


def _satisfied(scene: Scene, entity: Entity, clause: Clause) -> tuple[Finding, ...]:
    seen = scene.matching(entity, {clause.where: clause.any})
    if clause.share > 0.0:
        showing = len({finding.entity for finding in seen})
        if showing < clause.share * max(1, scene.members(entity)):
            return ()
    return seen


def _usual(window: Window, scene: Scene, entity: Entity, form: Cause) -> tuple[float, list[str]]:
    """Which part of what it usually shows is seen (1 when nothing is usual or readable), and what is not."""
    shown = scene.shown(entity)
    readable = [s for s in form.usually if s in shown or not _unreadable(window, entity, (s,))]
    if not readable:
        return 0.5, []
    lacking = [s for s in readable if s not in shown]
    return 1.0 - len(lacking) / len(readable), [f"it usually shows {s} too and does not (yet)" for s in lacking]


def _earliness(explains: tuple[Finding, ...], musts: tuple[Finding, ...]) -> float:
    """1 when the cause's own signs are among the first of what it explains, falling to 0 a minute later."""
    if not explains or not musts:
        return 0.0
    late = min(f.since for f in musts) - min(f.since for f in explains)
    return float(np.clip(1.0 - max(0.0, late - EARLY_WITHIN) / 60.0, 0.0, 1.0))


def _unreadable(window: Window, entity: Entity, symptoms: tuple[Symptom, ...]) -> list[str]:
    """The signals whose lack keeps every detector of these symptoms from seeing `entity`; empty when one can see it."""
    lacking: list[str] = []
    for detector in DETECTORS:
        for symptom in symptoms:
            if symptom in detector.finds:
                needed = sorted(detector.needed_by(symptom))
                unread = [signal for signal in needed if not _readable(window, entity, signal)]
                if not unread:
                    return []
                lacking.extend(unread)
    return lacking


def _readable(window: Window, entity: Entity, signal: str) -> bool:
    """Whether `signal` has a fresh sample on the engine, in the table of its kind, or, for anything else, on any engine."""
    if entity.kind in window.tables and signal in window.tables[entity.kind].signals:
        table = window.tables[entity.kind]
        return entity in table.row_of and bool(table.age(signal)[table.row_of[entity]] <= READABLE_IN_TABLES)
    matrix = window.histograms.get(signal) or window.signals.get(signal)
    if matrix is None:
        return False
    if entity.kind is not EntityKind.ENGINE or entity.name not in window.topology.row_of:
        return bool(window.once(("any fresh", signal), lambda: _fresh(window, matrix.sampled_at).any()))
    row = window.topology.row_of[entity.name]
    if isinstance(matrix, HistogramMatrix):
        return bool(_fresh(window, matrix.sampled_at[row : row + 1])[0])
    present = np.where(np.isnan(matrix.values[row]), np.nan, matrix.sampled_at[row])
    return bool(_fresh(window, present[None, :])[0])


def _fresh(window: Window, taken: Floats) -> Bools:
    newest = np.where(np.isnan(taken), -np.inf, taken).max(axis=1, initial=-np.inf)
    return np.asarray(window.now - newest <= READABLE_WITHIN)
