"""Reading settings: the YAML file, then the environment on top, and every mistake of both in words.

A secret in the file is refused, and no value that might be one is repeated.
"""

import difflib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsError

from agent.settings import NESTING, PREFIX, WardenSettings
from serving.yaml_file import FileError, Problem, YamlFile, load_file

ENVIRONMENT = "environment"

# Keys that must not stand in a file that many may read, and what stands there instead.
_SECRETS = {
    ("sinks", "slack", "webhook_url"): "webhook_url_file",
    ("journal", "url"): "url_file",
}
_MISSPELT = 0.85  # how alike a variable must be to a setting (0 to 1) to be taken for a slip of it


class _FileAlone(WardenSettings):
    """The same settings without the environment, to tell the mistakes of the file from those of the variables."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 - the library's signature
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - the library's signature
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - the library's signature
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - the library's signature
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings,)


def load_settings(path: Path | None = None) -> WardenSettings:
    """The settings of the file at `path`, if any, with the environment on top. Raises FileError with every mistake.

    Relative paths in the file are taken from its own directory, those in the environment from the working directory.
    """
    given: dict[str, Any] = {}
    if path is not None:
        file = load_file(path)
        _check_file(file)
        given = _beside(file.data, WardenSettings, path.parent.absolute())
    slips = list(_misspelt(os.environ))
    if slips:
        raise FileError(slips)
    try:
        settings = WardenSettings(**given)
    except ValidationError as refused:
        raise FileError([_of_environment(error) for error in refused.errors(include_input=False)]) from None
    except SettingsError as refused:  # a variable for a whole section that is not JSON; the text names the section only
        raise FileError([Problem(ENVIRONMENT, 0, "", f"{refused}: a whole section is written as JSON")]) from None
    if settings.sinks.slack is not None and not settings.sinks.slack.has_url:
        variable = _variable(("sinks", "slack", "webhook_url"))
        what = f"names no webhook: name a file with `webhook_url_file`, or set {variable}"
        where = ("sinks", "slack")
        raise FileError([Problem(ENVIRONMENT, 0, "sinks.slack", what) if path is None else file.problem(where, what)])
    return settings


def _check_file(file: YamlFile) -> None:
    """Raise FileError with every mistake of the file itself, whatever the environment says."""
    problems = [
        file.problem(where, f"is a secret and does not belong into this file: use `{instead}`, or set {_variable(where)}")
        for where, instead in _SECRETS.items()
        if _at(file.data, where) is not None
    ]
    try:
        file.validated(_FileAlone)
    except FileError as refused:
        problems += map(_hidden, refused.problems)
    if problems:
        raise FileError(problems)


def _hidden(problem: Problem) -> Problem:
    """`problem` without its value where that may be a secret, also one under a wrong key."""
    secret = problem.field.startswith(("sinks", "journal")) or "is not a known key" in problem.what
    return replace(problem, value="") if secret else problem


def _at(data: Any, where: tuple[str, ...]) -> Any:
    for key in where:
        data = data.get(key) if isinstance(data, dict) else None
    return data


def _beside(data: Mapping[str, Any], model: type[BaseModel], folder: Path) -> dict[str, Any]:
    """`data` of a `model` with every relative path taken from `folder`."""
    placed: dict[str, Any] = dict(data)
    for key, value in data.items():
        info = model.model_fields.get(key)
        inner = set(_types_in(info.annotation)) if info is not None else set()
        below = next((kind for kind in inner if issubclass(kind, BaseModel)), None)
        if Path in inner and isinstance(value, str):
            placed[key] = folder / Path(value).expanduser()
        elif Path in inner and isinstance(value, list):
            placed[key] = [folder / Path(item).expanduser() for item in value]
        elif below is not None and isinstance(value, dict):
            placed[key] = _beside(value, below, folder)
        elif below is not None and isinstance(value, list):
            placed[key] = [_beside(item, below, folder) for item in value]
    return placed


def _types_in(annotation: Any) -> Iterator[type]:
    if isinstance(annotation, type):
        yield annotation
    for inner in get_args(annotation):
        yield from _types_in(inner)


def _variable(where: Sequence[str | int]) -> str:
    return PREFIX + NESTING.join(str(part).upper() for part in where)


def _of_environment(error: Any) -> Problem:
    what = str(error["msg"]).removeprefix("Value error, ")
    return Problem(ENVIRONMENT, 0, _variable(error["loc"]) if error["loc"] else "", what[:1].lower() + what[1:])


def _misspelt(environment: Mapping[str, str]) -> Iterator[Problem]:
    """Variables that are one slip away from a setting: to pass over FLEETWARDEN_DRYRUN would act where nobody wanted it."""
    known = [name.upper() for name in WardenSettings.model_fields]
    for variable in environment:
        if variable.upper().startswith(PREFIX):
            name = variable.upper().removeprefix(PREFIX).partition(NESTING)[0]
            likely = difflib.get_close_matches(name, known, 1, _MISSPELT)
            if likely and name not in known:
                yield Problem(ENVIRONMENT, 0, variable, f"is not a setting; did you mean {PREFIX}{likely[0]}?")
