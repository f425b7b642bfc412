"""Faults that a simulated engine can be given, each with its parameters and its undo."""

import asyncio
import os
import signal
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from serving.simulator.driver import EngineDriver
from serving.simulator.timing import Stalls

ENGINE_DIED = 1
"""Exit status of an API process whose engine died, as vLLM's."""


class FaultError(Exception):
    """A fault that cannot be had: unknown, badly parametrised, or past undoing."""

    def __init__(self, message: str, *, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


class Fault(BaseModel, ABC):
    """One kind of fault; its fields are its parameters."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    kind: ClassVar[str]
    help: ClassVar[str]

    @abstractmethod
    def apply(self, driver: EngineDriver) -> None:
        """Make it happen."""


class ReversibleFault(Fault):
    """A fault that the engine survives."""

    @abstractmethod
    def undo(self, driver: EngineDriver) -> None:
        """Make it stop."""


class EngineHang(ReversibleFault):
    """The engine core stands still; HTTP goes on."""

    kind = "engine-hang"
    help = "the engine core stands still while HTTP goes on answering"

    def apply(self, driver: EngineDriver) -> None:
        with driver.changing() as now:
            driver.engine.halt(self.kind, now)

    def undo(self, driver: EngineDriver) -> None:
        with driver.changing() as now:
            driver.engine.release(self.kind, now)


class WorkerHang(EngineHang):
    """The worker stands still, and the core with it, waiting for an answer."""

    kind = "worker-hang"
    help = "the worker stands still and the engine core waits for it, while HTTP goes on answering"


class SlowWorker(ReversibleFault):
    """Every step takes longer."""

    kind = "slow-worker"
    help = "every step takes `factor` times as long"

    factor: float = Field(default=3.0, ge=1, le=1000)

    def apply(self, driver: EngineDriver) -> None:
        driver.engine.slowdown = self.factor

    def undo(self, driver: EngineDriver) -> None:
        driver.engine.slowdown = 1.0


class GcStall(ReversibleFault):
    """All requests of the engine pause together, regularly."""

    kind = "gc-stall"
    help = "all requests pause together for `pause_s` seconds every `every_s` seconds"

    pause_s: float = Field(default=1.0, gt=0, le=600)
    every_s: float = Field(default=3.0, gt=0, le=3600)

    @model_validator(mode="after")
    def _leaves_room(self) -> Self:
        if self.pause_s >= self.every_s:
            raise ValueError(f"pause_s ({self.pause_s}) must be shorter than every_s ({self.every_s})")
        return self

    def apply(self, driver: EngineDriver) -> None:
        driver.engine.stalls = Stalls(driver.clock.monotonic(), self.pause_s, self.every_s)

    def undo(self, driver: EngineDriver) -> None:
        driver.engine.stalls = None


class ApiHang(ReversibleFault):
    """The API process stands still; the port takes connections, the core goes on with what it has."""

    kind = "api-hang"
    help = "HTTP answers nothing, /metrics included, while the port accepts and the engine core goes on"

    def apply(self, driver: EngineDriver) -> None:
        driver.set_answering(answering=False)

    def undo(self, driver: EngineDriver) -> None:
        driver.set_answering(answering=True)


class KvShrink(ReversibleFault):
    """Some KV blocks are gone."""

    kind = "kv-shrink"
    help = "only `blocks` KV blocks are left"

    blocks: int = Field(ge=1, le=10_000_000)

    def apply(self, driver: EngineDriver) -> None:
        with driver.changing() as now:
            driver.engine.resize(min(self.blocks, driver.engine.shape.usable_blocks), now)

    def undo(self, driver: EngineDriver) -> None:
        with driver.changing() as now:
            driver.engine.resize(driver.engine.shape.usable_blocks, now)


class EngineKill(Fault):
    """The engine core dies: everybody in flight gets an error, and the API process follows."""

    kind = "engine-kill"
    help = "the engine core dies; requests in flight fail, and the API process exits after `after_s` seconds"

    after_s: float = Field(default=0.5, ge=0, le=60)

    def apply(self, driver: EngineDriver) -> None:
        driver.die()
        asyncio.get_running_loop().call_later(self.after_s, os._exit, ENGINE_DIED)


class WorkerKill(EngineKill):
    """The worker dies, and the core with it."""

    kind = "worker-kill"
    help = "the worker dies and the engine core with it; the API process exits after `after_s` seconds"


class ApiKill(Fault):
    """The API process is killed."""

    kind = "api-kill"
    help = "the API process is killed (SIGKILL) after `after_s` seconds"

    after_s: float = Field(default=0.2, ge=0, le=60)

    def apply(self, driver: EngineDriver) -> None:  # noqa: ARG002 - nothing of the engine is asked
        asyncio.get_running_loop().call_later(self.after_s, os.kill, os.getpid(), signal.SIGKILL)


KINDS: dict[str, type[Fault]] = {
    each.kind: each
    for each in (EngineHang, WorkerHang, SlowWorker, GcStall, ApiHang, KvShrink, EngineKill, WorkerKill, ApiKill)
}


@dataclass(frozen=True, slots=True)
class Active:
    """A fault at work since `since` (Unix seconds)."""

    fault: Fault
    since: float

    def describe(self) -> dict[str, object]:
        """As told over HTTP."""
        return {"fault": self.fault.kind, "since": self.since, **self.fault.model_dump()}


class FaultBoard:
    """The faults at work in one engine. Giving one again replaces its parameters; clearing what is not there is fine."""

    def __init__(self, driver: EngineDriver) -> None:
        self._driver = driver
        self._active: dict[str, Active] = {}

    def inject(self, given: object) -> Active:
        """Make the fault that `given` describes happen: an object with `fault`, its kind, and its parameters."""
        if not isinstance(given, dict):
            raise FaultError('a fault is a JSON object such as {"fault": "slow-worker", "factor": 3}')
        kind = self._kind(given.get("fault"))
        try:
            fault = kind.model_validate({key: value for key, value in given.items() if key != "fault"})
        except ValidationError as error:
            problems = "; ".join(_problem(each["loc"], each["msg"]) for each in error.errors(include_url=False))
            raise FaultError(f"{kind.kind}: {problems}") from error
        fault.apply(self._driver)
        active = Active(fault, self._driver.clock.now())
        self._active[kind.kind] = active
        return active

    def clear(self, name: str) -> bool:
        """Undo a fault. False where it was not at work."""
        kind = self._kind(name)
        active = self._active.get(kind.kind)
        if active is None:
            return False
        if not isinstance(active.fault, ReversibleFault):
            raise FaultError(f"{name} cannot be undone: the process is about to end; start the engine anew", status=409)
        active.fault.undo(self._driver)
        del self._active[kind.kind]
        return True

    def active(self) -> list[Active]:
        """The faults at work, oldest first."""
        return list(self._active.values())

    @staticmethod
    def _kind(name: object) -> type[Fault]:
        kind = KINDS.get(name) if isinstance(name, str) else None
        if kind is None:
            raise FaultError(f"no fault is called {name!r}; a simulated engine knows {', '.join(sorted(KINDS))}")
        return kind


def _problem(place: tuple[int | str, ...], message: str) -> str:
    where = ".".join(map(str, place))
    return f"{where}: {message}" if where else message
