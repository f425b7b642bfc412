"""One line of an examination. The keys of `Check` are those of `doctor --json`, and stay stable."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Any

from pydantic import Field

from agent.explanation import Row
from serving.yaml_file import FileError


class State(StrEnum):
    """Ok, something to know, or something that keeps the warden from doing its work."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


class Check(Row):
    """What was checked (`check`, such as engine.clock) of what (`subject`), how it came out, and what to do.

    `todo` is empty where nothing is to be done. `details` holds numbers and lists for programs.
    """

    check: str
    subject: str
    state: State
    says: str
    todo: str = ""
    details: dict[str, Any] = Field(default_factory=dict)


class Examination(Row):
    """All checks, in the order in which they should be read."""

    at: float
    checks: list[Check]
    problems: int
    warnings: int
    exit_code: int


def ok(check: str, subject: str, says: str, **details: Any) -> Check:
    """A check that came out well."""
    return Check(check=check, subject=subject, state=State.OK, says=says, details=details)


def warning(check: str, subject: str, says: str, todo: str = "", **details: Any) -> Check:
    """A check that found something to know."""
    return Check(check=check, subject=subject, state=State.WARNING, says=says, todo=todo, details=details)


def problem(check: str, subject: str, says: str, todo: str, **details: Any) -> Check:
    """A check that found something that keeps the warden from its work."""
    return Check(check=check, subject=subject, state=State.PROBLEM, says=says, todo=todo, details=details)


def examination(at: float, checks: Iterable[Check]) -> Examination:
    """The checks with their sums; exit code 1 with a problem among them, 0 without."""
    rows = list(checks)
    problems = sum(row.state is State.PROBLEM for row in rows)
    warnings = sum(row.state is State.WARNING for row in rows)
    return Examination(at=at, checks=rows, problems=problems, warnings=warnings, exit_code=1 if problems else 0)


def unreadable(at: float, refused: FileError) -> Examination:
    """The examination that ends before it begins, as the configuration cannot be read: exit code 2."""
    todo = "correct the line that is named"
    rows = [
        problem("own.configuration", one.file, str(one), todo, line=one.line, field=one.field) for one in refused.problems
    ]
    return Examination(at=at, checks=rows, problems=len(rows), warnings=0, exit_code=2)
