"""Undoing what a drill broke: at its end, and by whoever comes next when its process was killed."""

from collections.abc import Callable, Sequence

from agent.drill.card import Card, FaultRow, Verdict
from agent.drill.fleet import DrillFleet, DrillFleetError
from agent.drill.store import DrillStore
from agent.drill.wording import finished_note
from runbooks.drill import FleetKind

Say = Callable[[str], None]


def undo_all(fleet: DrillFleet, faults: Sequence[FaultRow], say: Say) -> list[FaultRow]:
    """Undo each of `faults`, the newest first; one that cannot be undone does not keep the others. Never raises."""
    undone: dict[str, FaultRow] = {}
    for row in reversed(faults):
        result = fleet.clear(row.key)
        say(f"{'undone' if result.ok else 'NOT UNDONE'}: {row.fault} on {row.target}: {result.says}")
        undone[row.key] = row.model_copy(update={"undone": result.ok, "undo": result.says})
    return [undone[row.key] for row in faults]


def recover(fleet: DrillFleet, store: DrillStore, say: Say) -> Card | None:
    """Undo what an interrupted drill left, and record it; None when there was none. The caller holds the store's lock.

    What cannot be undone stays on record for the next try; the card then says `undone` false. Raises DrillFleetError for
    what was broken in a fleet that is not this one: one in virtual time knows nothing of real engines.
    """
    left = store.under_way()
    if left is None:
        return None
    if fleet.kind is FleetKind.VIRTUAL and left.fleet is not FleetKind.VIRTUAL:
        raise DrillFleetError(
            f"drill {left.run} was interrupted on a {left.fleet} fleet: run `fleetwarden drill recover` first"
        )
    say(f"drill {left.drill.name} ({left.run}) was interrupted; undoing what it broke")
    made = [row.key for row in left.faults if fleet.at_work(row.key)]
    faults = undo_all(fleet, [row for row in left.faults if row.key in made], say)
    undone = all(row.undone for row in faults)
    card = Card(
        run=left.run,
        drill=left.drill.name,
        fleet=left.fleet,
        decoy=left.drill.expect.decoy,
        began_at=left.began_at,
        injected_at=None,
        ended_at=fleet.clock.now(),
        verdict=Verdict.INTERRUPTED,
        reasons=["its process ended in the middle; " + ("nothing of it is left" if undone else "something is not undone")],
        faults=faults,
        incidents=[],
        others=[],
        failed_requests=None,
        undone=undone,
        steady_again_after=None,
    )
    if undone:
        store.add(card)
        store.end()
    try:
        fleet.note(finished_note(card))
    except DrillFleetError as error:
        say(str(error))
    return card
