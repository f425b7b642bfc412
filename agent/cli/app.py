"""The command `fleetwarden`: every command and group, mounted in one place.

Only what is asked for is imported: a command that stops everything must not wait for code it does not use.
"""

import sys
from collections.abc import Iterable, Mapping
from importlib import import_module
from types import MappingProxyType

import typer

from agent.journal.port import JournalError
from serving.yaml_file import FileError

# Each command's function, or each group's Typer app, by module of this package. The order is that of the help text.
COMMANDS: Mapping[str, str] = MappingProxyType(
    {
        "up": "up:up",
        "down": "up:down",
        "status": "status:status",
        "incidents": "incidents:incidents",
        "explain": "incidents:explain",
        "approve": "incidents:approve",
        "reject": "incidents:reject",
        "pause": "switches:pause",
        "resume": "switches:resume",
        "fault": "fault:app",
        "drill": "drill:app",
        "runbook": "runbook:app",
        "warden": "warden:warden",
        "diagnose": "diagnose:diagnose",
        "doctor": "doctor:doctor",
        "replay": "replay:replay",
        "record": "record:record",
    }
)


def build(names: Iterable[str] = tuple(COMMANDS)) -> typer.Typer:
    """The command line with the commands called `names`."""
    app = typer.Typer(
        name="fleetwarden",
        help="Keeps a fleet of vLLM servers healthy: detects, diagnoses, repairs, verifies and reports.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_no_options)  # without it Typer makes a lone command the whole program
    for name in names:
        module, _, attribute = COMMANDS[name].partition(":")
        home = import_module(f"agent.cli.{module}")
        mounted = getattr(home, attribute)
        if isinstance(mounted, typer.Typer):
            app.add_typer(mounted, name=name)
        else:
            app.command(name, cls=getattr(home, "COMMAND_CLASS", None))(mounted)
    return app


def main() -> None:
    """Run the command line. A mistake in a file or a journal that cannot be used ends it with exit code 2 and a sentence."""
    wanted = next((word for word in sys.argv[1:] if not word.startswith("-")), None)
    app = build([wanted]) if wanted is not None and wanted in COMMANDS else build()
    try:
        app()
    except (FileError, JournalError) as error:
        typer.echo(str(error), err=True)
        sys.exit(2)


def _no_options() -> None:
    """Keeps a fleet of vLLM servers healthy: detects, diagnoses, repairs, verifies and reports."""
