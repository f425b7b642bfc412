"""When drills are due: cron expressions in a time zone, jitter, and freezes in which nothing is broken. Pure from a seed."""

import re
from collections.abc import Sequence
from datetime import date, datetime, time, timedelta, tzinfo
from random import Random
from typing import Annotated, Any, Self

from apscheduler.triggers.base import BaseTrigger
from apscheduler.triggers.cron import CronTrigger
from pydantic import AfterValidator, Field, model_validator

from runbooks.runbook import Strict

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_NUMBERED = ("sun", *DAYS)  # cron counts from Sunday, which is 0 and 7; APScheduler 3 would count from Monday
_CRON_FIELDS = 5
_CLOCK = re.compile(r"^(?:([01]\d|2[0-3]):([0-5]\d)|24:00)$")
_LONGEST_SEARCH = 20_000  # fire times that may all be frozen before it is said that there is none


def cron_trigger(expression: str, zone: tzinfo | None = None) -> CronTrigger:
    """The trigger of a five-field cron expression with the days of the week as cron has them. Raises ValueError."""
    fields = expression.split()
    if len(fields) != _CRON_FIELDS:
        raise ValueError(f"is not a cron expression of five fields (minute hour day month weekday): {expression!r}")
    try:
        return CronTrigger.from_crontab(" ".join([*fields[:4], _weekdays(fields[4])]), timezone=zone)
    except ValueError as refused:
        raise ValueError(f"is not a cron expression: {refused}") from None


def _weekdays(field: str) -> str:
    """Numbers and ranges of weekdays as a list of names, which no version counts differently."""
    if field == "*":
        return field
    days: set[str] = set()
    for part in field.lower().split(","):
        span, _, step = part.partition("/")
        first, _, last = span.partition("-")
        if span == "*":
            first, last = "0", "6"
        begin, end = _day(first), _day(last or first)
        end += 7 if end < begin else 0
        days |= {_NUMBERED[1:][(number - 1) % 7] for number in range(begin, end + 1, int(step or 1))}
    return ",".join(day for day in DAYS if day in days)


def _day(text: str) -> int:
    """A weekday as its number, Sunday being 0 (or 7)."""
    if text in DAYS:
        return _NUMBERED.index(text, 1) % 7
    if text.isdecimal() and int(text) < len(_NUMBERED):
        return int(text)
    raise ValueError(f"{text!r} is no day of the week")


def _moment(text: str) -> str:
    try:
        if datetime.fromisoformat(text).tzinfo is None:
            return text
    except ValueError:
        pass
    raise ValueError("is not a local date and time, as in 2026-12-24 18:00")


def _time_of_day(text: str) -> str:
    if not _CLOCK.match(text):
        raise ValueError("is not a time of day, as in 16:30 (24:00 is the end of the day)")
    return text


def _cron(text: str) -> str:
    cron_trigger(text)
    return text


CronText = Annotated[str, AfterValidator(_cron)]
Moment = Annotated[str, AfterValidator(_moment)]
TimeOfDay = Annotated[str, AfterValidator(_time_of_day)]


class DatedFreeze(Strict):
    """From one moment to another, local time of the schedule's zone."""

    begins: Moment
    ends: Moment
    because: str = ""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if datetime.fromisoformat(self.ends) <= datetime.fromisoformat(self.begins):
            raise ValueError(f"ends at {self.ends}, which is not after {self.begins}")
        return self

    def covers(self, at: datetime) -> bool:
        """Whether `at`, in the schedule's zone, is inside."""
        local = at.replace(tzinfo=None)
        return datetime.fromisoformat(self.begins) <= local < datetime.fromisoformat(self.ends)


class WeeklyFreeze(Strict):
    """Every week on these days, from one time of day to another; one that ends before it begins goes over midnight."""

    days: list[Annotated[str, Field(pattern=rf"^({'|'.join(DAYS)})$")]] = Field(min_length=1)
    begins: TimeOfDay = "00:00"
    ends: TimeOfDay = "24:00"
    because: str = ""

    def covers(self, at: datetime) -> bool:
        """Whether `at`, in the schedule's zone, is inside."""
        clock, begins, ends = _minutes(at.time()), _minutes_of(self.begins), _minutes_of(self.ends)
        today, yesterday = (_name(at.date() - timedelta(days=back)) in self.days for back in (0, 1))
        if begins < ends:
            return today and begins <= clock < ends
        return (today and clock >= begins) or (yesterday and clock < ends)


Freeze = DatedFreeze | WeeklyFreeze


def frozen(freezes: Sequence[Freeze], at: datetime) -> Freeze | None:
    """The freeze that `at` lies in, if any."""
    return next((freeze for freeze in freezes if freeze.covers(at)), None)


class CalmTrigger(BaseTrigger):  # type: ignore[misc]  # the library ships no types
    """A cron trigger whose times are delayed by up to `jitter` seconds, and left out where they fall into a freeze."""

    def __init__(self, expression: str, zone: tzinfo, jitter: float, freezes: Sequence[Freeze], seed: int) -> None:
        self._cron = cron_trigger(expression, zone)
        self._zone = zone
        self._jitter = jitter
        self._freezes = tuple(freezes)
        self._random = Random(seed)

    def get_next_fire_time(self, previous_fire_time: Any, now: datetime) -> datetime | None:
        """The next time that is not frozen; None when there is none in sight."""
        previous = previous_fire_time
        for _ in range(_LONGEST_SEARCH):
            due: datetime | None = self._cron.get_next_fire_time(previous, now)
            if due is None:
                return None
            delayed = due + timedelta(seconds=self._random.uniform(0.0, self._jitter)) if self._jitter else due
            if frozen(self._freezes, delayed.astimezone(self._zone)) is None:
                return delayed
            previous = now = due + timedelta(seconds=1)
        return None


def _name(day: date) -> str:
    return DAYS[day.weekday()]


def _minutes(clock: time) -> float:
    return clock.hour * 60 + clock.minute + clock.second / 60


def _minutes_of(text: str) -> float:
    hours, minutes = text.split(":")
    return int(hours) * 60.0 + int(minutes)
