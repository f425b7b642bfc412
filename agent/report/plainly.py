"""Turning clauses that were made for the record into ones for a person: conditions with their numbers, names of symptoms.

What is not recognised stays as it is; nothing is left out but the text of a condition whose numbers are shown.
"""

import re

from agent.report.phrases import SYMPTOMS

_CONDITION = re.compile(r"`[^`]*` is (true|false|unreadable) \(([^()`]+)\)")
_READ = re.compile(r'^(?P<map>\w+)(?:\["(?P<key>[\w.]+)"\])? = (?P<value>.+)$')
_SYMPTOM = re.compile(
    r"(?<![\w.])(" + "|".join(re.escape(s.value) for s in SYMPTOMS if not s.value.isalpha()) + r")(?![\w.])"
)
_BY_NAME = {symptom.value: says for symptom, says in SYMPTOMS.items()}
_TRUTH = {"true": "", "false": "not as required: ", "unreadable": "cannot be told: "}


def plainly(text: str) -> str:
    """`text` with conditions as their numbers and symptoms in words."""
    return _SYMPTOM.sub(lambda found: f'"{_BY_NAME[found[1]]}"', _CONDITION.sub(_condition, text))


def _condition(found: re.Match[str]) -> str:
    reads = [_READ.match(part) for part in found[2].split(", ")]
    if None in reads:
        return found[0]
    known = [read for read in reads if read is not None]
    goals = {read["key"]: read["value"] for read in known if read["map"] == "goal"}
    measured = {read["key"] for read in known if read["map"] == "slo"}
    parts = [_number(read, goals) for read in known if not (read["map"] == "goal" and read["key"] in measured)]
    return _TRUTH[found[1]] + ", ".join(parts)


def _number(read: re.Match[str], goals: dict[str, str]) -> str:
    name, value = read["key"] or read["map"], read["value"]
    if value in {"true", "false"}:
        return name if value == "true" else f"not {name}"
    goal = goals.get(read["key"]) if read["map"] == "slo" else None
    return f"{name} {value} (goal {goal})" if goal is not None else f"{name} {value}"
