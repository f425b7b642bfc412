"""What drills leave on disk, in the folder `drills` of the state directory: the one under way, and those that are over.

`run.json` is written before anything is broken and says under which keys: whoever comes next after a crash can undo it.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from agent.drill.card import Card, FaultRow
from runbooks.drill import Drill, FleetKind
from serving.clock import SystemClock
from serving.engines.ledger import EngineBusyError, engine_lock
from serving.engines.records import read_record, write_record

KEPT = 1_000


class DrillBusyError(Exception):
    """Another drill is under way on this fleet; there is one at a time."""


class RunRecord(BaseModel):
    """The drill under way, as intended: every fault with its key, whether or not it was made yet."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    run: str
    drill: Drill
    fleet: FleetKind
    began_at: float
    faults: tuple[FaultRow, ...]


class DrillStore:
    """Under the state directory `directory`. One process at a time holds `lock`; anyone may read."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory / "drills"
        self.run_file = self.directory / "run.json"
        self.history_file = self.directory / "history.jsonl"

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """One drill at a time. The kernel frees it when its holder dies. Raises DrillBusyError."""
        with contextlib.ExitStack() as held:
            try:
                held.enter_context(engine_lock(self.directory / "lock", 0.0, SystemClock()))
            except EngineBusyError:
                now = self.under_way()
                which = f"{now.drill.name} ({now.run})" if now is not None else "one that is waiting for a steady state"
                raise DrillBusyError(f"another drill is under way on this fleet: {which}; wait for its end") from None
            yield

    def begin(self, record: RunRecord) -> None:
        """Write what is about to be broken; on disk when this returns."""
        write_record(self.run_file, record)

    def under_way(self) -> RunRecord | None:
        """The drill that began and did not end. Raises RecordUnreadableError when its file is damaged."""
        return read_record(self.run_file, RunRecord)

    def end(self) -> None:
        """Everything of it is undone."""
        self.run_file.unlink(missing_ok=True)

    def add(self, card: Card) -> None:
        """Append to the history, which forgets the oldest beyond KEPT."""
        self.directory.mkdir(parents=True, exist_ok=True)
        lines = [*self._lines(), card.model_dump_json()]
        if len(lines) <= KEPT:
            with self.history_file.open("a", encoding="utf-8") as file:
                file.write(("" if self._ends_whole() else "\n") + lines[-1] + "\n")
                file.flush()
                os.fsync(file.fileno())
            return
        fresh = self.history_file.with_suffix(".new")
        fresh.write_text("\n".join(lines[-KEPT:]) + "\n", encoding="utf-8")
        fresh.replace(self.history_file)

    def history(self) -> tuple[tuple[Card, ...], int]:
        """All cards, oldest first, and how many lines could not be read (a crash may cut the last one short)."""
        cards: list[Card] = []
        damaged = 0
        for line in self._lines():
            try:
                cards.append(Card.model_validate_json(line))
            except ValidationError:
                damaged += 1
        return tuple(cards), damaged

    def _lines(self) -> list[str]:
        try:
            text = self.history_file.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return []
        return [line for line in text.splitlines() if line.strip()]

    def _ends_whole(self) -> bool:
        """Whether the last line is whole, so that the next one may follow it."""
        if not self.history_file.exists() or self.history_file.stat().st_size == 0:
            return True
        with self.history_file.open("rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) == b"\n"
