"""`fleetwarden warden`: the loop itself, in the foreground, until SIGTERM or Ctrl-C."""

import signal
import sys
import threading
from pathlib import Path
from typing import Annotated

import structlog
import typer

from agent.journal.port import JournalError
from agent.memory import keep_freed_memory
from agent.own_http import OwnHttpError
from agent.settings_file import load_settings
from agent.wiring import warden as open_warden
from serving.clock import SystemClock
from serving.yaml_file import FileError


def warden(
    config: Annotated[Path | None, typer.Option(help="The settings file (warden.yaml); see docs/settings.md.")] = None,
    show_settings: Annotated[bool, typer.Option("--show-settings", help="Print the effective settings and stop.")] = False,
) -> None:
    """Watch a fleet and repair it as far as its policy allows. Exit code: 0 stopped as asked, 2 it could not start."""
    log_to_stderr()
    log = structlog.get_logger("fleetwarden")
    try:
        settings = load_settings(config)
        if show_settings:
            typer.echo(settings.describe())
            return
        keep_freed_memory()
        with open_warden(settings, SystemClock()) as one:
            log.info("watching", state_dir=str(settings.state_dir), http=f"http://{settings.http.host}:{one.port}")
            one.runner.run(_until_told_to_stop())
            log.info("stopped as asked; nothing is left half done that the journal does not tell")
    except (FileError, JournalError, OwnHttpError) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from None


def log_to_stderr() -> None:
    """Lines for people on a terminal, JSON for machines elsewhere; always on standard error."""
    renderer = structlog.dev.ConsoleRenderer() if sys.stderr.isatty() else structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


def _until_told_to_stop() -> threading.Event:
    stop = threading.Event()
    for wanted in (signal.SIGTERM, signal.SIGINT):
        signal.signal(wanted, lambda *_: stop.set())
    return stop
