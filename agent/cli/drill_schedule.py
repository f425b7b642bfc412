"""`fleetwarden drill schedule`: drills by the calendar, in the foreground."""

import contextlib
import random
import signal
from datetime import datetime
from pathlib import Path
from threading import Event
from typing import Annotated

import structlog
import typer
from rich.table import Table

from agent.cli.drill_places import Directories, directory_of, drills_of, fleet_of, store_of
from agent.cli.runbook import shipped_verbs
from agent.cli.tables import StateDir, print_all, print_json
from agent.cli.warden import log_to_stderr
from agent.drill.card import Card
from agent.drill.local import LocalDrillFleet
from agent.drill.runner import Means, run_drill
from agent.drill.schedule_file import load_schedule
from agent.drill.scheduler import DrillScheduler, RunDrill
from agent.drill.telling import tell_slack
from runbooks.drill import Drill
from serving.clock import SystemClock
from serving.faults.interruption import deaf, ending_by_exception
from serving.yaml_file import FileError


def schedule(
    file: Annotated[Path, typer.Argument(help="The schedule, YAML (see docs/drills.md).", show_default=False)],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say when each drill is due next, and stop.")] = False,
    directories: Directories = None,
    state_dir: StateDir = None,
    as_json: Annotated[bool, typer.Option("--json", help="The times as JSON (with --dry-run).")] = False,
) -> None:
    """Run drills when they are due, until Ctrl-C or SIGTERM; a drill that is under way then is undone first.

    One at a time. Results go to the history, the log, and the warden's Slack channel and webhooks.
    JSON: {"time_zone", "due": [{drill, at}]}. Exit code: 0 stopped as asked, 2 the schedule or a drill cannot be read.
    """
    drills = {name: loaded.drill for name, loaded in drills_of(directories).items()}
    wanted = load_schedule(file, drills)
    clock, seed = SystemClock(), random.SystemRandom().randrange(1_000_000)
    with fleet_of(state_dir) as fleet:
        scheduler = DrillScheduler(wanted, _runner(drills, fleet, state_dir), clock, seed)
        due = scheduler.upcoming()
        if as_json:
            print_json({"time_zone": wanted.time_zone, "due": [{"drill": name, "at": at.timestamp()} for name, at in due]})
        else:
            print_all([_table(due)])
        if not dry_run:
            _go(scheduler)


def _go(scheduler: DrillScheduler) -> None:
    """Until told to stop. While nothing runs a signal just ends the waiting; inside a drill it undoes that first."""
    log_to_stderr()
    stop = Event()
    with contextlib.suppress(KeyboardInterrupt, SystemExit):
        signal.signal(signal.SIGTERM, lambda *_: stop.set())
        scheduler.run_until(stop)
    structlog.get_logger("fleetwarden.drill").info("drill.schedule_stopped", says="nothing is left broken")


def _runner(drills: dict[str, Drill], fleet: LocalDrillFleet, state_dir: Path | None) -> RunDrill:
    log = structlog.get_logger("fleetwarden.drill")
    directory = directory_of(state_dir)
    means = Means(store_of(state_dir), shipped_verbs(), lambda line: log.info("drill.progress", says=line), undoing=deaf)

    def run(name: str, seed: int) -> Card:
        with ending_by_exception():
            card = run_drill(drills[name], fleet, means, seed)
        try:
            for problem in tell_slack(card, directory, fleet.clock):
                log.warning("drill.not_told", says=problem)
        except FileError as error:
            log.warning("drill.not_told", says=str(error))
        return card

    return run


def _table(due: tuple[tuple[str, datetime], ...]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold dim")
    table.add_column("due")
    table.add_column("drill")
    for name, at in due:
        table.add_row(at.strftime("%a %Y-%m-%d %H:%M:%S %Z"), name)
    return table
