"""What the warden did to an object, kept on the object itself: in the same write, so that neither is without the other.

The annotation holds the newest operations only. A look-up comes within minutes of its operation, long before as many
further ones. Pure; reading and writing objects is done elsewhere.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import orjson

from actuators.action import Scalar
from serving.kubernetes.cluster_map import PREFIX

OPERATIONS = f"{PREFIX}operations"
KEPT = 16
Json = Mapping[str, Any]


class LedgerUnreadableError(ValueError):
    """The annotation is not what the warden writes. Nobody can tell what was done, so nothing is done."""


@dataclass(frozen=True, slots=True)
class Record:
    """One operation that was carried out. `at`: Unix seconds by the API server's clock. `term`: of the writer."""

    key: str
    verb: str
    says: str
    at: float
    term: int
    before: Mapping[str, Scalar]
    after: Mapping[str, Scalar]


def annotations_of(thing: Json) -> Mapping[str, str]:
    """The annotations of an object; empty without any."""
    found: Mapping[str, str] = (thing.get("metadata") or {}).get("annotations") or {}
    return found


def records(thing: Json) -> tuple[Record, ...]:
    """The operations on an object, the newest last. Raises LedgerUnreadableError."""
    text = annotations_of(thing).get(OPERATIONS)
    if not text:
        return ()
    try:
        return tuple(Record(**one) for one in orjson.loads(text))
    except (orjson.JSONDecodeError, TypeError) as wrong:
        raise LedgerUnreadableError(
            f"the annotation {OPERATIONS} cannot be read ({wrong}), so nobody can tell what was done; remove it"
        ) from None


def record_of(thing: Json, key: str) -> Record | None:
    """The operation with this key, None when the object knows none. Raises LedgerUnreadableError."""
    return next((one for one in reversed(records(thing)) if one.key == key), None)


def entered(thing: Json, record: Record) -> str:
    """The annotation's text with one more operation. Raises LedgerUnreadableError."""
    kept = (*(one for one in records(thing) if one.key != record.key), record)[-KEPT:]
    return orjson.dumps([asdict(one) for one in kept]).decode()
