"""Rank: from findings to one diagnosis per independent cause, the likeliest first, with its rivals.

First what is no incident takes its share (after-effects of something over, our own repairs), then causes take theirs,
those on what engines share before those on engines, then best first: what one explains is not diagnosed again. A cause
that lacks a must, is too weak, or has a rival as good without a probe to part them, is kept with `enough=False`: the
honest answer is that the evidence does not suffice.
"""

from collections.abc import Iterable, Iterator

from agent.diagnosis.candidates import Candidate, Scene, candidates
from agent.diagnosis.catalogue import Catalogue
from agent.diagnosis.diagnosis import Diagnosis, Rival
from agent.diagnosis.score import Scored, score
from detectors.finding import Finding
from serving.fleet.entity import Entity, EntityKind
from serving.telemetry.window import Window

ENOUGH = 0.6  # musts seen at about the middle of their range, and little against
WORTH_SAYING = 0.4  # below that a candidate is noise: a must is missing, or something contradicts it
CLOSE = 0.12  # rivals nearer than that are not told apart by what was seen
RIVALS, SEEN_RIVALS = 4, 2  # how many are kept; the rest of the places go to what was thought of and ruled out

REPAIR = "repair.under_way"

# What has more engines behind it comes first: a switch explains its nodes, a node its GPUs, a GPU its engines.
_WIDTH = {EntityKind.ENGINE: 0, EntityKind.RANK: 0, EntityKind.GPU: 1, EntityKind.NODE: 2}
_WIDEST = 3


def diagnose(
    window: Window,
    findings: Iterable[Finding],
    catalogue: Catalogue,
    open_repairs: frozenset[Entity] = frozenset(),
) -> tuple[Diagnosis, ...]:
    """One diagnosis per independent cause, likeliest first.

    `open_repairs` are entities that a repair of ours is changing right now: what a repair makes of them (no answer, a new
    process) and of their peers (more load) is explained by it.
    """
    everything = Scene(window.topology, tuple(findings))
    if not everything.findings:
        return ()
    excused = _excused(window, everything, catalogue, open_repairs)
    left = [finding for finding in everything.findings if id(finding) not in excused]
    scored = [score(window, everything, candidate) for candidate in candidates(everything, catalogue)]
    incidents = sorted(
        (one for one in scored if one.candidate.form.incident and one.score >= WORTH_SAYING),
        key=_widest_first,
        reverse=True,
    )
    diagnoses: list[Diagnosis] = []
    unexplained = {id(finding) for finding in left}
    for one in incidents:
        if not one.musts or not _stands(one, unexplained):
            continue
        unexplained -= {id(finding) for finding in one.explains}
        diagnoses.append(_diagnosis(window, everything, catalogue, one, scored))
    return ranked(diagnoses)


def ranked(diagnoses: Iterable[Diagnosis]) -> tuple[Diagnosis, ...]:
    """Likeliest first; those with enough evidence before those without."""
    return tuple(sorted(diagnoses, key=lambda diagnosis: (not diagnosis.enough, -diagnosis.score)))


def _order(one: Scored) -> tuple[bool, float, int, str, str]:
    return (one.complete, one.score, len(one.explains), one.candidate.form.cause, str(one.candidate.entity))


def _widest_first(one: Scored) -> tuple[int, tuple[bool, float, int, str, str]]:
    """What engines share goes before the engines: one surge, not an overload on each; one blind source, not many deaths."""
    sure = one.complete and one.score >= ENOUGH
    return (_WIDTH.get(one.candidate.entity.kind, _WIDEST) if sure else 0, _order(one))


def _stands(one: Scored, unexplained: set[int]) -> bool:
    """Whether every must that was seen has a finding that nothing better has explained."""
    clauses = one.candidate.form.must
    free = [finding for finding in one.musts if id(finding) in unexplained]
    seen = [clause for clause in clauses if any(finding.symptom in clause.any for finding in one.musts)]
    return bool(free) and all(any(finding.symptom in clause.any for finding in free) for clause in seen)


def _excused(window: Window, scene: Scene, catalogue: Catalogue, open_repairs: frozenset[Entity]) -> set[int]:
    """The findings that are no incident's: explained by recoveries and by our own repairs."""
    excused: set[int] = set()
    for candidate in candidates(scene, catalogue):
        if not candidate.form.incident:
            one = score(window, scene, candidate)
            if one.complete and not any(symptom in scene.shown(candidate.entity) for symptom in candidate.form.cannot):
                excused.update(id(finding) for finding in one.explains)
    for entity in open_repairs:
        for form in catalogue.forms(REPAIR):
            if form.on is entity.kind:
                excused.update(id(finding) for finding in scene.matching(entity, form.explained))
    return excused


def _diagnosis(window: Window, scene: Scene, catalogue: Catalogue, one: Scored, scored: list[Scored]) -> Diagnosis:
    form, entity = one.candidate.form, one.candidate.entity
    rivals = sorted((other for other in scored if _is_rival(one, other)), key=_order, reverse=True)
    rivals.sort(key=lambda other: other.candidate.entity != entity)  # what else this engine could have comes first
    close = any(one.score - other.score < CLOSE for other in rivals if _shares_musts(one, other))
    kept = rivals[:SEEN_RIVALS]
    kept = [*kept, *_ruled_out(window, scene, catalogue, one, kept)][:RIVALS]
    probe = form.probe if form.probe is not None and (close or one.missing) else None
    enough = one.complete and one.score >= ENOUGH and (not close or probe is not None)
    return Diagnosis(
        cause=form.cause,
        entity=entity,
        score=round(one.score, 3),
        since=one.since,
        explains=one.explains,
        against=one.against,
        missing=one.missing,
        rivals=tuple(_rival(one, other) for other in kept),
        enough=enough,
        probe=probe,
    )


def _is_rival(one: Scored, other: Scored) -> bool:
    """Whether `other` would account for something that `one` accounts for."""
    if other.candidate == one.candidate or not other.candidate.form.incident:
        return False
    mine = {id(finding) for finding in one.explains}
    return any(id(finding) in mine for finding in other.musts)


def _shares_musts(one: Scored, other: Scored) -> bool:
    mine = {id(finding) for finding in one.musts}
    return any(id(finding) in mine for finding in other.musts)


def _ruled_out(window: Window, scene: Scene, catalogue: Catalogue, one: Scored, rivals: list[Scored]) -> Iterator[Scored]:
    """The usual look-alikes that show nothing of their own here: worth saying that they were thought of."""
    said = {(other.candidate.form.cause, other.candidate.entity) for other in rivals}
    for name in one.candidate.form.look_alikes:
        for form in catalogue.forms(name):
            if form.on is one.candidate.entity.kind and (name, one.candidate.entity) not in said:
                yield score(window, scene, Candidate(form, one.candidate.entity))


def _rival(one: Scored, other: Scored) -> Rival:
    because = _because(one, other)
    return Rival(other.candidate.form.cause, other.candidate.entity, round(other.score, 3), because)


def _because(one: Scored, other: Scored) -> str:
    if other.against:
        return other.against[0]
    if len(other.explains) < len(one.explains):
        return f"it explains {len(other.explains)} of the findings, {one.candidate.form.cause} {len(one.explains)}"
    return "it is less common"
