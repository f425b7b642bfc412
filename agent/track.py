"""Which incidents there are: from the diagnoses of this moment and the incidents that stand to the events that follow.

Pure: what it must remember between two moments (since when a cause is gone) is in the incidents themselves, so a restarted
warden tracks on as if it had never died. Does not belong here: what to do about an incident (agent.decision).
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2s

from agent.diagnosis.diagnosis import Diagnosis
from agent.incident import (
    Closed,
    Ended,
    Ending,
    Incident,
    IncidentEvent,
    IncidentState,
    Opened,
    Rediagnosed,
    SymptomsBack,
    SymptomsGone,
)
from detectors.finding import Symptom
from serving.fleet.entity import Entity, EntityKind

BLIND = "telemetry.blind"

_FOR_A_WHILE = (Ending.RULED_OUT, Ending.MERGED)  # ends that say nothing for good about the cause
_UNDER_REPAIR = frozenset({IncidentState.ACTING, IncidentState.VERIFYING})
_LONGEST_NAME = 40  # characters of an entity's name in an incident's id


@dataclass(frozen=True, slots=True)
class TrackParameters:
    """For how long things must hold, in seconds, and by how much.

    `thin_for`: a diagnosis without enough evidence becomes an incident only when its symptoms have held this long; a blink
    of one detector is not worth a line in the record. `healed_after`: an incident of which nothing was done has healed when
    its cause stays away this long: several detector holds. `gone_for`: an incident that a person was called for stands for
    its cause until that stays away this long, so that a flapping cause does not call again and again. `suppressed_for`: a
    cause that was ruled out or merged is taken up again after this long although it never went away, for what was disproved
    once may come true. `margin`: another cause takes over an incident only with a score this much higher than the present
    cause's, or two close rivals would take turns. `moved`: a score must change by this much to be written down again.
    """

    thin_for: float = 10.0
    healed_after: float = 60.0
    gone_for: float = 120.0
    suppressed_for: float = 120.0
    margin: float = 0.05
    moved: float = 0.15


def track(
    standing: Iterable[Incident],
    diagnoses: Iterable[Diagnosis],
    now: float,
    parameters: TrackParameters = TrackParameters(),
    blind: Collection[Entity] = (),
) -> tuple[IncidentEvent, ...]:
    """The events that the diagnoses of this moment make of the incidents that stand (`Journal.standing`).

    At most one open incident an entity. While it is under repair, whatever is diagnosed on its entity is explained by that.
    Before, the likeliest cause takes it over, and it ends as healed when its cause stays away. What an incident of many
    things leaves on a few of them while it is repaired or fades (queues that drain after a surge) opens nothing as long as
    it stands, if it had explained half of those symptoms or more. An incident that ended with its cause still there
    (escalated, rejected, ruled out, merged) stands for that cause until it is closed; meanwhile only another cause opens an
    incident on the entity. On what cannot be seen (`blind`, or said to be so by a diagnosis) nothing is ever taken as gone:
    no data is not health.
    """
    incidents, seen = tuple(standing), tuple(diagnoses)
    unseen = _Unseen(seen, blind)
    open_ones = [incident for incident in incidents if not incident.ended]
    done = [incident for incident in incidents if incident.ended and incident.standing]
    by_entity = _by_entity(seen)
    events: list[IncidentEvent] = []
    for incident in open_ones:
        events += _go_on(incident, by_entity.get(incident.entity, ()), seen, now, parameters, hidden=unseen.hides(incident))
    closed: set[str] = set()
    for incident in done:
        step = tuple(_wait(incident, by_entity.get(incident.entity, ()), now, parameters, hidden=unseen.hides(incident)))
        closed.update(event.incident for event in step if isinstance(event, Closed))
        events += step
    covered = {(incident.cause, incident.entity) for incident in done if incident.id not in closed}
    busy = {incident.entity for incident in open_ones}
    waning = _waning((*open_ones, *(incident for incident in done if incident.id not in closed)), by_entity)
    for entity, candidates in by_entity.items():
        if entity not in busy:
            own = [diagnosis for diagnosis in candidates if not any(_aftermath(diagnosis, incident) for incident in waning)]
            events += _open(own, covered, now, parameters)
    return tuple(events)


def incident_id(diagnosis: Diagnosis, now: float) -> str:
    """A short id that sorts by time and can be read: `20260102-1403-hung-sim-1-3f2a`, the time in UTC.

    The end tells apart what began in the same minute; cause, entity and time alone make it, so it can be made again.
    """
    moment = datetime.fromtimestamp(now, UTC)
    told = f"{diagnosis.cause.rpartition('.')[2]}-{diagnosis.entity.name[:_LONGEST_NAME]}"
    readable = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in told)
    mark = blake2s(f"{diagnosis.cause}|{diagnosis.entity}|{now:.3f}".encode("utf-8", "replace"), digest_size=2).hexdigest()
    return f"{moment:%Y%m%d-%H%M}-{readable}-{mark}"


class _Unseen:
    """What cannot be seen now, as the caller and the diagnoses say; with a source blind, anything may be unseen."""

    def __init__(self, diagnoses: Sequence[Diagnosis], blind: Collection[Entity]) -> None:
        blindness = [diagnosis for diagnosis in diagnoses if diagnosis.cause == BLIND]
        findings = [finding for diagnosis in blindness for finding in diagnosis.explains]
        lost = any(finding.symptom is Symptom.MOST_TARGETS_LOST for finding in findings)
        self._all = lost or any(diagnosis.entity.kind is EntityKind.TELEMETRY for diagnosis in blindness)
        self._entities = {*blind, *(d.entity for d in blindness), *(finding.entity for finding in findings)}

    def hides(self, incident: Incident) -> bool:
        """Whether the incident's cause could be there without anybody seeing it."""
        return incident.cause != BLIND and (self._all or incident.entity in self._entities)


def _by_entity(diagnoses: Iterable[Diagnosis]) -> Mapping[Entity, tuple[Diagnosis, ...]]:
    """The diagnoses of each entity, likeliest first; those with enough evidence before those without."""
    found: dict[Entity, tuple[Diagnosis, ...]] = {}
    for diagnosis in sorted(diagnoses, key=lambda item: (not item.enough, -item.score, item.cause)):
        found[diagnosis.entity] = (*found.get(diagnosis.entity, ()), diagnosis)
    return found


def _open(
    candidates: Sequence[Diagnosis], covered: Collection[tuple[str, Entity]], now: float, parameters: TrackParameters
) -> Iterator[IncidentEvent]:
    for diagnosis in candidates:
        if (diagnosis.cause, diagnosis.entity) in covered:
            continue
        if diagnosis.enough or now - diagnosis.since >= parameters.thin_for:
            yield Opened(incident_id(diagnosis, now), now, diagnosis)
            return


def _waning(standing: Iterable[Incident], by_entity: Mapping[Entity, Sequence[Diagnosis]]) -> tuple[Incident, ...]:
    """The incidents that are under repair, or whose cause is not diagnosed any more where it was."""
    return tuple(
        incident
        for incident in standing
        if incident.state in _UNDER_REPAIR
        or all(diagnosis.cause != incident.cause for diagnosis in by_entity.get(incident.entity, ()))
    )


def _aftermath(diagnosis: Diagnosis, incident: Incident) -> bool:
    """Whether at least half of what this diagnosis explains was explained by an incident of more things than it is about."""
    own, wider = _shown(diagnosis), _shown(incident.diagnosis)
    before = own & wider
    narrower = len({entity for _, entity in own}) < len({entity for _, entity in wider})
    return narrower and bool(before) and 2 * len(before) >= len(own)


def _go_on(
    incident: Incident,
    candidates: Sequence[Diagnosis],
    all_diagnoses: Sequence[Diagnosis],
    now: float,
    parameters: TrackParameters,
    *,
    hidden: bool,
) -> Iterator[IncidentEvent]:
    """What follows for an open incident from the diagnoses on its entity."""
    if incident.state in _UNDER_REPAIR:
        return  # our own repair explains whatever shows there
    if candidates:
        yield from _still_there(incident, candidates, now, parameters)
    elif hidden:
        yield from _not_gone(incident, now)
    else:
        yield from _away(incident, all_diagnoses, now, parameters)


def _not_gone(incident: Incident, now: float) -> Iterator[IncidentEvent]:
    """The cause is there again, or nobody can tell: time in which nobody could look is not time without symptoms."""
    if incident.gone_since is not None:
        yield SymptomsBack(incident.id, now)


def _still_there(
    incident: Incident, candidates: Sequence[Diagnosis], now: float, parameters: TrackParameters
) -> Iterator[IncidentEvent]:
    yield from _not_gone(incident, now)
    if _undone(incident):
        present = _likeliest(incident, candidates, parameters)
        if _differs(incident.diagnosis, present, parameters):
            yield Rediagnosed(incident.id, now, present)


def _away(
    incident: Incident, diagnoses: Sequence[Diagnosis], now: float, parameters: TrackParameters
) -> Iterator[IncidentEvent]:
    if incident.gone_since is None:
        yield SymptomsGone(incident.id, now)
    elif _undone(incident) and incident.pending is None and now - incident.gone_since >= parameters.healed_after:
        other = _explained_by(incident, diagnoses)
        if other is not None:
            says = f"its symptoms are explained by {other.cause} on {other.entity}"
            yield Ended(incident.id, now, IncidentState.SUPPRESSED, Ending.MERGED, says)
        else:
            says = f"{incident.cause} was gone for {now - incident.gone_since:.0f} s, and nothing had been done"
            yield Ended(incident.id, now, IncidentState.RESOLVED, Ending.HEALED, says)


def _wait(
    incident: Incident, candidates: Sequence[Diagnosis], now: float, parameters: TrackParameters, *, hidden: bool
) -> Iterator[IncidentEvent]:
    """What follows for an incident that ended with its cause still there."""
    there = any(diagnosis.cause == incident.cause for diagnosis in candidates)
    if incident.ending in _FOR_A_WHILE and now - (incident.ended_at or now) >= parameters.suppressed_for:
        yield Closed(incident.id, now, f"{incident.cause} may be looked at again")
    elif there or hidden:
        yield from _not_gone(incident, now)
    elif incident.gone_since is None:
        yield SymptomsGone(incident.id, now)
    elif now - incident.gone_since >= parameters.gone_for:
        yield Closed(incident.id, now, f"{incident.cause} stayed away for {now - incident.gone_since:.0f} s")


def _undone(incident: Incident) -> bool:
    """Whether nothing was done yet that could have changed the symptoms."""
    return incident.state is IncidentState.OPEN and incident.attempt == 0


def _likeliest(incident: Incident, candidates: Sequence[Diagnosis], parameters: TrackParameters) -> Diagnosis:
    """The first candidate, or the incident's own cause when that is as good within the margin."""
    first = candidates[0]
    own = next((diagnosis for diagnosis in candidates if diagnosis.cause == incident.cause), None)
    if own is not None and own.enough == first.enough and first.score - own.score < parameters.margin:
        return own
    rivals = (rival for rival in first.rivals if (rival.cause, rival.entity) == (incident.cause, incident.entity))
    if own is None and incident.diagnosis.enough == first.enough:
        close = any(first.score - rival.score < parameters.margin for rival in rivals)
        return incident.diagnosis if close else first
    return first


def _differs(old: Diagnosis, new: Diagnosis, parameters: TrackParameters) -> bool:
    """Whether a new diagnosis is worth a line in the record."""
    shown_before, shown_now = _shown(old), _shown(new)
    other = (old.cause, old.enough, old.probe) != (new.cause, new.enough, new.probe)
    return other or not shown_now <= shown_before or abs(old.score - new.score) >= parameters.moved


def _shown(diagnosis: Diagnosis) -> set[tuple[Symptom, Entity]]:
    return {(finding.symptom, finding.entity) for finding in diagnosis.explains}


def _explained_by(incident: Incident, diagnoses: Iterable[Diagnosis]) -> Diagnosis | None:
    """A diagnosis on something else that accounts for symptoms of the incident, and is not what it left behind."""
    own = _shown(incident.diagnosis)
    others = (diagnosis for diagnosis in diagnoses if not _aftermath(diagnosis, incident))
    return next((diagnosis for diagnosis in others if own & _shown(diagnosis)), None)
