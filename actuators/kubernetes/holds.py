"""Who holds a node cordoned or tainted: one hold an incident, so that one that ends does not let go what another needs.

Pure. A hold is the key of the operation that took it; what lies before the first `/` of a key is its incident. The holds of
a node are an annotation with one key a line. What a person did bears no hold, and is theirs to undo.
"""

from collections.abc import Mapping, Sequence
from typing import Any


def incident_of(key: str) -> str:
    """The incident that an operation belongs to."""
    return key.partition("/")[0]


def holds_in(text: str | None) -> tuple[str, ...]:
    """The holds that an annotation names, the oldest first."""
    return tuple(line for line in (text or "").splitlines() if line)


def taken(holds: Sequence[str], key: str) -> tuple[str, ...]:
    """The holds with one for the key's incident; the same when it has one."""
    if any(incident_of(hold) == incident_of(key) for hold in holds):
        return tuple(holds)
    return (*holds, key)


def released(holds: Sequence[str], key: str) -> tuple[str, ...]:
    """The holds without that of the key's incident; without the newest when its incident has none."""
    own = [hold for hold in holds if incident_of(hold) == incident_of(key)]
    gone = own[0] if own else holds[-1] if holds else None
    return tuple(hold for hold in holds if hold != gone)


def with_annotation(thing: Mapping[str, Any], name: str, text: str) -> dict[str, Any]:
    """The object with an annotation set, or removed when `text` is empty."""
    metadata = dict(thing.get("metadata") or {})
    annotations = {key: value for key, value in (metadata.get("annotations") or {}).items() if key != name}
    if text:
        annotations[name] = text
    return {**thing, "metadata": {**metadata, "annotations": annotations}}
