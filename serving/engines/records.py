"""Small JSON records on disk: read with their model, written whole or not at all."""

import os
import tempfile
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

Record = TypeVar("Record", bound=BaseModel)


class RecordUnreadableError(Exception):
    """A record exists and cannot be understood. It is left as it is: guessing could start a thing twice."""


def read_record(path: Path, model: type[Record]) -> Record | None:
    """The record at `path`, or None when there is none. Raises RecordUnreadableError naming file, field and value."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RecordUnreadableError(f"{path}: cannot be read ({error.strerror})") from error
    try:
        return model.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "the whole file"
        raise RecordUnreadableError(
            f"{path}: {field}: {first['msg']} (found {first['input']!r}); mend the file, or move it away to forget it"
        ) from error


def write_record(path: Path, record: BaseModel) -> None:
    """Replace the record at `path` in one step: a reader, or a crash at any point, sees the old one or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(record.model_dump_json(indent=1) + "\n")
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
