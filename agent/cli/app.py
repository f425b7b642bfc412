"""The command `fleetwarden`: every command and group, mounted in one place."""

import sys

import typer

from agent.cli import fault, incidents, runbook, status, switches, up, warden
from agent.journal.port import JournalError
from serving.yaml_file import FileError

app = typer.Typer(
    name="fleetwarden",
    help="Keeps a fleet of vLLM servers healthy: detects, diagnoses, repairs, verifies and reports.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(up.up)
app.command()(up.down)
app.command()(warden.warden)
app.command()(status.status)
app.command()(incidents.incidents)
app.command()(incidents.explain)
app.command()(incidents.approve)
app.command()(incidents.reject)
app.command()(switches.pause)
app.command()(switches.resume)
app.add_typer(fault.app, name="fault")
app.add_typer(runbook.app, name="runbook")


def main() -> None:
    """Run the command line. A mistake in a file or a journal that cannot be used ends it with exit code 2 and a sentence."""
    try:
        app()
    except (FileError, JournalError) as error:
        typer.echo(str(error), err=True)
        sys.exit(2)
