"""What the incidents of a fleet say about a drill: whether to go on watching, and how the warden did. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from actuators.action import OutcomeStatus, VerbSpec
from agent.drill.card import IncidentRow
from agent.drill.fleet import History
from agent.drill.gate import Aim
from agent.incident import Ending, Incident, IncidentState, Opened, Operation
from runbooks.drill import NOTHING, ON_TARGET, Drill, Expected
from serving.fleet.entity import Entity, EntityKind

REDIAGNOSIS_S = 30.0
"""For so long the cause of an incident may still change, while nothing is done about it, before it counts as wrong."""

Verbs = Mapping[str, VerbSpec]


@dataclass(frozen=True, slots=True)
class Plan:
    """A drill with its aims, and when each fault was injected (None: not yet).

    `around`: what else than the targets themselves a repair of them may touch.
    """

    drill: Drill
    aims: tuple[Aim, ...]
    injected: tuple[float | None, ...]
    around: frozenset[Entity] = frozenset()

    @property
    def theirs(self) -> frozenset[Entity]:
        """What was broken, and what else a repair of it may touch."""
        return self.around | {aim.target for aim in self.aims}

    @property
    def began(self) -> float | None:
        """When the first fault was injected."""
        return min((at for at in self.injected if at is not None), default=None)

    def with_injected(self, number: int, at: float) -> "Plan":
        """The same, with the fault of this index injected at `at`."""
        return replace(self, injected=(*self.injected[:number], at, *self.injected[number + 1 :]))


@dataclass(frozen=True, slots=True)
class Matched:
    """The incidents of a drill, told apart.

    `wanted`: by index of the expected ones. `wrong`: about a target or what goes with it, under another cause. `tolerated`:
    what the drill allows beside. `strangers`: what this drill does not make.
    """

    wanted: Mapping[int, History]
    wrong: tuple[History, ...] = ()
    tolerated: tuple[History, ...] = ()
    strangers: tuple[History, ...] = ()


def match(plan: Plan, histories: Sequence[History]) -> Matched:
    """Tell the incidents apart. Each expected one takes the first that fits."""
    wanted: dict[int, History] = {}
    wrong, tolerated, strangers = [], [], []
    for history in histories:
        incident = history.incident
        place = next(
            (n for n in range(len(plan.drill.expect.incidents)) if n not in wanted and _fits(plan, n, incident)), None
        )
        if place is not None:
            wanted[place] = history
        elif _is_tolerated(plan, incident) or _is_again(plan, incident) or incident.ending is Ending.MERGED:
            tolerated.append(history)
        elif incident.entity in plan.theirs:
            wrong.append(history)
        else:
            strangers.append(history)
    return Matched(wanted, tuple(wrong), tuple(tolerated), tuple(strangers))


def stranger(plan: Plan, matched: Matched) -> str | None:
    """Why the drill is called off at once: something is really wrong, elsewhere than what was broken."""
    for history in matched.strangers:
        incident = history.incident
        return (
            f"a real incident: {incident.cause} on {incident.entity} ({incident.id}), which {plan.drill.name} does not make"
        )
    return None


def misjudged(matched: Matched, now: float, verbs: Verbs) -> str | None:
    """Why there is nothing more to learn: what was broken is taken for something else, and not merely for a moment."""
    for history in matched.wrong:
        incident = history.incident
        acted = any(changes(o, verbs) for o in incident.operations)
        if acted or incident.ended or now - incident.opened_at > REDIAGNOSIS_S:
            return f"{incident.entity} is taken for {incident.cause} ({incident.id})"
    return None


def trespass(plan: Plan, matched: Matched, verbs: Verbs) -> str | None:
    """Why the warden touched what it had no business to touch."""
    allowed = frozenset() if plan.drill.expect.decoy else plan.theirs
    allowed |= {history.incident.entity for history in matched.wanted.values()}
    for history in (*matched.wanted.values(), *matched.tolerated, *matched.wrong):
        for operation in history.incident.operations:
            target = operation.action.target
            if changes(operation, verbs) and target not in allowed:
                return f"{operation.action.verb} was done to {target}, which needed no repair ({history.incident.id})"
    return None


def complete(plan: Plan, matched: Matched) -> bool:
    """Whether every expected incident has come to its end, so that there is no more to watch."""
    expected = plan.drill.expect.incidents
    return bool(expected) and all(n in matched.wanted and matched.wanted[n].incident.ended for n in range(len(expected)))


def rows(plan: Plan, matched: Matched, verbs: Verbs, now: float) -> tuple[IncidentRow, ...]:
    """One row an expected incident."""
    return tuple(
        _row(plan, number, expected, matched.wanted.get(number) or _taken_for(plan, number, matched), verbs, now)
        for number, expected in enumerate(plan.drill.expect.incidents)
    )


def others(matched: Matched) -> list[str]:
    """The other incidents in a line each."""
    found = (*matched.tolerated, *matched.wrong, *matched.strangers)
    return [f"{h.incident.cause} on {h.incident.entity} ({h.incident.id}, {h.incident.state})" for h in found]


def changes(operation: Operation, verbs: Verbs) -> bool:
    """Whether it changed something, or may have: a probe does not, and a failed action did not."""
    spec = verbs.get(operation.action.verb)
    failed = operation.outcome is not None and operation.outcome.status is OutcomeStatus.FAILED
    return not failed and (spec is None or not spec.harmless)


def _fits(plan: Plan, number: int, incident: Incident) -> bool:
    expected = plan.drill.expect.incidents[number]
    return incident.cause == expected.cause and _on(plan, number, incident.entity)


def _on(plan: Plan, number: int, entity: Entity) -> bool:
    on = plan.drill.expect.incidents[number].on
    return entity == plan.aims[plan.drill.fault_of(number)].target if on == ON_TARGET else entity.kind == EntityKind(on)


def _is_tolerated(plan: Plan, incident: Incident) -> bool:
    return any(
        side.cause == incident.cause and side.on in {None, incident.entity.kind} for side in plan.drill.expect.tolerated
    )


def _is_again(plan: Plan, incident: Incident) -> bool:
    """The same cause on the same target once more, or on one more entity of the kind that was expected."""
    return any(_fits(plan, number, incident) for number in range(len(plan.drill.expect.incidents)))


def _taken_for(plan: Plan, number: int, matched: Matched) -> History | None:
    """The incident by which the fault's target was taken for something else."""
    return next((h for h in matched.wrong if h.incident.entity == plan.aims[plan.drill.fault_of(number)].target), None)


def _row(plan: Plan, number: int, expected: Expected, history: History | None, verbs: Verbs, now: float) -> IncidentRow:
    aim = plan.aims[plan.drill.fault_of(number)]
    on = str(aim.target) if expected.on == ON_TARGET else f"any {expected.on}"
    row = IncidentRow(expected_cause=expected.cause, expected_on=on, met=False)
    injected = plan.injected[plan.drill.fault_of(number)]
    if injected is None:
        return row.model_copy(update={"reasons": ["its fault was not made"]})
    if history is None:
        waited = f"within {now - injected:.0f} s"
        return row.model_copy(update={"reasons": [f"no incident {expected.cause} on {on} was opened {waited}"]})
    row = row.model_copy(update=_told(expected, history, injected, verbs))
    reasons = list(_shortcomings(expected, history.incident, row))
    return row.model_copy(update={"reasons": reasons, "met": not reasons})


def _told(expected: Expected, history: History, injected: float, verbs: Verbs) -> dict[str, object]:
    incident = history.incident
    done = [o for o in incident.operations if changes(o, verbs)]
    action = done[0].action.verb if done else None
    wanted = expected.first_action
    opened = next((e.diagnosis.cause for e in history.events if isinstance(e, Opened)), incident.cause)
    out = next((o.finished_at for o in done if o.finished_at is not None and _isolates(o, verbs)), None)
    resolved = incident.state is IncidentState.RESOLVED
    return {
        "incident": incident.id,
        "cause": incident.cause,
        "first_cause": opened,
        "entity": str(incident.entity),
        "cause_right": incident.cause == expected.cause,
        "first_action": action,
        "first_action_right": None if wanted is None else (action or NOTHING) == wanted,
        "ending": str(incident.state) if incident.ended else None,
        "detected_after": incident.opened_at - injected,
        "isolated_after": None if out is None else out - injected,
        "recovered_after": incident.ended_at - injected if resolved and incident.ended_at is not None else None,
    }


def _isolates(operation: Operation, verbs: Verbs) -> bool:
    """Whether it takes its target out of service in a way that can be taken back, as a drain does."""
    spec = verbs.get(operation.action.verb)
    return spec is not None and spec.takes_capacity and spec.undo is not None


def _shortcomings(expected: Expected, incident: Incident, row: IncidentRow) -> Iterator[str]:
    if not row.cause_right:
        yield f"it was called {row.cause}, not {expected.cause}"
    if row.first_action_right is False:
        yield f"the first action was {row.first_action or NOTHING}, not {expected.first_action}"
    yield from _late("opened", row.detected_after, expected.detected_within)
    if expected.isolated_within is not None:
        yield from _late("isolated", row.isolated_after, expected.isolated_within)
    if expected.ending not in {"any", row.ending}:
        how = f" ({incident.says})" if incident.says else ""
        yield f"it is {incident.state}{how}, not {expected.ending}"
    elif expected.ending == "resolved":
        yield from _late("resolved", row.recovered_after, expected.recovered_within)


def _late(what: str, after: float | None, within: float) -> Iterator[str]:
    if after is None:
        yield f"it was not {what}"
    elif after > within:
        yield f"it was {what} after {after:.0f} s, not within {within:.0f} s"
