"""The table of rights: what each family of actions needs in the API, for the chart, the manifests and the doctor."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from serving.kubernetes.rights import Rule
from serving.yaml_file import read_strict

TABLE = Path(__file__).with_name("rights.yaml")


class Family(BaseModel):
    """Actions that are allowed or forbidden together."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    says: str = Field(min_length=1, description="what its actions do, after `may`")
    verbs: tuple[str, ...] = Field(min_length=1, description="the warden's verbs in it")
    rules: tuple[Rule, ...] = Field(min_length=1, description="what they need")


class Rights(BaseModel):
    """All families by name, and what they share."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    shared: tuple[Rule, ...] = Field(description="needed as soon as any family is bound")
    families: Mapping[str, Family]

    @model_validator(mode="after")
    def _one_family_each(self) -> Self:
        seen: dict[str, str] = {}
        for name, family in self.families.items():
            for verb in family.verbs:
                if verb in seen:
                    raise ValueError(f"{verb} is in two families, {seen[verb]} and {name}")
                seen[verb] = name
        return self

    def families_of(self, verbs: Iterable[str]) -> dict[str, Family]:
        """The families that these verbs of the warden need; verbs that ask nothing of the API need none."""
        wanted = set(verbs)
        return {name: family for name, family in self.families.items() if wanted & set(family.verbs)}


def load_rights() -> Rights:
    """The shipped table. Raises FileError when it is damaged."""
    return read_strict(TABLE, Rights)
