"""`fleetwarden fault list|inject|clear`: breaking the local fleet on purpose, and taking it back."""

import json
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.table import Table

from serving.clock import SystemClock
from serving.engines.engine_process import EngineError
from serving.engines.local import LocalEngines
from serving.engines.records import RecordUnreadableError
from serving.engines.state_directory import default_state_directory
from serving.faults.catalogue import Fault, FaultError, FaultUsageError
from serving.faults.faults import DOOR, ActiveFault, Cleared, Faults
from serving.faults.injection import Injection

FAILED, BAD_USAGE = 1, 2
POLL_S = 0.5

app = typer.Typer(help="Break the local fleet on purpose, and take it back.", no_args_is_help=True)
StateDir = Annotated[Path | None, typer.Option("--state-dir", help="State directory of the local fleet.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]


@app.command("list")
def list_faults(state_dir: StateDir = None, as_json: AsJson = False) -> None:
    """Show every fault there is, and those at work. Exit code 0; 2 when a record cannot be read.

    JSON: {"faults": [{name, summary, shows, causes, engines, foreground, parameters}], "active": [{id, fault, target,
    parameters, at, until, over}]}.
    """
    faults = _faults(state_dir)
    with _Told():
        active = faults.active()
        if as_json:
            _print_json(
                {
                    "faults": [_fault_row(fault) for fault in faults.catalogue().values()],
                    "active": [_active_row(each) for each in active],
                }
            )
            return
        console = Console()
        console.print(_catalogue_table(faults.catalogue()))
        console.print(_active_table(active, SystemClock().now()) if active else "nothing is broken on purpose now")


@app.command()
def inject(
    name: Annotated[str, typer.Argument(help="The fault; `fleetwarden fault list` shows them.")],
    target: Annotated[str, typer.Argument(help="The engine, or `door` for a load on the front door.")] = DOOR,
    parameter: Annotated[list[str] | None, typer.Option("--param", "-p", help="NAME=NUMBER; may be repeated.")] = None,
    seconds: Annotated[float | None, typer.Option("--for", min=0.1, help="Stay, and undo it after so many seconds.")] = None,
    detach: Annotated[bool, typer.Option("--detach", help="Return at once and leave it at work.")] = False,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Break something now.

    Hangs and kills return at once; slowness, pauses and loads stay until Ctrl-C, which undoes them (as do SIGTERM and the
    end of --for). Whatever was left at work is undone by `fleetwarden fault clear`.
    Exit code: 0 done, 1 it could not be made or undone, 2 no such fault, engine or parameter.
    """
    faults = _faults(state_dir)
    with _Told():
        if seconds is not None and detach:
            raise FaultUsageError("--for stays and undoes, --detach leaves it at work: give one of them")
        parameters = _parameters(parameter or [])
        clock = SystemClock()
        fault = faults.catalogue().get(name)
        if detach or (seconds is None and fault is not None and not fault.foreground):
            injection = faults.inject(name, target, **parameters)
            _say_injected(faults, injection, f"undo it by: fleetwarden fault clear {injection.id}", as_json=as_json)
            return
        if seconds is not None and fault is not None and "seconds" in fault.parameters:
            parameters.setdefault("seconds", seconds)  # a load is to last as long as it is stayed for
        until = None if seconds is None else clock.now() + seconds
        with faults.held(name, target, until=until, **parameters) as injection:
            end = "Ctrl-C" if seconds is None else f"after {seconds:g} s, or by Ctrl-C,"
            _say_injected(faults, injection, f"{end} undoes it", as_json=as_json)
            _stay(faults, injection, seconds, clock)
        if not as_json:
            typer.echo(f"{injection.id}: undone")


@app.command()
def clear(
    which: Annotated[str, typer.Argument(help="The id of an injection, an engine, a fault's name, or `all`.")],
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Undo what was broken on purpose, whoever did it.

    Exit code: 0 undone (or `all` and nothing was at work), 1 something could not be undone, 2 nothing fits.
    JSON: [{id, fault, target, ok, detail}].
    """
    faults = _faults(state_dir)
    with _Told():
        cleared = faults.clear(which)
    if as_json:
        _print_json([_cleared_row(each) for each in cleared])
    else:
        for each in cleared:
            typer.echo(f"{each.injection.id} on {each.injection.target}: {'' if each.ok else 'NOT UNDONE: '}{each.detail}")
        if not cleared:
            typer.echo("nothing was broken on purpose")
    raise typer.Exit(0 if all(each.ok for each in cleared) else FAILED)


class _Told:
    """Turns what can go wrong into a sentence on stderr and an exit code."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, FaultUsageError | RecordUnreadableError):
            _leave(str(error), BAD_USAGE)
        if isinstance(error, FaultError | EngineError):
            _leave(str(error), FAILED)


def _leave(message: str, code: int) -> NoReturn:
    typer.echo(message, err=True)
    sys.exit(code)


def _faults(state_dir: Path | None) -> Faults:
    directory, clock = state_dir or default_state_directory(), SystemClock()
    return Faults(directory, LocalEngines(directory, clock), clock)


def _parameters(given: list[str]) -> dict[str, Any]:
    pairs = [text.partition("=") for text in given]
    for text, (name, equals, value) in zip(given, pairs, strict=True):
        if not name or not equals or not value:
            raise FaultUsageError(f"--param {text!r} is not NAME=NUMBER, as in --param pause_s=0.4")
    return {name.replace("-", "_"): value for name, _, value in pairs}


def _say_injected(faults: Faults, injection: Injection, then: str, *, as_json: bool) -> None:
    if as_json:
        _print_json(_active_row(ActiveFault(injection, over=False)))
        return
    fault = faults.catalogue()[injection.fault]
    typer.echo(f"{injection.id}: {fault.summary} ({injection.target})")
    typer.echo(f"it shows as: {fault.shows}")
    typer.echo(then)


def _stay(faults: Faults, injection: Injection, seconds: float | None, clock: SystemClock) -> None:
    """Until the time is up, Ctrl-C, or nothing of it is left at work."""
    deadline = None if seconds is None else clock.monotonic() + seconds
    try:
        while deadline is None or clock.monotonic() < deadline:
            clock.sleep(POLL_S if deadline is None else min(POLL_S, deadline - clock.monotonic()))
            if all(each.over or each.injection.id != injection.id for each in faults.active()):
                return
    except KeyboardInterrupt:
        typer.echo("", err=True)


def _fault_row(fault: Fault) -> dict[str, Any]:
    shown = {"name", "summary", "shows", "causes", "foreground", "parameters"}
    return fault.model_dump(mode="json", include=shown) | {"engines": _applies_to(fault)}


def _active_row(each: ActiveFault) -> dict[str, Any]:
    shown = {"id", "fault", "target", "parameters", "at", "until"}
    return each.injection.model_dump(mode="json", include=shown) | {"over": each.over}


def _cleared_row(each: Cleared) -> dict[str, Any]:
    injection = each.injection
    return {"id": injection.id, "fault": injection.fault, "target": injection.target, "ok": each.ok, "detail": each.detail}


def _applies_to(fault: Fault) -> list[str]:
    return ["vllm", "simulated", DOOR] if fault.load is not None else [str(kind) for kind in fault.ways]


def _catalogue_table(catalogue: Mapping[str, Fault]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold dim")
    for column in ("fault", "what", "parameters (default)", "applies to"):
        table.add_column(column)
    for fault in catalogue.values():
        parameters = ", ".join(
            f"{name} ({p.default:g}{' ' + p.unit if p.unit else ''})" for name, p in fault.parameters.items()
        )
        table.add_row(fault.name, fault.summary, parameters, ", ".join(_applies_to(fault)))
    return table


def _active_table(active: tuple[ActiveFault, ...], now: float) -> Table:
    table = Table(title="broken on purpose", box=None, pad_edge=False, header_style="bold dim", title_justify="left")
    for column in ("id", "target", "since", "state"):
        table.add_column(column)
    for each in active:
        since = datetime.fromtimestamp(each.injection.at, UTC).strftime("%H:%M:%S UTC")
        overdue = each.injection.until is not None and now > each.injection.until + 1.0
        state = "over, clear to forget it" if each.over else "overdue: its maker is gone, clear it" if overdue else "at work"
        table.add_row(each.injection.id, each.injection.target, since, state)
    return table


def _print_json(value: object) -> None:
    typer.echo(json.dumps(value, indent=2))
