"""The report of a look at a fleet: verdict, ranked causes, what could not be seen. Its keys are those of `diagnose --json`.

Times are Unix seconds; what is not known is null. Does not belong here: how it looks (agent.checkup.page).
"""

import math
from collections.abc import Mapping, Sequence
from enum import StrEnum

import numpy as np

from agent.checkup.blind_spots import BlindSpot, blind_spots, idle_engines
from agent.checkup.feed import Feed, Look
from agent.checkup.places import NoPlace
from agent.checkup.settings import Setting
from agent.diagnosis.diagnosis import Diagnosis
from agent.explanation import EvidenceRow, RivalRow, Row
from agent.report.phrases import CAUSES
from agent.report.wording import duration, name
from serving.fleet.entity import Entity, EntityKind
from serving.fleet.topology import Relation
from serving.telemetry.registry import Registry


class Verdict(StrEnum):
    """What the look comes to. Only `healthy` is an all-clear, and only for what could be seen."""

    HEALTHY = "healthy"
    SICK = "sick"
    SUSPECT = "suspect"
    UNMEASURED = "unmeasured"
    UNREADABLE = "unreadable"


EXIT_CODES: Mapping[Verdict, int] = {
    Verdict.HEALTHY: 0,
    Verdict.SICK: 1,
    Verdict.SUSPECT: 1,
    Verdict.UNMEASURED: 2,
    Verdict.UNREADABLE: 2,
}


class EngineRow(Row):
    """One engine. Null: not known.

    `measured`: it gave at least two readings of its steps or tokens. `idle`: nothing seems to be asked of it lately.
    `older_names`: signals that come under another than their newest name, and that name.
    """

    engine: str
    url: str
    model: str
    node: str | None
    measured: bool
    idle: bool
    running: float | None
    waiting: float | None
    kv_usage: float | None
    steps_per_s: float | None
    older_names: dict[str, str]


class SettingRow(Row):
    """A setting of vLLM to look at."""

    setting: str
    look: str
    source: str


class CauseRow(Row):
    """One likely cause. `enough`: the evidence suffices; otherwise it is only a suspicion.

    `probe`: the harmless question that would tell it from its closest rival (`engine.canary`: one small request).
    """

    rank: int
    cause: str
    entity: str
    headline: str
    means: str
    score: float
    enough: bool
    since: float
    evidence: list[EvidenceRow]
    against: list[str]
    missing: list[str]
    rivals: list[RivalRow]
    probe: str | None
    settings: list[SettingRow]


class UnreadRow(Row):
    """A place that could not be read, and what to do."""

    url: str
    kind: str
    says: str
    todo: str


class UnseenRow(Row):
    """Something that could not be seen, and the detectors that it makes blind or less sure."""

    kind: str
    engines: list[str]
    says: str
    signals: list[str]
    blind: list[str]
    weakened: list[str]
    todo: str


class CheckupReport(Row):
    """A whole look. `source` is metrics or prometheus; `watched_s` how much of the past it rests on."""

    at: float
    source: str
    urls: list[str]
    watched_s: float
    readings: int
    verdict: Verdict
    exit_code: int
    says: str
    engines: list[EngineRow]
    causes: list[CauseRow]
    unread: list[UnreadRow]
    unseen: list[UnseenRow]
    notes: list[str]


def unread(places: Sequence[NoPlace]) -> list[UnreadRow]:
    """The places that are nothing, as rows."""
    return [UnreadRow(url=place.url, kind=str(place.kind), says=place.says, todo=place.todo) for place in places]


def nothing_read(at: float, urls: Sequence[str], rows: list[UnreadRow], notes: Sequence[str] = ()) -> CheckupReport:
    """The report when no place could be read at all."""
    says = "nothing could be read, so nothing is known of the fleet"
    return _report(at, "none", urls, (0.0, 0), Verdict.UNREADABLE, says, unread=rows, notes=list(notes))


def report(
    look: Look,
    feed: Feed,
    registry: Registry,
    settings: Mapping[str, tuple[Setting, ...]],
    *,
    source: str,
    urls: Sequence[str],
    gone: Sequence[NoPlace] = (),
    notes: Sequence[str] = (),
) -> CheckupReport:
    """The report of one look. `gone` are typed URLs at which nothing of use stands."""
    idle = frozenset(idle_engines(look, feed))
    engines = [_engine(look, feed, registry, row, idle) for row in range(look.window.rows)]
    rows = unread([place for place in gone if not place.may_be_an_engine]) + _not_answering(look, feed, gone)
    causes = [_cause(rank, diagnosis, settings) for rank, diagnosis in enumerate(look.diagnoses, start=1)]
    spots = blind_spots(look, feed, registry)
    verdict = _verdict(look, engines, rows)
    failed = [
        f"the detector {one.detector} failed, so what it would find is not known: {one.error}"
        for one in look.detection.failed
    ]
    return _report(
        look.window.now,
        source,
        urls,
        (look.seconds, look.readings),
        verdict,
        _says(verdict, look, engines, rows),
        engines=engines,
        causes=causes,
        unread=rows,
        unseen=[_unseen(spot) for spot in spots],
        notes=[*notes, *feed.mapped.notes, *failed],
    )


def _report(
    at: float,
    source: str,
    urls: Sequence[str],
    watched: tuple[float, int],
    verdict: Verdict,
    says: str,
    **parts: Sequence[object],
) -> CheckupReport:
    whole: dict[str, Sequence[object]] = {"engines": [], "causes": [], "unread": [], "unseen": [], "notes": []}
    return CheckupReport.model_validate(
        {
            "at": at,
            "source": source,
            "urls": list(urls),
            "watched_s": round(watched[0], 3),
            "readings": watched[1],
            "verdict": verdict,
            "exit_code": EXIT_CODES[verdict],
            "says": says,
            **whole,
            **parts,
        }
    )


def _verdict(look: Look, engines: Sequence[EngineRow], rows: Sequence[UnreadRow]) -> Verdict:
    if any(diagnosis.enough for diagnosis in look.diagnoses):
        return Verdict.SICK
    if look.diagnoses:
        return Verdict.SUSPECT
    if not any(engine.measured for engine in engines):
        return Verdict.UNMEASURED
    if rows or any(status.error for status in look.window.sources):
        return Verdict.UNREADABLE
    return Verdict.HEALTHY if all(engine.measured for engine in engines) else Verdict.UNREADABLE


def _says(verdict: Verdict, look: Look, engines: Sequence[EngineRow], rows: Sequence[UnreadRow]) -> str:
    sure = [diagnosis for diagnosis in look.diagnoses if diagnosis.enough]
    thin = len(look.diagnoses) - len(sure)
    measured = sum(engine.measured for engine in engines)
    match verdict:
        case Verdict.SICK:
            also = f"; {thin} more suspected without enough evidence" if thin else ""
            return f"{_count(len(sure), 'cause')} of trouble found{also}"
        case Verdict.SUSPECT:
            return f"signs of trouble, and not enough evidence to name the cause: {_count(thin, 'suspicion')}"
        case Verdict.UNMEASURED:
            why = next((status.error for status in look.window.sources if status.error), "")
            return f"nothing measured: no engine gave two readings of its work{f'; {why}' if why else ''}"
        case Verdict.UNREADABLE:
            missing = len(rows) or len(engines) - measured
            return f"no sign of trouble in what could be read, and {_count(missing, 'place')} could not be read"
        case Verdict.HEALTHY:
            idle = sum(engine.idle for engine in engines)
            also = f", {idle} of them idle" if idle else ""
            return f"no sign of trouble in what could be seen of {_count(measured, 'engine')}{also}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _engine(look: Look, feed: Feed, registry: Registry, row: int, idle: frozenset[Entity]) -> EngineRow:
    window, fresh = look.window, feed.parameters.progress.fresh
    engine = window.topology.engines[row]
    facts = window.topology.facts(engine)
    node = next((other.name for other in window.topology.related(engine, Relation.RUNS_ON)), None)
    sight = feed.sights.get(engine.name)
    work = [window.values(signal)[row] for signal in ("engine.steps", "engine.generation_tokens")]
    return EngineRow(
        engine=engine.name,
        url=feed.mapped.metrics_urls.get(engine.name, facts.url),
        model=facts.model,
        node=node,
        measured=any(int((~np.isnan(values)).sum()) >= 2 for values in work),  # noqa: PLR2004 - one sample shows no work
        idle=engine in idle,
        running=_number(window.latest("engine.running", fresh)[row]),
        waiting=_number(window.latest("engine.waiting", fresh)[row]),
        kv_usage=_number(window.latest("engine.kv_usage", fresh)[row]),
        steps_per_s=_number(window.rate("engine.steps", min(look.seconds + 1.0, 60.0))[row]),
        older_names={} if sight is None else sight.older(registry),
    )


def _not_answering(look: Look, feed: Feed, gone: Sequence[NoPlace]) -> list[UnreadRow]:
    """Engines that did not answer at the latest look and of which no diagnosis speaks."""
    told = {d.entity for d in look.diagnoses} | {f.entity for d in look.diagnoses for f in d.explains}
    todo = {place.url: (str(place.kind), place.says, place.todo) for place in gone}
    up = look.window.latest("scrape.up", feed.parameters.progress.fresh)
    rows = []
    for row in np.flatnonzero(up == 0):
        engine = look.window.topology.engines[row]
        if engine in told:
            continue
        url = feed.mapped.metrics_urls.get(engine.name, feed.mapped.topology.facts(engine).url)
        happened = [
            event.text for event in look.window.events if event.entity == engine and event.kind != "scrape.recovered"
        ]
        says = (happened[-1] if happened else "could not be scraped at the last try").removeprefix(url).lstrip(": ")
        kind, first, what = todo.get(url, ("other", says, "watch on with --watch, or look at the engine's log"))
        rows.append(UnreadRow(url=url, kind=kind, says=first, todo=what))
    return rows


def _cause(rank: int, found: Diagnosis, settings: Mapping[str, tuple[Setting, ...]]) -> CauseRow:
    words = CAUSES.get(found.cause)
    present = words.present if words else f"has {found.cause}"
    subject = found.entity.name if found.entity.kind is EntityKind.ENGINE else name(found.entity)
    return CauseRow(
        rank=rank,
        cause=found.cause,
        entity=str(found.entity),
        headline=f"{subject} {present}",
        means=words.meaning if words else "",
        score=found.score,
        enough=found.enough,
        since=found.since,
        evidence=[
            EvidenceRow(
                symptom=finding.symptom.value,
                entity=str(finding.entity),
                since=finding.since,
                severity=finding.severity,
                signal=evidence.signal,
                says=evidence.says,
                value=_number(evidence.value),
                expected=None if evidence.expected is None else _number(evidence.expected),
                unit=evidence.unit,
            )
            for finding in sorted(found.explains, key=lambda finding: -finding.severity)
            for evidence in finding.evidence
        ],
        against=list(found.against),
        missing=list(found.missing),
        rivals=[
            RivalRow(cause=rival.cause, entity=str(rival.entity), score=rival.score, behind_because=rival.behind_because)
            for rival in found.rivals
        ],
        probe=found.probe,
        settings=[SettingRow(**setting.model_dump()) for setting in settings.get(found.cause, ())],
    )


def _unseen(spot: BlindSpot) -> UnseenRow:
    return UnseenRow(
        kind=str(spot.kind),
        engines=list(spot.engines),
        says=spot.says,
        signals=list(spot.signals),
        blind=list(spot.blind),
        weakened=list(spot.weakened),
        todo=spot.todo,
    )


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def watched(report: CheckupReport) -> str:
    """What the report rests on, in words: `scraped 11 times in 20 s`."""
    if report.source == "prometheus":
        return f"the last {duration(report.watched_s)} out of Prometheus, {report.readings} readings"
    return f"scraped {report.readings} times in {duration(report.watched_s)}"
