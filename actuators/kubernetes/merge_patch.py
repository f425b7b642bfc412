"""JSON merge patches (RFC 7396): what turns one object into another. Pure."""

from collections.abc import Mapping
from typing import Any


def difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """The patch that makes `new` of `old`; empty when they are alike. `new` holds no None: a patch means removal by it."""
    patch: dict[str, Any] = {name: None for name in old if name not in new}
    for name, value in new.items():
        before = old.get(name)
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            inner = difference(before, value)
            if inner:
                patch[name] = inner
        elif value != before or name not in old:
            patch[name] = value
    return patch


def merged(old: Any, patch: Any) -> Any:
    """What the API server makes of a merge patch."""
    if not isinstance(patch, Mapping):
        return patch
    result = dict(old) if isinstance(old, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result
