"""Every word that reporting says to a person, in one place, so that the same thing is called the same everywhere.

Written to be read at 3 a.m. by somebody who was just woken. Plain text; only commands stand in backticks.
"""

from collections.abc import Mapping, Sequence

from actuators.action import Action
from agent.decision.decision import Decision, Reason, Verdict
from agent.diagnosis.diagnosis import Diagnosis
from agent.incident import (
    ApprovalAnswered,
    ApprovalAsked,
    AttemptStarted,
    Closed,
    Decided,
    Ended,
    Ending,
    Finished,
    Incident,
    IncidentEvent,
    IncidentState,
    Intended,
    Opened,
    Operation,
    Rediagnosed,
    RollbackStarted,
    StepPassed,
    SymptomsBack,
    SymptomsGone,
    VerificationStarted,
    Withdrawn,
)
from agent.journal.port import Note
from agent.report.outlook import Outlook
from agent.report.phrases import CAUSES, ORDERS, OUTCOMES, PROBED, PROBES, SYMPTOMS, VERBS, Cause
from agent.report.plainly import plainly
from serving.fleet.entity import Entity, EntityKind

REHEARSED = "dry run: "  # how outcomes of rehearsals begin
EVIDENCE_SHOWN = 6
RIVALS_SHOWN = 4
CLAUSE_SHOWN = 400  # characters of one clause that came from elsewhere
ADVICE_SHOWN = 1_200  # characters of advice, which is written by people and worth its length

_KIND = {EntityKind.TELEMETRY: "telemetry source", EntityKind.GATEWAY: "front door"}


def name(entity: Entity) -> str:
    """What a person calls `entity`: `engine sim-2`."""
    if entity == Entity(EntityKind.GATEWAY, "door"):
        return "front door"
    return f"{_KIND.get(entity.kind, entity.kind.value)} {entity.name}"


def duration(seconds: float) -> str:
    """A span in the two units that matter: `9 s`, `2 min 5 s`, `3 h 4 min`, `2 d 1 h`."""
    left = max(0, round(seconds))
    units = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
    first = next((index for index, (_, size) in enumerate(units) if left >= size), len(units) - 1)
    parts: list[str] = []
    for unit, size in units[first : first + 2]:
        count, left = divmod(left, size)
        if count or not parts:
            parts.append(f"{count} {unit}")
    return " ".join(parts)


def clause(text: str, limit: int = CLAUSE_SHOWN) -> str:
    """`text` from elsewhere in plain words, on one line and no longer than `limit` characters."""
    line = plainly(" ".join(text.split()))
    return line if len(line) <= limit else line[: limit - 3].rstrip() + "..."


def sentence(text: str, limit: int = CLAUSE_SHOWN) -> str:
    """`clause(text)` with a capital in front, unless it begins with an identifier, and a full stop behind."""
    line = clause(text, limit)
    if not line:
        return ""
    capital = line[:1].upper() if line.partition(" ")[0].rstrip(":,;").isalpha() else line[:1]
    return f"{capital}{line[1:]}{'' if line.endswith(('.', '!', '?')) else '.'}"


def _cause(cause: str) -> Cause:
    return CAUSES.get(cause) or Cause(f"has {cause}", f"had {cause}", f"{cause} was diagnosed")


def headline(incident: Incident, view: Outlook) -> str:
    """The incident in one line: what was wrong with what, and who has to do something."""
    words = _cause(incident.cause)
    seen = words.past if incident.ended and view is not Outlook.GAVE_UP else words.present
    if incident.ending is Ending.RULED_OUT:
        seen = f"only looked as if it {words.past}"
    subject = name(incident.entity)
    return f"{subject[:1].upper()}{subject[1:]} {seen}: {_stand(incident, view)}"


def _stand(incident: Incident, view: Outlook) -> str:
    said = {
        Outlook.ASKS: "your approval is needed",
        Outlook.RECOMMENDS: "a person has to act",
        Outlook.GAVE_UP: "a person has to take over",
        Outlook.REPAIRED: "repaired",
        Outlook.HEALED: "no longer seen" if incident.state is IncidentState.ESCALATED else "over by itself",
        Outlook.DISMISSED: "false alarm" if incident.ending is Ending.RULED_OUT else "left alone",
        Outlook.WORKING: _progress(incident),
    }[view]
    return f"{said} (dry run: nothing was touched)" if any(map(rehearsed, incident.operations)) else said


def _progress(incident: Incident) -> str:
    match incident.state:
        case IncidentState.ACTING:
            return "repair under way"
        case IncidentState.VERIFYING:
            return "repair done, recovery being checked"
        case IncidentState.ROLLING_BACK:
            return "repair failed, being undone"
    decision = incident.decision
    if decision is not None and decision.verdict in {Verdict.WAIT, Verdict.REFUSE}:
        return "nothing is being done yet"
    return "being looked into"


def what(cause: str) -> str:
    """What a cause means, for somebody who never heard of it."""
    return sentence(_cause(cause).meaning)


def why(diagnosis: Diagnosis) -> tuple[str, ...]:
    """The evidence, strongest symptom first, each clause once, with the entity where it is another one."""
    lines: dict[str, None] = {}
    for finding in sorted(diagnosis.explains, key=lambda finding: -finding.severity):
        about = "" if finding.entity == diagnosis.entity else f"{name(finding.entity)}: "
        clauses = [evidence.says for evidence in finding.evidence if evidence.says]
        lines.update(
            dict.fromkeys(about + clause(says) for says in clauses or [SYMPTOMS.get(finding.symptom, finding.symptom.value)])
        )
    shown = tuple(lines)[:EVIDENCE_SHOWN]
    more = len(lines) - len(shown)
    return (*shown, f"and {more} more, in `fleetwarden explain`") if more else shown


def doubts(diagnosis: Diagnosis) -> tuple[str, ...]:
    """How sure the diagnosis is, what speaks against it, and what could not be read."""
    sure = f"score {diagnosis.score:.2f} of 1"
    lines = [sure if diagnosis.enough else f"not enough evidence to act on ({sure})"]
    lines += [f"against it: {clause(says)}" for says in diagnosis.against]
    if diagnosis.missing:
        lines.append(f"could not be read: {', '.join(map(clause, diagnosis.missing))}")
    return tuple(lines)


def ruled_out(diagnosis: Diagnosis, earlier: Sequence[Diagnosis]) -> tuple[str, ...]:
    """The other causes that were weighed, and why each was put behind; then what it was first taken for."""
    rivals = sorted(diagnosis.rivals, key=lambda rival: -rival.score)[:RIVALS_SHOWN]
    lines = [f"that {name(r.entity)} {_cause(r.cause).present} ({r.cause}): {clause(r.behind_because)}" for r in rivals]
    told = {rival.cause for rival in rivals} | {diagnosis.cause}
    first = [cause for cause in dict.fromkeys(d.cause for d in earlier) if cause not in told]
    lines += [f"first taken for {cause}; later evidence spoke for {diagnosis.cause}" for cause in first]
    return tuple(lines)


def past(action: Action) -> str:
    """What an action did: `took engine sim-2 out of rotation`."""
    return _verb(action, VERBS)


def order(action: Action) -> str:
    """What an action is, as an order to a person: `take engine sim-2 out of rotation`."""
    return _verb(action, ORDERS)


def _verb(action: Action, words: Mapping[str, str]) -> str:
    text = words.get(action.verb)
    if text is None:
        return f"{action.verb} on {name(action.target)}"
    weight = action.arguments.get("weight", "?")
    return text.replace("{target}", name(action.target)).replace("{weight}", str(weight))


def rehearsed(operation: Operation) -> bool:
    """Whether an operation was only a rehearsal: dry run."""
    return operation.outcome is not None and operation.outcome.detail.startswith(REHEARSED)


def outcome(operation: Operation) -> str:
    """How an operation came out, with how long it took."""
    if operation.outcome is None or operation.finished_at is None:
        return "outcome not known yet"
    said = (PROBED if operation.action.verb in PROBES else OUTCOMES)[operation.outcome.status]
    seconds = operation.finished_at - operation.intended_at
    took = f" after {duration(seconds)}" if seconds >= 1 else ""
    target = operation.action.target
    detail = clause(operation.outcome.detail)
    for subject in (f"{name(target)}: ", f"{target.name}: ", f"{name(target)} "):  # the line has named it already
        detail = detail.removeprefix(subject)
    if detail.startswith(said):
        return detail
    return f"{said}{took}{f': {detail}' if detail else ''}"


def served(incident: Incident) -> str:
    """Whether users are served well again, as far as is known."""
    says = sentence(incident.says)
    match incident.state:
        case IncidentState.RESOLVED:
            return f"Served well again. {says}".strip()
        case IncidentState.ESCALATED:
            return "Its signs have gone since." if incident.closed_at is not None else "Not known to be served well again."
        case IncidentState.SUPPRESSED:
            return says or "Nothing was wrong here."
        case IncidentState.VERIFYING:
            return "Being checked: the repair is done, and recovery must hold for a while before it counts."
    gone = incident.gone_since is not None
    return "The signs are gone for now; not yet counted as over." if gone else "Not yet served well again."


def transition(event: IncidentEvent | Note, incident: Incident | None = None) -> str:  # noqa: C901, PLR0911, PLR0912 - one case an event
    """One event in one line. `incident` gives the words for what an operation's outcome was about."""
    match event:
        case Opened(diagnosis=found):
            return f"{name(found.entity)} {_cause(found.cause).present} ({found.cause}, score {found.score:.2f})"
        case Rediagnosed(diagnosis=found):
            return f"now taken for {found.cause} (score {found.score:.2f})"
        case SymptomsGone():
            return "its signs are gone"
        case SymptomsBack():
            return "its signs are back"
        case Decided(decision=decision):
            return f"decided to {decision.verdict} ({decision.reason}): {clause(decision.says)}"
        case AttemptStarted():
            return f"began runbook {event.runbook}, attempt {event.attempt}"
        case Intended():
            return f"about to {order(event.action)}"
        case Finished():
            return _finished(event, incident)
        case Withdrawn():
            return f"did not touch anything after all: {clause(event.says)}"
        case StepPassed():
            return f"step {event.step} is over: {clause(event.says)}"
        case RollbackStarted():
            return f"began to undo what was done: {clause(event.says)}"
        case VerificationStarted():
            return "all steps done; began to check recovery"
        case ApprovalAsked():
            return f"asked for approval: {clause(event.says)}"
        case ApprovalAnswered():
            return f"{'approved' if event.approved else 'rejected'} by {clause(event.by) or 'somebody unnamed'}"
        case Ended():
            return f"{event.state} ({event.ending}): {clause(event.says)}"
        case Closed():
            return f"closed: {clause(event.says)}"
        case Note():
            return f"{event.kind}: {clause(event.says)}"


def ended(event: Ended) -> str:
    """How an incident ended, without the reason, which the story gives elsewhere."""
    return {
        Ending.REPAIRED: "repaired and verified",
        Ending.HEALED: "over by itself",
        Ending.RULED_OUT: "ruled out: it was not what it seemed",
        Ending.MERGED: "left to another incident, which explains it",
        Ending.GAVE_UP: "given up: handed to a person",
        Ending.HANDED_OVER: "made safe and handed to a person",
        Ending.REJECTED: "left alone, as a person wished",
    }[event.ending]


def _finished(event: Finished, incident: Incident | None) -> str:
    operations = incident.operations if incident is not None else ()
    operation = next((operation for operation in operations if operation.key == event.key), None)
    if operation is None:
        return f"operation {event.key}: {event.outcome.status}: {clause(event.outcome.detail)}"
    return f"{past(operation.action)}: {outcome(operation)}"


def held_because(decision: Decision | None) -> str:
    """Why nothing is done at the moment, or an empty text."""
    if decision is None or decision.verdict is Verdict.ACT:
        return ""
    return sentence(decision.says, ADVICE_SHOWN)


def todo(incident: Incident, view: Outlook, out: Sequence[Entity], advice: str) -> tuple[str, ...]:
    """What a person should do now, most important first."""
    lines: list[str] = []
    match view:
        case Outlook.ASKS:
            lines.append(f"Allow it: `fleetwarden approve {incident.id}`. Forbid it: `fleetwarden reject {incident.id}`.")
            lines += [_proposal(incident.decision, "It would begin so"), held_because(incident.decision)]
        case Outlook.RECOMMENDS:
            lines += [_proposal(incident.decision, "Recommended"), held_because(incident.decision)]
        case Outlook.GAVE_UP:
            says = sentence(incident.says, ADVICE_SHOWN) or "The warden does nothing more here."
            more = sentence(advice, ADVICE_SHOWN)
            lines += [says, more if incident.attempt and more not in says else ""]
        case Outlook.WORKING:
            lines += _while_working(incident)
        case _:
            pass
    if incident.ended:
        lines += [f"{sentence(name(entity))[:-1]} is still out of service: put it back when it is well." for entity in out]
    lines = [line for line in lines if line] or ["Nothing."]
    return (*lines, f"The whole record: `fleetwarden explain {incident.id}`.")


def _proposal(decision: Decision | None, label: str) -> str:
    return "" if decision is None or decision.action is None else f"{label}: {order(decision.action)}."


def _while_working(incident: Incident) -> list[str]:
    decision = incident.decision
    if decision is None or decision.verdict is Verdict.ACT or incident.state is not IncidentState.OPEN:
        return ["Nothing yet: the warden is on it and says so when it needs you."]
    if decision.reason is Reason.PAUSED:
        return ["The warden is paused: `fleetwarden resume` lets it go on."]
    return [f"The warden holds back. {held_because(decision)}", "Look at it if it stays so."]
