"""The catalogue of faults, read from catalogue.yaml: names, parameters, means, and what each looks like."""

import difflib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from serving.engines.specs import EngineKind
from serving.yaml_file import read_strict

Role = Literal["api", "core", "worker"]
Number = float


class FaultError(Exception):
    """A fault could not be made or undone; the message says why and what to do."""


class FaultUsageError(FaultError):
    """What was asked for does not exist or does not fit; the message lists what does."""


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Parameter(_Strict):
    """A number that a fault takes, within bounds (inclusive)."""

    default: Number
    minimum: Number
    maximum: Number
    meaning: str
    unit: str = ""

    @model_validator(mode="after")
    def _ordered(self) -> "Parameter":
        if not self.minimum <= self.default <= self.maximum:
            raise ValueError(f"the default {self.default} must lie between {self.minimum} and {self.maximum}")
        return self


class Way(_Strict):
    """By which means a fault is made; exactly one is given (see the head of catalogue.yaml)."""

    hold: Role | None = None
    kill: Role | None = None
    slices: Role | None = None
    collector: Literal[True] | None = None
    simulator: str | None = None
    load: str | None = None

    @model_validator(mode="after")
    def _one(self) -> "Way":
        if len(self._given()) != 1:
            raise ValueError("give exactly one of hold, kill, slices, collector, simulator, load")
        return self

    @property
    def means(self) -> str:
        """Which one it is."""
        return self._given()[0]

    def _given(self) -> list[str]:
        return [name for name in type(self).model_fields if getattr(self, name) is not None]


class Fault(_Strict):
    """One kind of fault. A load fault has the same `load` for every kind of engine, and for the front door.

    `kills`: the engine ends, and the undo starts it again if it is still down.
    """

    name: str = Field(pattern=r"^[a-z]+(-[a-z]+)*$")
    summary: str
    shows: str
    causes: tuple[str, ...]
    foreground: bool = False
    kills: bool = False
    parameters: dict[str, Parameter] = Field(default_factory=dict)
    ways: dict[EngineKind, Way] = Field(default_factory=dict)
    load: str | None = None

    @model_validator(mode="after")
    def _has_means(self) -> "Fault":
        if (self.load is None) == (not self.ways):
            raise ValueError("give either `ways` or `load`")
        return self

    def way(self, kind: EngineKind) -> Way:
        """How it is made on this kind of engine. Raises FaultUsageError when it does not apply."""
        if self.load is not None:
            return Way(load=self.load)
        if kind not in self.ways:
            raise FaultUsageError(f"{self.name} does not apply to {kind} engines; it applies to: {', '.join(self.ways)}")
        return self.ways[kind]

    def bind(self, given: Mapping[str, object]) -> dict[str, Number]:
        """The given parameters with the defaults filled in. Raises FaultUsageError naming parameter, value and bounds."""
        for name in given:
            if name not in self.parameters:
                known = ", ".join(self.parameters) or "none"
                raise FaultUsageError(f"{self.name} has no parameter {name!r}; its parameters: {known}")
        return {name: self._value(name, parameter, given.get(name)) for name, parameter in self.parameters.items()}

    def _value(self, name: str, parameter: Parameter, given: object) -> Number:
        if given is None:
            return parameter.default
        try:
            value = float(str(given))
        except ValueError:
            value = float("nan")
        if not parameter.minimum <= value <= parameter.maximum:
            unit = f" {parameter.unit}" if parameter.unit else ""
            raise FaultUsageError(
                f"{self.name}: {name} ({parameter.meaning}) must be a number from {parameter.minimum:g} to "
                f"{parameter.maximum:g}{unit}, not {given!r}"
            )
        return value


class _File(_Strict):
    faults: tuple[Fault, ...]

    @model_validator(mode="after")
    def _unique(self) -> "_File":
        names = [fault.name for fault in self.faults]
        if len(set(names)) < len(names):
            raise ValueError("every fault has its own name")
        return self


@cache
def catalogue() -> Mapping[str, Fault]:
    """Every fault by name, in the order of the file. Raises serving.yaml_file.FileError when the file is damaged."""
    file = read_strict(Path(__file__).with_name("catalogue.yaml"), _File)
    return MappingProxyType({fault.name: fault for fault in file.faults})


def fault_named(name: str) -> Fault:
    """The fault of this name. Raises FaultUsageError, listing all, when there is none."""
    known = catalogue()
    if name in known:
        return known[name]
    likely = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {likely[0]}? " if likely else ""
    raise FaultUsageError(f"there is no fault {name!r}; {hint}faults: {', '.join(known)}")
