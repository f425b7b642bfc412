"""Label selectors, evaluated here where the API server cannot do it for us: on the templates of workloads.

https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors
"""

import re
from collections.abc import Callable, Mapping

Labels = Mapping[str, str]
Matcher = Callable[[Labels], bool]
_SET = re.compile(r"^(?P<key>\S+)\s+(?P<verb>in|notin)\s+\((?P<values>.*)\)$")
_EQUAL = re.compile(r"^(?P<key>[^=!\s]+)\s*(?P<verb>==|=|!=)\s*(?P<value>\S*)$")


def matcher(selector: str) -> Matcher:
    """What tells whether labels satisfy `selector`, which the fleet file has checked already."""
    tests = [_test(term.strip()) for term in re.split(r",(?![^(]*\))", selector)]
    return lambda labels: all(test(labels) for test in tests)


def _test(term: str) -> Matcher:
    if found := _SET.match(term):
        key, wanted = found["key"], found["verb"] == "in"
        values = {value.strip() for value in found["values"].split(",")}
        # As in Kubernetes, `notin` and `!=` hold for labels without the key.
        return lambda labels: (labels[key] in values) is wanted if key in labels else not wanted
    if found := _EQUAL.match(term):
        key, value, equal = found["key"], found["value"], found["verb"] != "!="
        return lambda labels: (labels[key] == value) is equal if key in labels else not equal
    if term.startswith("!"):
        absent = term[1:].strip()
        return lambda labels: absent not in labels
    return lambda labels: term in labels
