"""The command line with `replay` and `record` alone, run in this process."""

import typer
from typer.testing import CliRunner, Result

from agent.cli import record, replay

app = typer.Typer(pretty_exceptions_enable=False)
app.command(cls=replay.COMMAND_CLASS)(replay.replay)
app.command()(record.record)


def run(*arguments: object) -> Result:
    """The result of `fleetwarden` with these arguments. What it raises is raised."""
    return CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)


if __name__ == "__main__":
    app()
