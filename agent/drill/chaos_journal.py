"""A scorecard as a journal of Chaos Toolkit, and what such a journal says.

In that format `status` only tells whether the experiment ran to its end; whether the system coped stands in `deviated`
(https://chaostoolkit.org/reference/api/journal/). A reader that looks at `status` alone takes every failed drill for passed.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from agent.drill.card import Card, FaultRow, Verdict
from runbooks.chaos_toolkit import to_experiment
from runbooks.drill import Drill

_STATUS = {
    Verdict.PASSED: "completed",
    Verdict.FAILED: "completed",
    Verdict.NOT_STEADY: "failed",
    Verdict.ABORTED: "aborted",
    Verdict.INTERRUPTED: "interrupted",
}


def to_journal(card: Card, drill: Drill | None) -> dict[str, Any]:
    """`card` as a journal, ready for JSON. `drill`: as it is defined now, where it is still known."""
    began = card.injected_at if card.injected_at is not None else card.began_at
    made = [row for row in card.faults if row.injected_at is not None]
    return {
        "chaoslib-version": "",
        "platform": "fleetwarden",
        "node": str(card.fleet),
        "experiment": to_experiment(drill) if drill is not None else {"title": card.drill},
        "start": _iso(card.began_at),
        "end": _iso(card.ended_at),
        "duration": card.ended_at - card.began_at,
        "status": _STATUS[card.verdict],
        "deviated": card.verdict is Verdict.FAILED,
        "steady_states": {
            "before": {"steady_state_met": card.verdict is not Verdict.NOT_STEADY, "probes": []},
            "after": None if not made else {"steady_state_met": card.steady_again_after is not None, "probes": []},
            "during": [],
        },
        "run": [_activity("inject", row, began, card.ended_at, made=True) for row in made],
        "rollbacks": [_activity("clear", row, card.ended_at, card.ended_at, made=row.undone is not False) for row in made],
        "extensions": [{"name": "fleetwarden", "card": card.model_dump(mode="json")}],
    }


def passed(journal: Mapping[str, Any]) -> bool:
    """Whether the experiment of `journal` went well: it ran to its end and the system did not deviate."""
    return journal.get("status") == "completed" and journal.get("deviated") is False


def _activity(func: str, row: FaultRow, start: float, end: float, *, made: bool) -> dict[str, Any]:
    began = row.injected_at if func == "inject" and row.injected_at is not None else start
    return {
        "activity": {"type": "action", "name": row.fault, "provider": {"type": "python", "func": func}},
        "status": "succeeded" if made else "failed",
        "output": row.target if func == "inject" else row.undo,
        "start": _iso(began),
        "end": _iso(end),
        "duration": max(0.0, end - began),
    }


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat().replace("+00:00", "")
