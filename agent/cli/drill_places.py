"""Where the commands of `fleetwarden drill` find things: drills by name or file, the fleet, what earlier runs left."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from actuators.action import VerbSpec
from actuators.binding import verbs_of
from actuators.virtual import VirtualActuator
from agent.cli.runbook import shipped_verbs
from agent.cli.tables import fail
from agent.diagnosis.catalogue import load_catalogue
from agent.drill.fleet import DrillFleet, DrillFleetError
from agent.drill.local import LocalDrillFleet
from agent.drill.store import DrillBusyError, DrillStore
from runbooks.conditions import did_you_mean
from runbooks.drill import Drill
from runbooks.drill_loader import Known, LoadedDrill, load_drill, load_drills
from serving.clock import SystemClock
from serving.engines.records import RecordUnreadableError
from serving.engines.state_directory import default_state_directory

Which = Annotated[str, typer.Argument(help="A drill's name, or a file.", show_default=False)]
Directories = Annotated[
    list[Path] | None, typer.Option("--dir", "-d", help="Directory with drills besides the shipped ones; may be repeated.")
]


def known() -> Known:
    """What drills may speak of: the catalogue's causes, and the verbs of every kind of fleet."""
    return Known(frozenset(load_catalogue().names), frozenset(every_verb()))


def drills_of(directories: list[Path] | None) -> Mapping[str, LoadedDrill]:
    """Every drill. Raises FileError with every mistake of every file."""
    return load_drills(known(), directories or ())


def find(which: str, directories: list[Path] | None) -> Drill:
    """The drill of that name, or of the file at that path. Ends the command with exit code 2 when there is none."""
    if which.endswith((".yaml", ".yml")):
        return load_drill(Path(which), known())
    drills = drills_of(directories)
    if which not in drills:
        fail(f"there is no drill {which!r}{did_you_mean(which, drills)}")
    return drills[which].drill


def directory_of(state_dir: Path | None) -> Path:
    """The state directory of the fleet."""
    return state_dir or default_state_directory()


def store_of(state_dir: Path | None) -> DrillStore:
    """What drills left there."""
    return DrillStore(directory_of(state_dir))


def every_verb() -> Mapping[str, VerbSpec]:
    """The verbs of every kind of fleet."""
    return {**verbs_of(VirtualActuator), **shipped_verbs()}


@contextmanager
def virtually(drill: Drill, engines: int | None, seed: int) -> Iterator[DrillFleet]:
    """A fleet in virtual time with so many engines (None: as suits the drill). Ends the command as `fleet_of` does."""
    # Read here, for it brings a whole warden with it, and only this one option needs it.
    from agent.drill.virtual import USUAL, VirtualDrillFleet  # noqa: PLC0415 - see above

    most = drill.fleet.engines_at_most or USUAL.engines
    count = engines or max(drill.fleet.engines, min(USUAL.engines, most))
    try:
        yield VirtualDrillFleet(replace(USUAL, engines=count, seed=seed))
    except (DrillFleetError, DrillBusyError, RecordUnreadableError) as error:
        fail(str(error))


@contextmanager
def fleet_of(state_dir: Path | None) -> Iterator[LocalDrillFleet]:
    """The local fleet. Ends the command with exit code 2 and a sentence when it, or its drills' record, cannot be used."""
    fleet = LocalDrillFleet(directory_of(state_dir), SystemClock())
    try:
        yield fleet
    except (DrillFleetError, DrillBusyError, RecordUnreadableError) as error:
        fail(str(error))
    finally:
        fleet.close()
