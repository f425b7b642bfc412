"""What is said of a drill in the warden's journal, from which log and webhooks are told."""

from collections.abc import Sequence

from actuators.action import Scalar
from agent.drill.card import Card, Verdict
from agent.drill.gate import Aim
from agent.journal.port import Note
from agent.report.wording import duration
from runbooks.drill import Drill

STARTED, FINISHED = "drill.started", "drill.finished"
VERDICTS = {
    Verdict.PASSED: "passed",
    Verdict.FAILED: "failed",
    Verdict.NOT_STEADY: "was not run",
    Verdict.ABORTED: "was aborted",
    Verdict.INTERRUPTED: "was interrupted",
}


def started_note(run: str, drill: Drill, aims: Sequence[Aim], at: float) -> Note:
    """That something is about to be broken on purpose."""
    what = ", ".join(f"{aim.order.fault} on {aim.target}" for aim in aims)
    return Note(at, STARTED, f"drill {drill.name} breaks something on purpose: {what}", {"run": run, "drill": drill.name})


def finished_note(card: Card) -> Note:
    """How it came out, with its numbers."""
    facts: dict[str, Scalar] = {
        "run": card.run,
        "drill": card.drill,
        "verdict": str(card.verdict),
        "undone": card.undone,
        "failed_requests": card.failed_requests,
    }
    if card.incidents:
        row = card.incidents[0]
        facts |= {
            "cause": row.cause,
            "detected_after": row.detected_after,
            "isolated_after": row.isolated_after,
            "recovered_after": row.recovered_after,
        }
    return Note(card.ended_at, FINISHED, headline(card), facts)


def headline(card: Card) -> str:
    """The card in a line."""
    where = ", ".join(f"{row.fault} on {row.target}" for row in card.faults)
    because = f": {card.reasons[0]}" if card.reasons else ""
    return f"drill {card.drill}{f' ({where})' if where else ''} {VERDICTS[card.verdict]}{because}"


def course(card: Card) -> tuple[str, ...]:
    """What happened, in lines for a person."""
    lines = []
    for row in card.incidents:
        if row.incident is None:
            lines.append(f"expected {row.expected_cause} on {row.expected_on}: nothing was found")
            continue
        steps = [f"found after {_span(row.detected_after)} and called {row.cause}"]
        if row.first_action is not None:
            steps.append(f"first action {row.first_action}")
        if row.isolated_after is not None:
            steps.append(f"out of rotation after {_span(row.isolated_after)}")
        if row.recovered_after is not None:
            steps.append(f"users served well again after {_span(row.recovered_after)}")
        lines.append(f"{row.entity}: {', '.join(steps)}")
    if card.decoy and card.injected_at is not None:
        lines.append(f"nothing was to be repaired; opened: {', '.join(card.others) or 'nothing'}")
    if card.failed_requests is not None:
        lines.append(f"{card.failed_requests:.0f} user requests failed")
    return tuple(lines)


def _span(seconds: float | None) -> str:
    return "an unknown time" if seconds is None else duration(seconds)
