"""`fleetwarden status`: the fleet and its open incidents as a live table, from the page the warden writes at each step."""

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from agent import status as page
from agent.cli.tables import state_directory
from agent.status import EngineRow, FleetStatus
from serving.clock import SystemClock

STALE_S = 10.0
STATE_STYLES = {
    "serving": "green",
    "suspect": "yellow",
    "drained": "cyan",
    "ejected": "yellow",
    "down": "red",
    "unseen": "magenta",
}
COLUMNS = (
    "engine",
    "state",
    "in flight",
    "running",
    "waiting",
    "KV",
    "steps/s",
    "tokens/s",
    "req/s",
    "TTFT p50",
    "incident",
)


def status(
    state_dir: Annotated[Path | None, typer.Option(help="State directory of the warden.")] = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Refresh until Ctrl-C.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The same as JSON (keys: see agent.status).")] = False,
) -> None:
    """Show the fleet and its open incidents. Exit code: 0 all well, 1 incidents open or page stale, 2 nothing to read."""
    directory = state_directory(state_dir)
    clock = SystemClock()
    seen = page.read(directory)
    if seen is None:
        typer.echo(f"no warden has written {directory / page.FILE_NAME} yet; start one with `fleetwarden up`", err=True)
        raise typer.Exit(2)
    if as_json:
        typer.echo(seen.model_dump_json(indent=2))
    elif watch:
        with Live(render(seen, clock.now()), console=Console(), auto_refresh=False) as live:
            while True:
                clock.sleep(1.0)
                live.update(render(page.read(directory) or seen, clock.now()), refresh=True)
    else:
        Console().print(render(seen, clock.now()))
    raise typer.Exit(1 if seen.incidents or clock.now() - seen.at > STALE_S else 0)


def render(seen: FleetStatus, now: float) -> Group:
    """The page as a person sees it."""
    parts: list[Table | Text] = [_headline(seen, now), _engine_table(seen)]
    if seen.incidents:
        parts.append(_incident_table(seen))
    parts.extend(Text(f"source {s.source}: {s.error}", style="magenta") for s in seen.sources if s.error)
    return Group(*parts)


def _headline(seen: FleetStatus, now: float) -> Text:
    line = Text(f"fleet {seen.fleet}  ", style="bold")
    line.append(f"autonomy {seen.autonomy}  ", style="default")
    age = now - seen.at
    if age > STALE_S:
        line.append(f"STALE: the warden last wrote {age:.0f} s ago; is it running? ", style="bold red")
    else:
        line.append(f"as of {datetime.fromtimestamp(seen.at, tz=UTC):%H:%M:%S} UTC ", style="dim")
    if seen.paused:
        line.append(f"PAUSED: {seen.paused} ", style="bold yellow")
    if seen.breaker:
        line.append(f"breaker: {seen.breaker}", style="bold yellow")
    return line


def _engine_table(seen: FleetStatus) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold dim")
    for name in COLUMNS:
        table.add_column(name, justify="left" if name in {"engine", "state", "incident"} else "right", no_wrap=True)
    for row in seen.engines:
        table.add_row(*_cells(row))
    return table


def _cells(row: EngineRow) -> list[Text | str]:
    return [
        row.engine,
        Text(row.state, style=STATE_STYLES.get(row.state, "default")),
        _number(row.in_flight, 0),
        _number(row.running, 0),
        _number(row.waiting, 0),
        "-" if row.kv_usage is None else f"{row.kv_usage:.0%}",
        _number(row.steps_per_s, 1),
        _number(row.tokens_per_s, 0),
        _number(row.requests_per_s, 1),
        "-" if row.ttft_s is None else f"{row.ttft_s * 1000:.0f} ms",
        row.incident or "",
    ]


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _incident_table(seen: FleetStatus) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold dim")
    for name in ("incident", "cause", "on", "state", "for", "latest decision"):
        table.add_column(name, overflow="fold")
    for row in seen.incidents:
        table.add_row(
            row.incident, row.cause, row.entity, row.state, f"{seen.at - row.opened_at:.0f} s", row.says, style="yellow"
        )
    return table


def is_terminal() -> bool:
    """Whether standard output is a person's terminal."""
    return sys.stdout.isatty()
