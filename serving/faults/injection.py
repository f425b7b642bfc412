"""What was broken, written down before it is broken, so that any process can take it back: faults/ID.json."""

from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from serving.engines.processes import ProcessMark
from serving.engines.records import read_record, write_record
from serving.faults.catalogue import Way


class Injection(BaseModel):
    """One fault at work (or about to be, or undone half-way: undoing twice does no harm).

    `at` is when, `until` when its maker meant to undo it (None: when told to), both in Unix seconds. `targets` are the
    incarnations that were touched, `leader` the engine's leading one at that time. `url` is where a load goes or a
    simulated engine listens.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str = Field(pattern=r"^[a-z0-9-]+$")
    fault: str
    target: str
    way: Way
    parameters: dict[str, float]
    kills: bool = False
    at: float
    until: float | None = None
    leader: ProcessMark | None = None
    targets: tuple[ProcessMark, ...] = ()
    url: str = ""
    model: str = ""


class FaultJournal:
    """The injections that were not undone yet, one file each, under `directory`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def path(self, injection_id: str) -> Path:
        """The file of one injection; it need not exist."""
        return self.directory / f"{injection_id}.json"

    def write(self, injection: Injection) -> None:
        """Record it, before anything is touched."""
        write_record(self.path(injection.id), injection)

    def read(self, injection_id: str) -> Injection | None:
        """One injection, or None. Raises RecordUnreadableError when its file is damaged."""
        return read_record(self.path(injection_id), Injection)

    def all(self) -> Iterator[Injection]:
        """All that are recorded, oldest first. Raises RecordUnreadableError when a file is damaged."""
        found = (read_record(path, Injection) for path in self.directory.glob("*.json"))
        yield from sorted((injection for injection in found if injection is not None), key=lambda each: (each.at, each.id))

    def forget(self, injection_id: str) -> None:
        """It is undone. What its program said goes with it."""
        self.path(injection_id).with_suffix(".log").unlink(missing_ok=True)
        self.path(injection_id).unlink(missing_ok=True)
