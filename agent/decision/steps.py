"""Steps: where a runbook stands for an incident, which action is due, and what of it could be taken back. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from actuators.action import Action, OutcomeStatus, VerbSpec
from actuators.binding import undo_of
from agent.decision.facts import facts
from agent.decision.state import FleetState, engines_of, holders_of
from agent.incident import Incident, Operation
from runbooks.conditions import compiled
from runbooks.runbook import HAND_OVER, UNDO, Runbook, Step
from runbooks.templates import fill
from serving.fleet.entity import Entity, EntityKind
from serving.fleet.places import nodes_of

Specs = Mapping[str, VerbSpec]

UNKNOWN_LIMIT = 300.0
"""Seconds after which an outcome that is still unknown is left to a person: look-ups that have not told by then will not."""
HELD_LIMIT = 900.0
"""Seconds for which a due step may be held back (budget, breaker, pause); after that the evidence behind it is stale."""
RETRY_FIRST, RETRY_LONGEST = 5.0, 60.0
"""Seconds before the second try of a step, doubled each time up to the longest."""


class Stage(StrEnum):
    """How far the present step is."""

    DUE = "due"  # its action is to be done now
    UNKNOWN = "unknown"  # its action was begun and nobody knows what became of it
    HOLDING = "holding"  # done; waiting for `until`, or for the next try
    PASSED = "passed"  # over; the next step is due
    LATE = "late"  # `until` did not come true in time
    FAILED = "failed"
    RULED_OUT = "ruled_out"  # a probe answered otherwise than the cause predicts
    HANDED_OVER = "handed_over"  # the rest is for a person
    COMPLETE = "complete"  # every step is over


@dataclass(frozen=True, slots=True)
class StepProgress:
    """The present step of a runbook and its stage. `action` is set when it is due."""

    stage: Stage
    says: str
    step: str | None = None
    action: Action | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """What an operation changed and nothing has taken back yet, and the action that would."""

    operation: Operation
    undo: Action


def step_key(incident: Incident, attempt: int, step: str) -> str:
    """The operation key of a step: unique for incident, attempt, step and try."""
    used = (*incident.operations, *incident.withdrawn)
    tries = sum(operation.attempt == attempt and operation.step == step for operation in used)
    return f"{incident.id}/{attempt}/{step}" + (f"/{tries + 1}" if tries else "")


def progress(incident: Incident, runbook: Runbook | None, state: FleetState, specs: Specs, *, now: float) -> StepProgress:
    """Where the present attempt of an acting incident stands."""
    if runbook is None:
        return StepProgress(Stage.FAILED, f"the runbook {incident.runbook!r} is not loaded any more")
    step = next((step for step in runbook.steps if step.id not in incident.passed), None)
    if step is None:
        return StepProgress(Stage.COMPLETE, f"all {len(runbook.steps)} steps of {runbook.name} are over")
    return _of_step(step, incident, state, specs, now)


def first_step(incident: Incident, runbook: Runbook, state: FleetState, specs: Specs) -> StepProgress:
    """The first step of a coming attempt that has anything to do."""
    for step in runbook.steps:
        if _left_out(step, incident, state) is not None:
            continue
        if step.do == HAND_OVER:
            return StepProgress(Stage.HANDED_OVER, _handed_over(step, runbook.name), step.id)
        action = next(iter(actions_of(step, incident, state, specs)), None)
        if action is not None:
            return StepProgress(Stage.DUE, _due(step, action, runbook), step.id, action)
    return StepProgress(Stage.COMPLETE, f"{runbook.name} has nothing to do")


def actions_of(step: Step, incident: Incident, state: FleetState, specs: Specs) -> tuple[Action, ...]:
    """The actions of `step`, one for each thing it is done to; for an `undo`, one for each change that still holds."""
    if step.do == UNDO:
        return tuple(c.undo for c in changes(incident, specs) if c.operation.step == step.arguments.get("step"))
    if step.do == HAND_OVER:
        return ()
    actions = []
    for target in targets_of(step, incident, state):
        names = template_names(incident, state, target)
        filled = {name: fill(value, names) for name, value in step.arguments.items()}
        actions.append(Action(step.do, target, MappingProxyType(filled)))
    return tuple(actions)


def targets_of(step: Step, incident: Incident, state: FleetState) -> tuple[Entity, ...]:
    """What `step` is done to, by its `on`, in the order of the map."""
    topology, entity = state.topology, incident.entity
    match step.on:
        case "engines":
            return engines_of(topology, entity)
        case "node":
            return nodes_of(topology, entity)
        case "node_engines":
            nodes = nodes_of(topology, entity)
            return tuple(dict.fromkeys(engine for node in nodes for engine in engines_of(topology, node)))
        case _:
            return (entity,)


def reached(incident: Incident, runbook: Runbook, state: FleetState) -> tuple[Entity, ...]:
    """Everything that a run of the runbook would be done to, as far as is known before it begins."""
    steps = (step for step in runbook.steps if _left_out(step, incident, state) is None)
    return tuple(dict.fromkeys(target for step in steps for target in targets_of(step, incident, state)))


def template_names(incident: Incident, state: FleetState, target: Entity | None = None) -> Mapping[str, str]:
    """What the templates of `runbooks.templates.NAMES` stand for; a name that the target has no use for is a dash."""
    target = target or incident.entity
    holders = holders_of(state.topology, target)
    of = {kind: next((h.name for h in holders if h.kind is kind), "-") for kind in EntityKind}
    return {
        "cause": incident.cause,
        "cell": state.cell_of(incident.entity),
        "engine": of[EntityKind.ENGINE],
        "incident": incident.id,
        "model": of[EntityKind.MODEL],
        "node": of[EntityKind.NODE],
        "target": str(target),
    }


def changes(incident: Incident, specs: Specs) -> tuple[Change, ...]:
    """What the incident has changed in the world and not taken back, newest first. A recovery is never taken back."""
    live: list[Change] = []
    for operation in incident.operations:
        outcome, action = operation.outcome, operation.action
        if outcome is None or outcome.status is not OutcomeStatus.DONE:
            continue
        kept = [change for change in live if not _takes_back(action, change)]
        took_back, live = len(kept) < len(live), kept
        spec = specs.get(action.verb)
        undo = undo_of(specs, action, outcome)
        if undo is not None and spec is not None and not spec.recovery and not took_back:
            live.append(Change(operation, undo))
    return tuple(reversed(live))


def _takes_back(action: Action, change: Change) -> bool:
    undo = change.undo
    return action.verb == undo.verb and action.target == undo.target and dict(action.arguments) == dict(undo.arguments)


def _of_step(step: Step, incident: Incident, state: FleetState, specs: Specs, now: float) -> StepProgress:
    """Where the present step stands: with the first thing it is done to for which it is not over."""
    mine = [o for o in incident.operations if o.attempt == incident.attempt and o.step == step.id]
    begins = None if mine else _not_done(step, incident, state)
    if begins is not None:
        return begins
    by_target: dict[Entity, list[Operation]] = {}
    for operation in mine:
        by_target.setdefault(operation.action.target, []).append(operation)
    over: StepProgress | None = None
    for tried in by_target.values():
        over = _tried(step, tried, incident, now)
        if over.stage is not Stage.PASSED:
            return over
    for action in actions_of(step, incident, state, specs):
        if action.target not in by_target:
            return _untried(step, action, incident, now)
    if over is None:
        undone = f"{step.arguments.get('step')} has changed nothing, so there is nothing to take back"
        says = f"step {step.id}: {undone if step.do == UNDO else 'there is nothing to do it to'}"
        return StepProgress(Stage.PASSED, says, step.id)
    newest = [tried[-1] for tried in by_target.values()]
    if any(o.outcome is None or str(o.outcome.status) != step.expect for o in newest):
        return over
    return _held(step, max(o.finished_at or o.intended_at for o in newest), incident, state, now)


def _not_done(step: Step, incident: Incident, state: FleetState) -> StepProgress | None:
    """A step that is left out, or that hands over; None for one that is to be done."""
    left_out = _left_out(step, incident, state)
    if left_out is not None:
        return StepProgress(Stage.PASSED, f"step {step.id} is left out: {left_out}", step.id)
    if step.do == HAND_OVER:
        return StepProgress(Stage.HANDED_OVER, _handed_over(step, incident.runbook or "the runbook"), step.id)
    return None


def _untried(step: Step, action: Action, incident: Incident, now: float) -> StepProgress:
    held = now - (incident.step_since if incident.step_since is not None else now)
    if held > HELD_LIMIT:
        says = f"step {step.id} was held back for {held:.0f} s (limit {HELD_LIMIT:.0f} s); what it rests on is stale"
        return StepProgress(Stage.FAILED, says, step.id)
    return StepProgress(Stage.DUE, _due(step, action), step.id, action)


def _handed_over(step: Step, runbook: str) -> str:
    because = f", because {step.because}" if step.because else ""
    return f"{runbook} hands over to a person{because}"


def _left_out(step: Step, incident: Incident, state: FleetState) -> str | None:
    """Why a step that is done only in some cases is not done now; None when it is."""
    if step.when is None:
        return None
    answer = compiled(step.when).holds(facts(incident, state))
    return None if answer else answer.why


def _tried(step: Step, tried: list[Operation], incident: Incident, now: float) -> StepProgress:
    """How the step stands with one of the things it is done to; PASSED also before its `until` is asked."""
    newest = tried[-1]
    outcome, finished = newest.outcome, newest.finished_at
    if newest.pending or outcome is None or finished is None:
        says = f"step {step.id}: {newest.action.verb} was begun {now - newest.intended_at:.0f} s ago, its outcome is unknown"
        return StepProgress(Stage.UNKNOWN, says, step.id)
    if str(outcome.status) == step.expect:
        return StepProgress(Stage.PASSED, f"step {step.id} is {step.expect} as expected", step.id)
    if step.otherwise == "rule_out":
        says = f"step {step.id} rules {incident.cause} out: {newest.action.verb} was {outcome.status}, {outcome.detail}"
        return StepProgress(Stage.RULED_OUT, says, step.id)
    began = tried[0].intended_at
    if outcome.status is OutcomeStatus.FAILED and not outcome.permanent and now - began < step.retry_for:
        return _again(step, tried, now)
    says = f"step {step.id}: {newest.action.verb} was {outcome.status} instead of {step.expect}: {outcome.detail}"
    if step.otherwise == "next":
        return StepProgress(Stage.PASSED, f"{says}; the runbook goes on all the same", step.id)
    return StepProgress(Stage.FAILED, says, step.id)


def _again(step: Step, tried: list[Operation], now: float) -> StepProgress:
    newest = tried[-1]
    gap = min(RETRY_LONGEST, RETRY_FIRST * 2.0 ** (len(tried) - 1))
    wait = (newest.finished_at or now) + gap - now
    detail = newest.outcome.detail if newest.outcome else ""
    if wait > 0:
        return StepProgress(
            Stage.HOLDING, f"step {step.id} failed ({detail}); try {len(tried) + 1} in {wait:.0f} s", step.id
        )
    says = f"step {step.id} failed ({detail}); try {len(tried) + 1} is due"
    return StepProgress(Stage.DUE, says, step.id, newest.action)


def _held(step: Step, finished: float, incident: Incident, state: FleetState, now: float) -> StepProgress:
    if step.until is None:
        return StepProgress(Stage.PASSED, f"step {step.id} is {step.expect} as expected", step.id)
    answer = compiled(step.until).holds(facts(incident, state, since=finished))
    waited = now - finished
    if answer:
        return StepProgress(Stage.PASSED, f"step {step.id}: {answer.why} after {waited:.0f} s", step.id)
    if waited <= step.within:
        left = step.within - waited
        return StepProgress(Stage.HOLDING, f"step {step.id} waits: {answer.why}; {left:.0f} s left", step.id)
    if state.is_blind(incident.entity):
        says = f"step {step.id} waits: {incident.entity} cannot be seen, so it cannot be called late"
        return StepProgress(Stage.HOLDING, says, step.id)
    says = f"step {step.id}: {answer.why} after {waited:.0f} s (allowed {step.within:.0f} s)"
    if step.if_late == "next":
        return StepProgress(Stage.PASSED, f"{says}; the runbook goes on all the same", step.id)
    return StepProgress(Stage.LATE, says, step.id)


def _due(step: Step, action: Action, runbook: Runbook | None = None) -> str:
    begins = f"{runbook.name} begins: " if runbook else ""
    arguments = ", ".join(f"{name} {value}" for name, value in action.arguments.items())
    because = f", because {step.because}" if step.because else ""
    return (
        f"{begins}step {step.id} is due: {action.verb} on {action.target}{f' ({arguments})' if arguments else ''}{because}"
    )
