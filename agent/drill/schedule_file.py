"""The schedule of drills: which, when, and when never; from a YAML file, strictly."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, Field

from agent.drill.calendar import CronText, Freeze
from runbooks.conditions import did_you_mean
from runbooks.drill import Hyphenated
from runbooks.runbook import Seconds, Strict
from serving.yaml_file import FileError, load_file


def _zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError("is not a time zone, as in Europe/Berlin or UTC") from None
    return name


class Slot(Strict):
    """One drill and when it is due. `jitter`: delayed by up to so many seconds (default: the schedule's)."""

    drill: Hyphenated
    cron: CronText
    jitter: Seconds | None = None


class Schedule(Strict):
    """All of it. `time_zone` is that of cron expressions and freezes."""

    time_zone: Annotated[str, AfterValidator(_zone)] = "UTC"
    jitter: Seconds = 0.0
    freezes: list[Freeze] = Field(default_factory=list)
    drills: list[Slot] = Field(min_length=1, max_length=200)

    @property
    def zone(self) -> ZoneInfo:
        """The time zone."""
        return ZoneInfo(self.time_zone)

    def jitter_of(self, slot: Slot) -> float:
        """By how many seconds the slot may be delayed."""
        return self.jitter if slot.jitter is None else slot.jitter


def load_schedule(path: Path, drills: Iterable[str]) -> Schedule:
    """The schedule in the file at `path`; `drills` are those there are. Raises FileError with every mistake."""
    file, names = load_file(path), set(drills)
    schedule = file.validated(Schedule)
    found = [
        file.problem(("drills", number, "drill"), f"is not a drill{did_you_mean(slot.drill, names)}", slot.drill)
        for number, slot in enumerate(schedule.drills)
        if slot.drill not in names
    ]
    if found:
        raise FileError(found)
    return schedule
