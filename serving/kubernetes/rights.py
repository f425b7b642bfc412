"""Rights in the API of Kubernetes as RBAC writes them, and what the warden reads and owns there (reads.yaml)."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from serving.yaml_file import read_strict

TABLE = Path(__file__).with_name("reads.yaml")


class Scope(StrEnum):
    """Cluster: objects in no namespace, or in any. Namespaces: those in which the fleet lies."""

    CLUSTER = "cluster"
    NAMESPACES = "namespaces"


class Rule(BaseModel):
    """One rule of a Role, with the names that RBAC gives its fields, and where it must hold."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    apiGroups: tuple[str, ...] = Field(min_length=1, description="groups of the API; empty text: the core group")  # noqa: N815
    resources: tuple[str, ...] = Field(min_length=1, description="plural names, with /subresource where one is meant")
    verbs: tuple[str, ...] = Field(min_length=1, description="verbs of the API")
    scope: Scope = Field(description="where the objects lie")

    @property
    def rights(self) -> "Iterator[Right]":
        """Every single right of the rule."""
        for group in self.apiGroups:
            for resource in self.resources:
                for one in self.verbs:
                    yield Right(one, group, resource, self.scope)


@dataclass(frozen=True, slots=True, order=True)
class Right:
    """One verb on one resource, as in `get pods`."""

    verb: str
    group: str
    resource: str
    scope: Scope

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}{f'.{self.group}' if self.group else ''}"


class BaseRights(BaseModel):
    """What a warden needs in a cluster whatever it may change."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    read: tuple[Rule, ...] = Field(min_length=1, description="what it looks at")
    own: tuple[Rule, ...] = Field(min_length=1, description="what it keeps in its own namespace")


def load_base_rights() -> BaseRights:
    """The shipped table. Raises FileError when it is damaged."""
    return read_strict(TABLE, BaseRights)
