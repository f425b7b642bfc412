"""Judge: the record of a trial held against what was really made. Pure.

An incident is about a fault when it is on something within the fault's reach (agent.scoreboard.truth.reach) and had enough
evidence (or, where it never had, was opened) after the fault began; of two faults that fit, it is about the one whose own
target or cause it names, else the later one. An incident about no fault is false, with enough evidence or without.

An action that changes something is false unless a fault that had begun calls for such an action on such a thing; it is
destructive when it takes capacity away or cannot be taken back. Probes, and what gives capacity back, are never false.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from actuators.action import OutcomeStatus, VerbSpec
from agent.diagnosis.diagnosis import Diagnosis
from agent.incident import Incident, IncidentEvent, IncidentState, Opened, Operation, Rediagnosed, fold
from agent.replay.rows import is_destructive
from agent.scoreboard.trial import FaultResult, FaultSpec
from agent.scoreboard.truth import Allowed, Expected
from serving.fleet.entity import Entity

Events = Mapping[str, Sequence[IncidentEvent]]
"""The events of a journal, by incident, in the order in which they opened."""


@dataclass(frozen=True, slots=True)
class Made:
    """A fault or decoy that was made: on what, when (Unix seconds), and when a repair cured it (None: none did).

    `expected` is an Allowed for a decoy. `reach` is everything that it can honestly show on, `grounds` what
    else the actions that it calls for may be done on. Not `curable`: no repair ends it
    for good, it can only be borne until it is over.
    """

    spec: FaultSpec
    targets: tuple[Entity, ...]
    reach: frozenset[Entity]
    began: float
    cured_at: float | None
    expected: Expected | Allowed
    curable: bool = True
    grounds: frozenset[Entity] = frozenset()


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the record of one trial says, beside the numbers of its fleet; the fields are those of a TrialResult."""

    faults: tuple[FaultResult, ...]
    false_incidents: tuple[str, ...]
    false_actions: tuple[str, ...]
    destructive_actions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Seen:
    """One incident of the record: its first diagnosis with enough evidence (else the newest), and when that was made."""

    incident: Incident
    diagnosis: Diagnosis
    at: float
    about: Made | None


def judge(events: Events, made: Sequence[Made], verbs: Mapping[str, VerbSpec], isolates: Iterable[str]) -> Judgement:
    """Hold the events of one trial against what was made in it."""
    seen = tuple(_seen(told, made) for told in events.values())
    touched = [operation for one in seen for operation in one.incident.operations if _takes(operation, verbs)]
    false = [operation for operation in touched if not _called_for(operation, made)]
    return Judgement(
        faults=tuple(_judged(one, seen, verbs, frozenset(isolates)) for one in made if _broken(one)),
        false_incidents=tuple(f"{one.diagnosis.cause} on {one.diagnosis.entity}" for one in seen if _is_false(one, made)),
        false_actions=tuple(_written(op) for op in false),
        destructive_actions=tuple(_written(op) for op in false if is_destructive(verbs.get(op.action.verb))),
    )


def _seen(events: Sequence[IncidentEvent], made: Sequence[Made]) -> _Seen:
    told = [(event.at, event.diagnosis) for event in events if isinstance(event, Opened | Rediagnosed)]
    at, best = next(((at, diagnosis) for at, diagnosis in told if diagnosis.enough), told[-1])
    at = at if best.enough else told[0][0]
    return _Seen(fold(events), best, at, _about(best, at, made))


def _about(diagnosis: Diagnosis, at: float, made: Sequence[Made]) -> Made | None:
    fitting = [one for one in made if one.began <= at and diagnosis.entity in one.reach]
    return max(
        fitting,
        key=lambda one: (diagnosis.entity in one.targets, diagnosis.cause in one.expected.causes, one.began),
        default=None,
    )


def _is_false(one: _Seen, made: Sequence[Made]) -> bool:
    """Whether an incident says something that is not so. One about a decoy is true only by a cause that the table allows."""
    cause = one.diagnosis.cause
    begun = [fault for fault in made if fault.began <= one.at]
    if any(isinstance(fault.expected, Allowed) and cause in fault.expected.causes for fault in begun):
        return False
    if any(isinstance(fault.expected, Expected) and cause in fault.expected.also for fault in begun):
        return False
    return one.about is None or not _broken(one.about)


def _broken(made: Made) -> bool:
    return isinstance(made.expected, Expected)


def _judged(made: Made, seen: Iterable[_Seen], verbs: Mapping[str, VerbSpec], isolates: frozenset[str]) -> FaultResult:
    expected = made.expected
    if not isinstance(expected, Expected):
        raise TypeError(f"{made.spec.name} is a decoy: there is nothing to be found")
    about = [one for one in seen if one.about is made]
    sure = sorted((one for one in about if one.diagnosis.enough), key=lambda one: one.at)
    first = sure[0] if sure else None
    operations = sorted(
        (op for one in about for op in one.incident.operations if _changes(op, expected, verbs)),
        key=lambda op: op.intended_at,
    )
    acted = operations[0] if operations else None
    isolated = [
        op.finished_at
        for op in operations
        if op.action.verb in isolates and op.outcome is not None and op.outcome.status is OutcomeStatus.DONE
    ]
    return FaultResult(
        name=made.spec.name,
        target=", ".join(map(str, made.targets)),
        onset=made.spec.onset,
        parameters=made.spec.parameters,
        detected_after=first.at - made.began if first else None,
        cause=first.diagnosis.cause if first else None,
        right_cause=first is not None and _named(first.diagnosis, made, expected),
        first_action=_written(acted) if acted else None,
        right_action=first is not None and _right_first(acted, made, expected),
        isolated_after=_after(made, min((at for at in isolated if at is not None), default=None)),
        recovered_after=_after(made, _recovered(made, about)),
        cured=made.cured_at is not None,
    )


def _after(made: Made, at: float | None) -> float | None:
    return None if at is None else at - made.began


def _named(diagnosis: Diagnosis, made: Made, expected: Expected) -> bool:
    """Whether the cause is a right one, on the right kind of thing, and on the target itself where it is of that kind."""
    on = diagnosis.entity
    if diagnosis.cause not in expected.causes or on.kind not in expected.on:
        return False
    return on in made.targets or all(target.kind is not on.kind for target in made.targets)


def _right_first(acted: Operation | None, made: Made, expected: Expected) -> bool:
    if acted is None:
        return not expected.first
    return acted.action.verb in expected.first and acted.action.target in made.reach


def _recovered(made: Made, about: Sequence[_Seen]) -> float | None:
    """When the last of its incidents was resolved; None while any is not, or a fault that can be cured was not."""
    ends = [one.incident.ended_at for one in about if one.incident.state is IncidentState.RESOLVED]
    if (made.curable and made.cured_at is None) or not about or len(ends) < len(about):
        return None
    return max((at for at in ends if at is not None), default=None)


def _takes(operation: Operation, verbs: Mapping[str, VerbSpec]) -> bool:
    """Whether it may take something away: not a probe, and not what gives capacity back."""
    spec = verbs.get(operation.action.verb)
    return spec is None or not (spec.harmless or spec.recovery)


def _changes(operation: Operation, expected: Expected, verbs: Mapping[str, VerbSpec]) -> bool:
    """Whether it is part of a repair: it may take something away, or gives back what the fault calls for."""
    return _takes(operation, verbs) or operation.action.verb in expected.first


def _called_for(operation: Operation, made: Iterable[Made]) -> bool:
    """Whether a fault that had begun calls for such an action on such a thing."""
    begun = (one for one in made if one.began <= operation.intended_at)
    on = operation.action.target
    return any(on in one.reach | one.grounds and operation.action.verb in _calls_for(one.expected) for one in begun)


def _calls_for(expected: Expected | Allowed) -> Iterator[str]:
    if isinstance(expected, Expected):
        yield from (*expected.first, *expected.later)


def _written(operation: Operation) -> str:
    return f"{operation.action.verb} on {operation.action.target}"
