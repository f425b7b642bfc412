"""The door's state file: its orders, so that drains, weights and operation keys survive a restart of the door."""

import contextlib
import os
import tempfile
from pathlib import Path
from typing import Literal

import orjson
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from serving.gateway.orders import Operation, Orders, Standing


class _Stored(BaseModel):
    """The file's shape. Operations stand oldest first."""

    model_config = ConfigDict(extra="forbid")
    version: Literal[1] = 1
    engines: dict[str, Standing]
    operations: list[Operation]


_STORED = TypeAdapter(_Stored)


class StateFileError(Exception):
    """The state file cannot be read or written. Says which file, what is wrong and what to do."""


def load_orders(path: Path) -> Orders:
    """The orders kept in `path`; none when there is no such file. Raises StateFileError when it cannot be understood."""
    try:
        stored = _Stored.model_validate(orjson.loads(path.read_bytes()))
    except FileNotFoundError:
        return Orders()
    except (OSError, orjson.JSONDecodeError, ValidationError) as error:
        raise StateFileError(
            f"{path}: cannot read the door's state: {error}. Repair the file, or move it away: "
            "the door then starts with no engine drained and every weight 1"
        ) from error
    return Orders(stored.engines, {operation.key: operation for operation in stored.operations})


def save_orders(path: Path, orders: Orders) -> None:
    """Replace `path` in one step: a reader (or a crash) sees the old file or the new one, never half of one.

    Raises StateFileError when it cannot be written; the old file is then untouched.
    """
    stored = _Stored(engines=dict(orders.engines), operations=list(orders.operations.values()))
    text = orjson.dumps(_STORED.dump_python(stored, mode="json"), option=orjson.OPT_INDENT_2)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _replace(path, text)
    except OSError as error:
        raise StateFileError(f"{path}: cannot write the door's state: {error}") from error


def _replace(path: Path, text: bytes) -> None:
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise
