"""Templates in step arguments: `${engine}` and a few other fixed names, and nothing else.

There is no expression, no attribute, no environment: whatever is not in `NAMES` is refused when the runbook is loaded, so
a template cannot reach a secret.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType

from runbooks.conditions import did_you_mean
from runbooks.runbook import Argument

NAMES: Mapping[str, str] = MappingProxyType(
    {
        "cause": "the cause of the incident, such as engine.hung",
        "cell": "the cell of the target",
        "engine": "the target's name, where the target is an engine",
        "incident": "the incident's id",
        "model": "the model that the target serves",
        "node": "the node that the target runs on",
        "target": "the target as kind/name",
    }
)
_PLACE = re.compile(r"\$\{([^}]*)\}")


def template_problems(value: Argument) -> list[str]:
    """What is wrong with the templates in `value`, in order."""
    if not isinstance(value, str):
        return []
    asked = _PLACE.findall(value)
    problems = [f"a template cannot use ${{{name}}}{did_you_mean(name, NAMES)}" for name in asked if name not in NAMES]
    if "$" in _PLACE.sub("", value):
        problems.append("a `$` must begin a template such as ${engine}")
    return problems


def fill(value: Argument, names: Mapping[str, str]) -> Argument:
    """`value` with its templates filled in from `names`. Raises KeyError for a name that the target does not have."""
    if not isinstance(value, str):
        return value
    return _PLACE.sub(lambda place: names[place[1]], value)
