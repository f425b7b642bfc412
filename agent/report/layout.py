"""A story laid out in sections, whatever it is then rendered to, and its rendering as plain text."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import NamedTuple

from agent.report import wording
from agent.report.outlook import Outlook
from agent.report.phrases import TITLES
from agent.report.story import Story


class Section(NamedTuple):
    """A titled list of lines."""

    title: str
    lines: tuple[str, ...]


class Style(NamedTuple):
    """How a receiver wants things written: a time of day, a time with its date, and text that came from elsewhere."""

    time: Callable[[float], str]
    date: Callable[[float], str]
    text: Callable[[str], str]


def clock_time(at: float) -> str:
    """`at` (Unix seconds) as a time of day: `03:12:04 UTC`."""
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S UTC")


def date_time(at: float) -> str:
    """`at` (Unix seconds) with its date: `2026-11-29 03:12:04 UTC`."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


PLAIN = Style(clock_time, date_time, str)


def opening(story: Story, style: Style = PLAIN) -> tuple[str, str]:
    """What is wrong; and when it began, how soon it was noticed, how long it took."""
    noticed = wording.duration(story.noticed_at - story.since)
    over = story.ended_at is not None and story.outlook is not Outlook.GAVE_UP
    ended = f", over after {wording.duration((story.ended_at or 0.0) - story.since)}" if over else ""
    return style.text(story.what), f"Since {style.date(story.since)}, noticed after {noticed}{ended}."


def sections(story: Story, style: Style = PLAIN) -> tuple[Section, ...]:
    """The sections that have something to say; where a person is needed, what to do comes first."""
    todo = list(map(style.text, story.todo))
    if story.open_until is not None:
        todo.insert(1, f"The request expires at {style.time(story.open_until)}.")
    done = [
        f"{style.time(deed.at)}  {style.text(deed.text + (f': {deed.outcome}' if deed.outcome else ''))}"
        for deed in story.done
    ]
    users = [style.text(story.served), *([style.text(f"Cost: {wording.sentence(story.cost)}")] if story.cost else [])]
    now = Section(TITLES["todo"], tuple(todo))
    rest = (
        Section(TITLES["why"], tuple(map(style.text, (*story.why, *story.doubts)))),
        Section(TITLES["ruled_out"], tuple(map(style.text, story.ruled_out))),
        Section(TITLES["done"], tuple(done or [TITLES["nothing_done"]])),
        Section(TITLES["users"], tuple(users)),
    )
    ordered = (now, *rest) if story.needs_person else (*rest, now)
    return tuple(section for section in ordered if section.lines)


def plain(story: Story) -> str:
    """The whole story as plain text, with times in UTC."""
    parts = [story.headline, "", *opening(story)]
    for section in sections(story):
        parts += ["", f"{section.title}:", *(f"- {line}" for line in section.lines)]
    return "\n".join(parts)
