"""`python -m serving.simulator`: one simulated engine as a process. Exit codes: 0 stopped, 1 engine died, 2 bad usage."""

import asyncio
import logging
import sys
from collections.abc import Sequence

from pydantic import ValidationError
from pydantic_settings import BaseSettings, CliApp, PydanticBaseSettingsSource, SettingsConfigDict

from serving.simulator.server import listen_later, serve
from serving.simulator.settings import SimulatorSettings

BAD_USAGE = 2


class CommandLine(SimulatorSettings, BaseSettings):
    """A simulated vLLM engine: vLLM's routes, metrics and spans over a model of continuous batching.

    Options that vLLM has too bear its names.
    """

    model_config = SettingsConfigDict(
        cli_prog_name="python -m serving.simulator",
        cli_kebab_case=True,
        cli_implicit_flags=True,
        cli_hide_none_type=True,
        cli_enforce_required=True,
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 - the library's signature
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - a variable called NAME or HOST is not meant for an engine
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - same
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - same
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The command line alone speaks."""
        return (init_settings,)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one engine with the options given, by default those of the process. Returns the exit code."""
    try:
        settings = CliApp.run(CommandLine, cli_args=list(sys.argv[1:] if arguments is None else arguments))
    except ValidationError as error:
        return _bad_usage(error)
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.INFO,
        format=f"%(asctime)s %(levelname)s {settings.name.replace('%', '%%')} %(message)s",
    )
    try:
        taken = listen_later(settings.host, settings.port)
    except OSError as error:
        reason = error.strerror or error
        sys.stderr.write(f"cannot serve on {settings.host}:{settings.port}: {reason}; choose another --host or --port\n")
        return BAD_USAGE
    asyncio.run(serve(settings, taken))
    return 0


def _bad_usage(error: ValidationError) -> int:
    for problem in error.errors(include_url=False):
        option = "--" + str(problem["loc"][0]).replace("_", "-") if problem["loc"] else "options"
        given = f" (given: {problem['input']})" if problem["loc"] and problem["type"] != "missing" else ""
        sys.stderr.write(f"{option}: {problem['msg'].removeprefix('Value error, ')}{given}\n")
    sys.stderr.write("see --help for all options\n")
    return BAD_USAGE


if __name__ == "__main__":
    sys.exit(main())
