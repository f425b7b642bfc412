"""Lint: what is wrong with a runbook beyond its shape. Each rule is a small generator of places and sentences. Pure."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from actuators.action import VerbSpec
from actuators.binding import bind
from runbooks.conditions import Condition, ConditionError, did_you_mean
from runbooks.runbook import HAND_OVER, UNDO, Autonomy, Runbook, Step
from runbooks.templates import template_problems

Place = tuple[str | int, ...]
RESERVED = ("rollback", "undo.")
"""Step ids that the record of an incident uses itself: the end of a rollback, and the taking back of a step."""


@dataclass(frozen=True, slots=True)
class Mistake:
    """What is wrong at one place of a runbook. `value` is what stands there, where that helps."""

    place: Place
    what: str
    value: object = None


@dataclass(frozen=True, slots=True)
class Known:
    """What a runbook may speak of. `signals` None: any name may be one."""

    verbs: Mapping[str, VerbSpec]
    causes: frozenset[str]
    signals: frozenset[str] | None = None


def mistakes(runbook: Runbook, known: Known) -> tuple[Mistake, ...]:
    """Everything that is wrong with `runbook`, in the order of its rules."""
    rules: tuple[Callable[[Runbook, Known], Iterator[Mistake]], ...] = (
        _cause,
        _ids,
        _verbs,
        _expectations,
        _deadlines,
        _ways_back,
        _rollback,
        _conditions,
        _verification,
        _autonomy,
    )
    return tuple(mistake for rule in rules for mistake in rule(runbook, known))


def out_of_reach(step: Step, known: Known) -> bool:
    """Whether a step is left out here: it is done only in some cases (`when`), and no actuator offers its verb."""
    return step.when is not None and step.do not in {UNDO, HAND_OVER} and step.do not in known.verbs


def missing_verbs(runbook: Runbook, known: Known) -> tuple[str, ...]:
    """The verbs that the runbook cannot do without and nobody here offers."""
    needed = (
        step.do for _, step in _all_steps(runbook) if step.do not in {UNDO, HAND_OVER} and not out_of_reach(step, known)
    )
    return tuple(dict.fromkeys(verb for verb in needed if verb not in known.verbs))


def _cause(runbook: Runbook, known: Known) -> Iterator[Mistake]:
    if runbook.cause not in known.causes:
        yield Mistake(("cause",), f"is not a known cause{did_you_mean(runbook.cause, known.causes)}", runbook.cause)


def _ids(runbook: Runbook, _known: Known) -> Iterator[Mistake]:
    seen: set[str] = set()
    for place, step in _all_steps(runbook):
        if step.id in seen:
            yield Mistake((*place, "id"), "is the id of an earlier step", step.id)
        if step.id == RESERVED[0] or step.id.startswith(RESERVED[1]):
            yield Mistake((*place, "id"), "is reserved for the record of a rollback", step.id)
        seen.add(step.id)


def _verbs(runbook: Runbook, known: Known) -> Iterator[Mistake]:
    for place, step in _all_steps(runbook):
        for name, value in step.arguments.items():
            for problem in template_problems(value):
                yield Mistake((*place, "arguments", name), problem)
        if step.do == UNDO:
            yield from _undo(place, step, runbook, known)
        elif step.do == HAND_OVER:
            yield from _hand_over(place, step)
        elif out_of_reach(step, known):
            continue
        elif step.do not in known.verbs:
            yield Mistake((*place, "do"), f"is not a known verb{did_you_mean(step.do, known.verbs)}", step.do)
        else:
            for problem in bind(known.verbs[step.do], step.arguments):
                yield Mistake((*place, "arguments"), problem)


def _hand_over(place: Place, step: Step) -> Iterator[Mistake]:
    if place[0] == "rollback":
        yield Mistake((*place, "do"), "a rollback cannot hand over: what it does not take back is told anyway")
    for field in ("arguments", "until", "undo_when", "retry_for", "on", "expect", "otherwise"):
        if field in step.model_fields_set:
            yield Mistake((*place, field), "has no meaning where the runbook hands over to a person")


def _undo(place: Place, step: Step, runbook: Runbook, known: Known) -> Iterator[Mistake]:
    earlier = runbook.steps[: int(place[1])] if place[0] == "steps" else runbook.steps
    undone = step.arguments.get("step")
    target = next((other for other in earlier if other.id == undone), None)
    if set(step.arguments) != {"step"}:
        yield Mistake((*place, "arguments"), "undo takes one argument, `step`: the id of the step that is taken back")
    elif target is None:
        clause = did_you_mean(str(undone), (other.id for other in earlier))
        yield Mistake((*place, "arguments", "step"), f"is not an earlier step{clause}", undone)
    elif out_of_reach(target, known):
        return
    elif target.do not in known.verbs or known.verbs[target.do].undo is None:
        yield Mistake((*place, "arguments", "step"), f"{target.do} has no undo, so step {target.id} cannot be taken back")


def _expectations(runbook: Runbook, known: Known) -> Iterator[Mistake]:
    changed: str | None = None
    for place, step in _all_steps(runbook):
        spec = known.verbs.get(step.do)
        harmless = step.do == HAND_OVER or (spec is not None and spec.harmless)
        if step.expect == "failed" and not harmless:
            yield Mistake((*place, "expect"), f"only a harmless probe may be expected to fail, and {step.do} is none")
        if step.otherwise == "rule_out" and changed:
            yield Mistake((*place, "otherwise"), f"cannot rule the cause out any more: step {changed} has changed something")
        if not harmless and changed is None:
            changed = step.id


def _deadlines(runbook: Runbook, _known: Known) -> Iterator[Mistake]:
    for place, step in _all_steps(runbook):
        if step.until is not None and step.within <= 0:
            yield Mistake((*place, "until"), "needs `within`: the seconds that it may take")
        if step.until is None and step.within > 0:
            yield Mistake((*place, "within"), "says how long `until` may take, but there is no `until`", step.within)
        if step.until is None and "if_late" in step.model_fields_set:
            yield Mistake((*place, "if_late"), "says what follows when `until` is late, but there is no `until`")


def _ways_back(runbook: Runbook, known: Known) -> Iterator[Mistake]:
    kept = bool(runbook.steps) and runbook.steps[-1].do == HAND_OVER
    for number, step in enumerate(runbook.steps):
        spec = known.verbs.get(step.do)
        if spec is None:
            continue
        if step.undo_when is not None and spec.undo is None:
            yield Mistake(("steps", number, "undo_when"), f"{step.do} has no undo that could depend on it")
        if not spec.takes_capacity:
            continue
        later = runbook.steps[number + 1 :]
        if spec.undo is None and step.until is None:
            what = f"{step.do} takes capacity and has no undo: say with `until` and `within` how it is known to be back"
            yield Mistake(("steps", number), what)
        elif spec.undo is not None and not kept and not any(_gives_back(other, step, spec.undo) for other in later):
            what = f"{step.do} takes capacity and no later step gives it back: add one that does {spec.undo}"
            yield Mistake(("steps", number), what)


def _gives_back(step: Step, taken: Step, undo: str) -> bool:
    return step.do == undo or (step.do == UNDO and step.arguments.get("step") == taken.id)


def _rollback(runbook: Runbook, known: Known) -> Iterator[Mistake]:
    for number, step in enumerate(runbook.rollback):
        spec = known.verbs.get(step.do)
        if spec is not None and spec.takes_capacity:
            yield Mistake(("rollback", number, "do"), f"a rollback only gives back, but {step.do} takes capacity")
        if step.expect != "done":
            yield Mistake(("rollback", number, "expect"), "a rollback step can only be expected to be done")
        for field in ("when", "until", "undo_when"):
            if getattr(step, field) is not None:
                yield Mistake(("rollback", number, field), "has no meaning in a rollback")


def _conditions(runbook: Runbook, known: Known) -> Iterator[Mistake]:
    steps = [step.id for step in runbook.steps]
    for place, text in _texts(runbook):
        try:
            Condition.compile(text, ".".join(map(str, place)), signals=known.signals, steps=steps)
        except ConditionError as refused:
            yield Mistake(place, f"line {refused.line}, column {refused.column}: {refused.what}", text)


def _texts(runbook: Runbook) -> Iterator[tuple[Place, str]]:
    for number, guard in enumerate(runbook.guards):
        yield ("guards", number, "require"), guard.require
    for place, step in _all_steps(runbook):
        for field in ("when", "until", "undo_when"):
            text = getattr(step, field)
            if text is not None:
                yield (*place, field), text
    for number, text in enumerate(runbook.verify.require):
        yield ("verify", "require", number), text


def _verification(runbook: Runbook, _known: Known) -> Iterator[Mistake]:
    if runbook.verify.hold > runbook.verify.within:
        what = f"must not be shorter than `hold` ({runbook.verify.hold:g} s): it could never be verified"
        yield Mistake(("verify", "within"), what, runbook.verify.within)


def _autonomy(runbook: Runbook, _known: Known) -> Iterator[Mistake]:
    stated = "autonomy" in runbook.model_fields_set
    if not runbook.steps and stated and runbook.autonomy not in {Autonomy.OBSERVE, Autonomy.RECOMMEND}:
        what = "a runbook without steps has nothing to do: its autonomy is recommend"
        yield Mistake(("autonomy",), what, str(runbook.autonomy))
    if runbook.steps and runbook.steps[0].do == UNDO:
        yield Mistake(("steps", 0, "do"), "the first step has nothing to take back")


def _all_steps(runbook: Runbook) -> Iterator[tuple[Place, Step]]:
    parts: Sequence[tuple[str, list[Step]]] = (("steps", runbook.steps), ("rollback", runbook.rollback))
    for name, steps in parts:
        for number, step in enumerate(steps):
            yield (name, number), step
