"""`fleetwarden diagnose`: what is wrong with a fleet of which only URLs are known, now, without changing anything."""

import re
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from agent.checkup.changes import changes
from agent.checkup.checkup import Advances, Checkup, Wishes
from agent.checkup.page import page
from agent.checkup.places import StorePlace, find_all
from agent.checkup.report import CheckupReport
from agent.cli.tables import fail
from agent.report.layout import clock_time
from serving.clock import SystemClock
from serving.secret_file import read_secret
from serving.telemetry.registry import load_registry
from serving.yaml_file import FileError

LONGEST_S = 86_400.0
WIDE = 100  # where no terminal tells the width
_SPAN = re.compile(r"(\d+(?:\.\d+)?)(s|m|min|h|d)?")
_UNITS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3_600.0, "d": 86_400.0}
_LABEL = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)


def diagnose(
    urls: Annotated[list[str], typer.Argument(metavar="URL...", help="/metrics URLs (or NAME=URL), or one Prometheus URL.")],
    since: Annotated[str, typer.Option(help="How much of the past to read from a Prometheus: 90s, 30m, 2h.")] = "30m",
    seconds: Annotated[
        float | None,
        typer.Option("--for", min=1, max=LONGEST_S, help="Seconds to scrape /metrics URLs; about 20 unless given."),
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Go on until Ctrl-C and print what changes.")] = False,
    match: Annotated[
        list[str] | None, typer.Option(metavar="LABEL=VALUE", help="Read only series with this label from a Prometheus.")
    ] = None,
    token_file: Annotated[Path | None, typer.Option(help="File with the bearer token of the Prometheus.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The report as JSON (keys: docs/diagnose.md).")] = False,
) -> None:
    """Say what is wrong with the vLLM engines behind some URLs, with the evidence and what could not be seen.

    Nothing is changed anywhere. Exit code: 0 no sign of trouble in all that was named, 1 trouble found or suspected,
    2 nothing or not everything could be read.
    """
    try:
        token = None if token_file is None else read_secret(token_file)
    except FileError as error:
        fail(str(error))
    wishes = Wishes(_span(since), seconds, _labels(match or []), token)
    clock, registry = SystemClock(), load_registry()
    places = find_all(dict.fromkeys(urls), registry, clock, token=token)
    if len(places) > 1 and any(isinstance(place, StorePlace) for place in places):
        fail("a Prometheus knows the whole fleet: name one Prometheus alone, or /metrics URLs alone")
    stopped = _stop_on_signals() if watch else _never
    checkup = Checkup(places, wishes, registry, clock)
    last: CheckupReport | None = None
    with _progress(quiet=as_json) as (advance, end):
        for told in checkup.reports(advance, stopped):
            end()
            _print(told, last, as_json=as_json, watch=watch)
            last = told
            if not watch or told.source == "none":
                break
    raise typer.Exit(2 if last is None else last.exit_code)


def _print(told: CheckupReport, last: CheckupReport | None, *, as_json: bool, watch: bool) -> None:
    """The first report whole, later ones only where something changed."""
    if last is not None:
        news = list(changes(last, told))
        if as_json and news:
            typer.echo(told.model_dump_json())
        for line in () if as_json else news:
            typer.echo(f"{clock_time(told.at)}  {line}")
    elif as_json:
        typer.echo(told.model_dump_json(indent=None if watch else 2))
    else:
        for part in page(told):
            console().print(part, highlight=False)


def console() -> Console:
    """Where people read."""
    return Console() if sys.stdout.isatty() else Console(width=WIDE)


@contextmanager
def _progress(*, quiet: bool) -> Iterator[tuple[Advances, Callable[[], None]]]:
    """A bar on standard error while a person waits; nothing where nobody does."""
    if quiet or not sys.stderr.isatty():
        yield (lambda _done, _of, _says: None), lambda: None
        return
    shown = Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[clock]}"),
        console=Console(stderr=True),
        transient=True,
    )
    task = shown.add_task("looking", total=None, clock="")
    shown.start()

    def advance(done: float, of: float, says: str) -> None:
        shown.update(task, completed=done, total=of, description=says, clock=f"{done:.0f} of {of:.0f} s")

    try:
        yield advance, shown.stop
    finally:
        shown.stop()


def _never() -> bool:
    return False


def _stop_on_signals() -> Callable[[], bool]:
    """Whether Ctrl-C or SIGTERM came since; the second Ctrl-C ends the command at once."""
    came: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        if came:
            raise KeyboardInterrupt
        came.append(number)

    for wanted in (signal.SIGINT, signal.SIGTERM):
        signal.signal(wanted, note)
    return lambda: bool(came)


def _span(text: str) -> float:
    """`30m` in seconds. Ends the command when it is none."""
    found = _SPAN.fullmatch(text.strip().lower())
    seconds = float(found[1]) * _UNITS[found[2] or "s"] if found else 0.0
    if not 10 <= seconds <= 7 * LONGEST_S:  # noqa: PLR2004 - less holds no two samples, more no store answers in time
        fail(f"--since: {text!r} is not a span from 10s to 7d; write it as 90s, 30m or 2h")
    return seconds


def _labels(given: list[str]) -> dict[str, str]:
    labels = {}
    for text in given:
        found = _LABEL.fullmatch(text)
        if found is None:
            fail(f"--match: {text!r} is not LABEL=VALUE, as in cluster=eu-1")
        labels[found[1]] = found[2]
    return labels
