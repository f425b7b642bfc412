"""A warden in a process of its own, over a journal and a world on disk, that says where it is and waits to be let on."""

import json
import os
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from walked_warden import VERBS, Warden

from actuators.action import Action, Outcome, OutcomeStatus
from agent.incident import IncidentEvent
from agent.journal.stored import open_journal
from serving.clock import FakeClock


class WorldOnDisk:
    """An actuator whose world is a file: one line for each thing done, with its operation's key."""

    def __init__(self, path: Path, tell: Any) -> None:
        self._path = path
        self._tell = tell
        self.verbs = {script.spec.verb: script.spec for script in VERBS}

    def rehearse(self, action: Action) -> Outcome:
        return Outcome(OutcomeStatus.DONE, f"would {action.verb}")

    def apply(self, action: Action, key: str) -> Outcome:
        self._tell(f"before {action.verb}")
        with self._path.open("a") as file:
            file.write(json.dumps({"key": key, "verb": action.verb}) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self._tell(f"after {action.verb}")
        return Outcome(OutcomeStatus.DONE, "done")

    def look_up(self, action: Action, key: str) -> Outcome:
        done = any(line["key"] == key for line in effects_in(self._path))
        return Outcome(OutcomeStatus.DONE if done else OutcomeStatus.FAILED, f"{action.verb}: looked up")


def effects_in(path: Path) -> list[dict[str, str]]:
    """What was done to the world so far."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def live(directory: Path, pipe: Connection) -> None:
    """One life, to its end or until somebody kills it. Announces each moment and waits for leave to go on."""

    def tell(what: str) -> None:
        pipe.send(what)
        pipe.recv()

    journal = open_journal(directory / "journal.sqlite")
    append = journal.append

    def told(event: IncidentEvent) -> int:
        seq = append(event)
        tell(f"wrote {type(event).__name__} {getattr(event, 'step', getattr(event, 'key', ''))}")
        return seq

    journal.append = told  # type: ignore[method-assign]
    Warden(journal, WorldOnDisk(directory / "world", tell), FakeClock()).run()
    journal.close()
    pipe.send("done")
