"""Runbooks in words: what would happen, step by step, under which guards, and how it would be taken back. Pure."""

from collections.abc import Iterator, Mapping

from actuators.action import VerbSpec
from runbooks.runbook import HAND_OVER, UNDO, Autonomy, Runbook, Step

_AUTONOMY: Mapping[Autonomy, str] = {
    Autonomy.OBSERVE: "the warden only watches",
    Autonomy.RECOMMEND: "the warden says what it would do, and does nothing",
    Autonomy.APPROVE: "the warden acts once a person approves",
    Autonomy.AUTO: "the warden acts by itself where it was granted that, and else only recommends",
}

_ON = {
    "target": "",
    "engines": " on each of its engines",
    "node": " on its node",
    "node_engines": " on each engine of its node",
}


def explained(runbook: Runbook, verbs: Mapping[str, VerbSpec]) -> str:
    """What would happen for the runbook's cause, as lines for a person."""
    return "\n".join(_lines(runbook, verbs))


def step_in_words(step: Step, verbs: Mapping[str, VerbSpec]) -> str:
    """One step as a sentence: what it does, what it expects, what it waits for."""
    return " ".join(_clauses(step, verbs))


def _lines(runbook: Runbook, verbs: Mapping[str, VerbSpec]) -> Iterator[str]:
    yield f"When {runbook.cause} is diagnosed with a score of at least {runbook.min_score:g}, {runbook.name} applies."
    yield runbook.summary
    yield f"At most: {_AUTONOMY[runbook.autonomy]}."
    yield ""
    if runbook.guards:
        yield "It begins only if"
        for guard in runbook.guards:
            yield f"  - {guard.require}  ({guard.because})"
    yield "and only if the target can be seen and has not opted out, no other repair explains it, the breaker is closed,"
    yield "changes are not frozen, and the engines that remain keep every stated serving budget."
    yield ""
    if not runbook.steps:
        yield "It has no steps: people are told"
        yield f"  {runbook.escalate}"
        return
    yield "Then, one step after the other:"
    for number, step in enumerate(runbook.steps, 1):
        yield f"  {number}. {step_in_words(step, verbs)}"
    yield ""
    yield from _verification(runbook)
    yield ""
    yield from _undo(runbook, verbs)
    yield ""
    yield f"After {runbook.attempts} attempts, at least {runbook.cool_down:g} s apart, a person is called:"
    yield f"  {runbook.escalate}"


def _clauses(step: Step, verbs: Mapping[str, VerbSpec]) -> Iterator[str]:
    arguments = ", ".join(f"{name} {value}" for name, value in step.arguments.items())
    if step.do == UNDO:
        yield f"{step.id}: take step {step.arguments.get('step')} back, to what it was before."
    elif step.do == HAND_OVER:
        yield f"{step.id}: stop here and call a person; what was changed stays as it is."
    else:
        spec = verbs.get(step.do)
        what = f": {spec.summary[:1].lower()}{spec.summary[1:]}" if spec else ""
        yield f"{step.id}: {step.do}{_ON[step.on]}{f' ({arguments})' if arguments else ''}{what}."
    if step.when is not None:
        yield f"Only if {step.when}; else it is left out."
    if step.because:
        yield f"Because {step.because}."
    if step.do == HAND_OVER:
        return
    yield from _outcome(step)
    if step.until is not None:
        late = "go on all the same" if step.if_late == "next" else "roll back"
        yield f"Then wait until {step.until}, at most {step.within:g} s; if that is late, {late}."


def _outcome(step: Step) -> Iterator[str]:
    if step.expect == "failed":
        yield "It is expected to fail."
    if step.retry_for:
        yield f"A failure that may pass is tried again for {step.retry_for:g} s."
    otherwise = {"rule_out": "the cause is ruled out", "next": "go on all the same", "fail": "roll back"}[step.otherwise]
    yield f"Otherwise {otherwise}."


def _verification(runbook: Runbook) -> Iterator[str]:
    verify = runbook.verify
    yield f"It has helped when all of this holds for {verify.hold:g} s on end, within {verify.within:g} s:"
    for condition in verify.require:
        yield f"  - {condition}"
    if verify.min_requests:
        yield f"with at least {verify.min_requests} answers in that time: no data is not success."


def _undo(runbook: Runbook, verbs: Mapping[str, VerbSpec]) -> Iterator[str]:
    yield "If it fails, what it changed is taken back, newest first:"
    undoable = [step for step in reversed(runbook.steps) if _undo_verb(step, verbs)]
    for step in undoable:
        only = f", only if {step.undo_when}" if step.undo_when else ""
        yield f"  - {step.id} ({step.do}) by {_undo_verb(step, verbs)}{only}"
    for step in runbook.rollback:
        yield f"  - {step_in_words(step, verbs)}"
    lasting = [step.id for step in runbook.steps if not _undo_verb(step, verbs) and _changes(step, verbs)]
    if lasting:
        yield f"  What cannot be taken back stays: {', '.join(lasting)}."
    if not undoable and not runbook.rollback and not lasting:
        yield "  - nothing: it changes nothing"


def _undo_verb(step: Step, verbs: Mapping[str, VerbSpec]) -> str | None:
    spec = verbs.get(step.do)
    return spec.undo if spec is not None and not spec.recovery else None


def _changes(step: Step, verbs: Mapping[str, VerbSpec]) -> bool:
    spec = verbs.get(step.do)
    return spec is not None and not spec.harmless and not spec.recovery
