"""`fleetwarden up` and `fleetwarden down`: a whole fleet on this machine, and its end."""

import contextlib
import signal
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live

from agent import status as page
from agent.cli.status import is_terminal, render
from agent.journal.port import Entry, Journal, Note
from agent.journal.stored import open_journal
from agent.local_fleet import LocalFleet, LocalFleetError, Plan, wait_until
from agent.report.wording import transition
from runbooks.runbook import Autonomy
from serving.clock import SystemClock
from serving.engines.engine_process import EngineError, EngineStatus
from serving.engines.readiness import answers
from serving.engines.specs import EngineKind, VllmMissingError
from serving.engines.state_directory import default_state_directory

READY_S = {EngineKind.SIMULATED: 60.0, EngineKind.VLLM: 900.0}
USUAL_RPS = {EngineKind.SIMULATED: 6.0, EngineKind.VLLM: 1.5}  # real engines share two small cores
SERVICE_READY_S = 30.0
WIDE = 160
PLAIN_TABLE_S = 30.0  # without a terminal the table is printed anew only so often


def up(
    engines: Annotated[int, typer.Option(min=1, max=64, help="How many engines.")] = 4,
    real: Annotated[
        bool, typer.Option("--real", help="Real vLLM engines instead of simulated ones (see make setup-vllm).")
    ] = False,
    moe: Annotated[
        bool,
        typer.Option(
            "--moe", help="A model with a mixture of experts (2 layers, 16 experts, 2 active), tokens per expert counted."
        ),
    ] = False,
    rps: Annotated[
        float | None,
        typer.Option(
            min=0, help="Load through the front door, requests per second; 0: none.", show_default="6; with --real 1.5"
        ),
    ] = None,
    autonomy: Annotated[Autonomy, typer.Option(help="How far the warden may go on its own.")] = Autonomy.AUTO,
    base_port: Annotated[int, typer.Option(min=1024, max=65000, help="First port of the range that is used.")] = 8100,
    slack_webhook_file: Annotated[Path | None, typer.Option(help="File with the URL of a Slack incoming webhook.")] = None,
    state_dir: Annotated[Path | None, typer.Option(help="Where the fleet is described and the journal kept.")] = None,
    detach: Annotated[
        bool, typer.Option("--detach", help="Return when everything runs; `fleetwarden down` stops it.")
    ] = False,
) -> None:
    """Start engines, a front door, a load and the warden on this machine, and show the fleet until Ctrl-C.

    Exit code: 0 stopped as asked, 1 something did not start (the log is named).
    """
    clock, console = SystemClock(), _console()
    signal.signal(signal.SIGTERM, _as_interrupt)
    fleet = LocalFleet(state_dir or default_state_directory(), clock)
    kind = EngineKind.VLLM if real else EngineKind.SIMULATED
    plan = Plan(engines, kind, base_port, USUAL_RPS[kind] if rps is None else rps, autonomy, slack_webhook_file, moe)
    try:
        fleet.lay_out(plan)
    except (LocalFleetError, VllmMissingError) as error:  # nothing of this plan runs yet, and what runs is not ours to stop
        console.print(f"[red]{error}[/red]", highlight=False)
        raise typer.Exit(1) from None
    try:
        _start(fleet, plan, clock, console)
        if detach:
            console.print("running; `fleetwarden status` shows it, `fleetwarden down` stops it")
            return
        _show(fleet, clock, console)
    except (LocalFleetError, EngineError) as error:
        console.print(f"[red]{error}[/red]", highlight=False)
        _stop(fleet, console)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        _stop(fleet, console)


def down(
    state_dir: Annotated[Path | None, typer.Option(help="State directory of the local fleet.")] = None,
) -> None:
    """Stop every process of the local fleet. The journal stays. Exit code 0, also when nothing ran."""
    console = _console()
    fleet = LocalFleet(state_dir or default_state_directory(), SystemClock())
    if not fleet.running():
        console.print(f"nothing runs under {fleet.directory}")
        return
    _stop(fleet, console)


def _console() -> Console:
    """Whole lines where no terminal limits them."""
    return Console() if is_terminal() else Console(width=WIDE)


def _as_interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _start(fleet: LocalFleet, plan: Plan, clock: SystemClock, console: Console) -> None:
    names = fleet.engines.names()
    console.print(f"starting {len(names)} {'real vLLM' if plan.kind is EngineKind.VLLM else 'simulated'} engines")
    for name in names:
        fleet.engines.start(name)
    urls = {name: fleet.engines.spec(name).url for name in names}
    _await_engines(fleet, urls, READY_S[plan.kind], clock, console)
    fleet.start("door")
    _await(fleet, "door", f"{plan.door_url}/health", clock)
    console.print(f"front door at {plan.door_url} (OpenAI API), {plan.rps:g} requests/s of load")
    if plan.rps > 0:
        fleet.start("load")
    fleet.start("warden")
    _await(fleet, "warden", f"http://127.0.0.1:{plan.warden_port}/healthz", clock)
    console.print(
        "the warden watches. Break something from another terminal:\n"
        f"  fleetwarden fault inject engine-hang {names[0]}\n"
        "  fleetwarden explain last",
        highlight=False,
    )


def _await_engines(fleet: LocalFleet, urls: dict[str, str], seconds: float, clock: SystemClock, console: Console) -> None:
    """Wait until every engine answers, and say every few seconds which ones do."""
    began, said = clock.monotonic(), 0.0
    while True:
        ready = [name for name, url in urls.items() if answers(f"{url}/health")]
        waited = clock.monotonic() - began
        if len(ready) == len(urls):
            console.print(f"all {len(urls)} engines ready after {waited:.0f} s")
            return
        for name in urls:
            if fleet.engines.state(name).status is EngineStatus.EXITED:
                raise LocalFleetError(f"engine {name} ended while starting; its log: {fleet.engines.log(name)}")
        if waited > seconds:
            missing = ", ".join(sorted(set(urls) - set(ready)))
            raise LocalFleetError(
                f"{missing} did not answer within {seconds:.0f} s; logs: {fleet.directory}/engines/NAME/log"
            )
        if waited - said >= 10.0:  # noqa: PLR2004 - often enough to show that it goes on
            said = waited
            console.print(f"  {len(ready)} of {len(urls)} ready after {waited:.0f} s")
        clock.sleep(0.3)


def _await(fleet: LocalFleet, service: str, url: str, clock: SystemClock) -> None:
    def ready() -> bool:
        if fleet.services.state(service).status is EngineStatus.EXITED:
            raise LocalFleetError(f"the {service} ended while starting; its log: {fleet.services.log(service)}")
        return answers(url)

    if not wait_until(ready, clock, SERVICE_READY_S):
        raise LocalFleetError(f"the {service} did not answer at {url}; its log: {fleet.services.log(service)}")


def _show(fleet: LocalFleet, clock: SystemClock, console: Console) -> None:
    """The table, kept fresh, and a line for every transition; restarts what belongs to the fleet and died."""
    with contextlib.closing(open_journal(fleet.directory / "journal.sqlite")) as journal:
        lines = _transitions(journal)
        if not is_terminal():
            _show_plainly(fleet, lines, clock, console)
            return
        with Live(console=console, auto_refresh=False) as live:
            while True:
                for line in next(lines):
                    live.console.print(line, highlight=False)
                seen = page.read(fleet.directory)
                if seen is not None:
                    live.update(render(seen, clock.now()), refresh=True)
                _revive(fleet, console)
                clock.sleep(1.0)


def _show_plainly(fleet: LocalFleet, lines: Iterator[list[str]], clock: SystemClock, console: Console) -> None:
    shown = float("-inf")
    while True:
        for line in next(lines):
            console.print(line, highlight=False, soft_wrap=True)
        seen = page.read(fleet.directory)
        if seen is not None and clock.monotonic() - shown >= PLAIN_TABLE_S:
            shown = clock.monotonic()
            console.print(render(seen, clock.now()))
        _revive(fleet, console)
        clock.sleep(1.0)


def _transitions(journal: Journal) -> Iterator[list[str]]:
    """At each turn, a line for every entry that is new in the journal."""
    seen = max((entry.seq for entry in journal.events()), default=0)
    while True:
        fresh = journal.events(since=seen)
        seen = fresh[-1].seq if fresh else seen
        yield lines_of(fresh, journal)


def lines_of(entries: Iterable[Entry], journal: Journal) -> list[str]:
    """One line for a person of each entry of the journal."""
    return [_line(entry, journal) for entry in entries]


def _line(entry: Entry, journal: Journal) -> str:
    event = entry.event
    at = f"{datetime.fromtimestamp(event.at, tz=UTC):%H:%M:%S}"
    if isinstance(event, Note):
        return f"{at}  {transition(event)}"
    return f"{at}  {event.incident}  {transition(event, journal.incident(event.incident))}"


def _revive(fleet: LocalFleet, console: Console) -> None:
    """The door, the load and the warden are this command's to keep running; engines are the warden's."""
    for name in fleet.services.names():
        if fleet.services.state(name).status is EngineStatus.EXITED:
            console.print(f"[yellow]the {name} ended; starting it again (log: {fleet.services.log(name)})[/yellow]")
            fleet.services.start(name)


def _stop(fleet: LocalFleet, console: Console) -> None:
    for name in fleet.stop():
        console.print(f"stopped {name}")
