"""Between the events inside and the records on disk, for every event and both ways."""

from textwrap import shorten
from typing import cast, get_args

from pydantic import ValidationError

from agent.incident import IncidentEvent
from agent.journal.port import DamagedError, Note
from agent.journal.records import RECORDS, AnyRecord

_RECORD_OF: dict[type, type[AnyRecord]] = {record.restores: record for record in get_args(AnyRecord)}


def to_record(event: IncidentEvent | Note) -> AnyRecord:
    """The stored form of an event. Lone surrogates in its text become U+FFFD; all else comes back unchanged."""
    return _RECORD_OF[type(event)].model_validate(event)


def to_event(record: AnyRecord) -> IncidentEvent | Note:
    """The event that a record stores."""
    return cast(IncidentEvent | Note, record.restore())


def encode(event: IncidentEvent | Note) -> tuple[str, str]:
    """The type and the JSON body of an event."""
    record = to_record(event)
    return record.type, record.model_dump_json()


def decode(body: str, where: str) -> IncidentEvent | Note:
    """The event in a JSON body. Raises DamagedError with `where` and every field that is wrong."""
    try:
        return to_event(RECORDS.validate_json(body))
    except ValidationError as error:
        problems = "; ".join(_problem(tuple(item["loc"]), item["msg"], item["input"]) for item in error.errors())
        raise DamagedError(
            f"{where} cannot be understood: {problems}. Another version of Fleetwarden wrote it, or a hand changed it: use "
            "the version that wrote it, or restore the file from a backup; nothing was changed"
        ) from error


def _problem(path: tuple[int | str, ...], message: str, value: object) -> str:
    return f"{'.'.join(map(str, path)) or 'body'}: {message} (it is {shorten(repr(value), 80, placeholder='...')})"
