"""Which settings of vLLM to look at for a cause: settings.yaml, checked, each with its reason and source."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from agent.diagnosis.catalogue import Catalogue
from serving.yaml_file import FileError, load_file

DEFAULT = Path(__file__).with_name("settings.yaml")


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Setting(_Strict):
    """One flag or environment variable of vLLM, why to look at it, and where that is said."""

    setting: Annotated[str, Field(pattern=r"^(--[a-z0-9][a-z0-9-]*|VLLM_[A-Z0-9_]+)$")]
    look: Annotated[str, Field(min_length=10)]
    source: Annotated[str, Field(pattern=r"^(https://\S+|vllm/[a-z0-9_/]+\.py)$")]


class _SettingsFile(_Strict):
    causes: dict[str, tuple[Setting, ...]]


def load_settings_to_look_at(catalogue: Catalogue, path: Path | None = None) -> Mapping[str, tuple[Setting, ...]]:
    """The settings by cause. Raises FileError for every mistake, a cause that the catalogue does not know among them."""
    file = load_file(path or DEFAULT)
    causes = file.validated(_SettingsFile).causes
    strangers = sorted(set(causes) - catalogue.names)
    if strangers:
        raise FileError([file.problem(("causes", name), "is not a cause of the catalogue") for name in strangers])
    return causes
