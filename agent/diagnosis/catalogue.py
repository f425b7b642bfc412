"""The cause catalogue: read from causes.yaml, checked, and indexed by the symptoms that lead to each cause.

Does not belong here: scoring. A mistake in the file is told with its line; nothing is loaded from a wrong catalogue.
"""

from collections.abc import Iterator
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from detectors.finding import Symptom
from serving.fleet.entity import EntityKind
from serving.yaml_file import FileError, Problem, YamlFile, load_file

DEFAULT = Path(__file__).with_name("causes.yaml")

Share = Annotated[float, Field(ge=0, le=1)]
CauseName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_.]*$", max_length=64)]


class Way(StrEnum):
    """How an entity that shows a symptom stands to the entity of the cause."""

    SELF = "self"
    PEERS = "peers"
    NODE = "node"
    MEMBERS = "members"
    MODEL = "model"
    GPUS = "gpus"
    NODES = "nodes"
    REVISION = "revision"


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Clause(_Strict):
    """At least one of these symptoms, on the entities that lie `where`; on a `share` of them when it is above zero."""

    any: tuple[Symptom, ...] = Field(min_length=1)
    where: Way = Way.SELF
    share: Share = 0.0


class Cause(_Strict):
    """One form of a cause, on one kind of entity. The fields are explained at the head of causes.yaml."""

    cause: CauseName
    on: EntityKind
    says: str
    commonness: Share
    must: tuple[Clause, ...]
    usually: tuple[Symptom, ...] = ()
    may: dict[Way, tuple[Symptom, ...]] = Field(default_factory=dict)
    cannot: tuple[Symptom, ...] = ()
    told_by: tuple[str, ...] = ()
    look_alikes: tuple[str, ...] = ()
    probe: str | None = None
    incident: bool = True

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        own = {symptom for clause in self.must if clause.where is Way.SELF for symptom in clause.any}
        twice = own & set(self.cannot)
        if twice:
            raise ValueError(f"{self.cause} both must and cannot show {', '.join(sorted(twice))}")
        if self.incident and not self.must:
            raise ValueError(f"{self.cause} must show something, or it would be diagnosed everywhere")
        return self

    @cached_property
    def explained(self) -> dict[Way, frozenset[Symptom]]:
        """Every symptom that this cause accounts for, by where it may appear."""
        by_way: dict[Way, set[Symptom]] = {way: set(symptoms) for way, symptoms in self.may.items()}
        by_way.setdefault(Way.SELF, set()).update(self.usually)
        for clause in self.must:
            by_way.setdefault(clause.where, set()).update(clause.any)
        return {way: frozenset(symptoms) for way, symptoms in by_way.items()}


class Catalogue(_Strict):
    """All causes, in the order of the file."""

    causes: tuple[Cause, ...] = Field(min_length=1)

    def forms(self, cause: str) -> tuple[Cause, ...]:
        """The forms of one cause; empty when the catalogue does not know it."""
        return tuple(form for form in self.causes if form.cause == cause)

    @cached_property
    def names(self) -> frozenset[str]:
        """The causes that can become incidents."""
        return frozenset(form.cause for form in self.causes if form.incident)


def load_catalogue(path: Path | None = None) -> Catalogue:
    """Read the catalogue from `path`, or the shipped one. Raises serving.yaml_file.FileError with every mistake."""
    file = load_file(path or DEFAULT)
    catalogue = file.validated(Catalogue)
    problems = list(_problems(file, catalogue))
    if problems:
        raise FileError(problems)
    return catalogue


def _problems(file: YamlFile, catalogue: Catalogue) -> Iterator[Problem]:
    known = {form.cause for form in catalogue.causes}
    seen: set[tuple[str, EntityKind]] = set()
    for number, form in enumerate(catalogue.causes):
        if (form.cause, form.on) in seen:
            yield file.problem(("causes", number, "cause"), f"has two forms on {form.on}", form.cause)
        seen.add((form.cause, form.on))
        for other in sorted(set(form.look_alikes) - known):
            yield file.problem(("causes", number, "look_alikes"), "names a cause that the catalogue does not hold", other)
