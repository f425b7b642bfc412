"""`fleetwarden doctor`: is one's own set-up in order, and what to do where it is not."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from agent.cli.diagnose import console
from agent.cli.tables import fail
from agent.doctor.examining import of_fleet, of_urls, of_warden
from agent.doctor.findings import Check, examination, unreadable
from agent.doctor.page import page
from agent.settings_file import load_settings
from serving.clock import Clock, SystemClock
from serving.engines.state_directory import default_state_directory
from serving.fleet.fleet_file import FleetFile
from serving.secret_file import read_secret
from serving.telemetry.registry import load_registry
from serving.yaml_file import FileError

SETTINGS = "warden.yaml"


def doctor(
    urls: Annotated[
        list[str] | None, typer.Argument(metavar="[URL]...", help="/metrics URLs, a front door's, or a Prometheus.")
    ] = None,
    config: Annotated[Path | None, typer.Option(help="The warden's settings; the local fleet's unless given.")] = None,
    fleet: Annotated[Path | None, typer.Option(help="A fleet file alone, without settings.")] = None,
    token_file: Annotated[Path | None, typer.Option(help="File with the bearer token of a Prometheus URL.")] = None,
    send_test: Annotated[
        bool, typer.Option("--send-test", help="Send a test message to Slack and webhooks; else nothing is sent.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The checks as JSON (keys: docs/doctor.md).")] = False,
) -> None:
    """Check files, engines, front door, Prometheus, credentials, clocks, versions and signals, and say what to do.

    Nothing is changed. Exit code: 0 no problem, 1 problems, 2 not even the configuration can be read.
    """
    if sum(bool(given) for given in (urls, config, fleet)) > 1:
        fail("name one of them: --config, --fleet, or URLs")
    clock = SystemClock()
    try:
        checks = list(_checks(urls or [], config, fleet, token_file, clock, send_test=send_test))
    except FileError as refused:
        if as_json:
            typer.echo(unreadable(clock.now(), refused).model_dump_json(indent=2))
        fail(str(refused))
    told = examination(clock.now(), checks)
    if as_json:
        typer.echo(told.model_dump_json(indent=2))
    else:
        for part in page(told):
            console().print(part, highlight=False)
    raise typer.Exit(told.exit_code)


def _checks(
    urls: list[str], config: Path | None, fleet: Path | None, token_file: Path | None, clock: Clock, *, send_test: bool
) -> Iterator[Check]:
    """The checks of what was named. Raises FileError when the configuration cannot be read."""
    registry = load_registry()
    if urls:
        token = None if token_file is None else read_secret(token_file)
        return of_urls(urls, registry, clock, token)
    if fleet is not None:
        return of_fleet(FleetFile.read(fleet), str(fleet), registry, clock)
    local = default_state_directory() / SETTINGS
    settings = load_settings(config or (local if local.exists() else None))
    if not settings.fleet_file.exists():
        fail(
            f"there is no fleet file at {settings.fleet_file}: name one with --fleet, settings with --config, or URLs; "
            "`fleetwarden up` makes a fleet on this machine"
        )
    return of_warden(settings, FleetFile.read(settings.fleet_file), registry, clock, send=send_test)
