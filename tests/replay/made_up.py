"""Worlds made up of diagnoses: what is diagnosed when, without any telemetry, to see what a replay makes of it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agent.cli.runbook import shipped_verbs
from agent.decision.policy import Policy
from agent.diagnosis.diagnosis import Diagnosis
from agent.loop import Minds
from agent.replay.hands import Bystander
from agent.replay.play import Played, play
from agent.replay.rows import Row, rows
from agent.settings import WardenSettings
from agent.wiring import make_minds
from detectors.catalogue import Detection
from runbooks.runbook import Autonomy
from serving.clock import SystemClock
from serving.fleet.entity import Entity
from serving.fleet.topology import EngineFacts, Topology
from serving.telemetry.columns import SignalMatrix
from serving.telemetry.window import Window

BEGAN = 1_800_000_000.0
NOTHING = Detection((), ())


@dataclass(frozen=True)
class Ill:
    """A cause diagnosed on an engine from `begin` to `end`, in seconds since the beginning."""

    engine: str
    cause: str
    begin: float
    end: float
    score: float = 0.8
    enough: bool = True


@dataclass(frozen=True, eq=False)
class World:
    """A fleet that answers its scrapes all along, and what is diagnosed on it."""

    seconds: float
    ills: tuple[Ill, ...]
    engines: int = 8
    interval: float = 2.0

    @property
    def topology(self) -> Topology:
        return Topology([EngineFacts(f"e{number}", f"http://e{number}", "m") for number in range(self.engines)])

    @property
    def cadence(self) -> float:
        return self.interval

    @property
    def times(self) -> NDArray[np.float64]:
        return BEGAN + np.arange(0.0, self.seconds, self.interval)

    def windows(self, horizon: float) -> Iterator[Window]:  # noqa: ARG002 - the port's signature
        topology = self.topology
        for now in self.times:
            times = np.array([now - self.interval, now])
            up = SignalMatrix(np.ones((self.engines, 2)), np.tile(times, (self.engines, 1)))
            yield Window(float(now), topology, times, {"scrape.up": up})

    def diagnose(self, window: Window, _found: Detection, _repairs: frozenset[Entity]) -> tuple[Diagnosis, ...]:
        now = window.now - BEGAN
        return tuple(
            Diagnosis(ill.cause, Entity.engine(ill.engine), ill.score, BEGAN + ill.begin, (), enough=ill.enough)
            for ill in self.ills
            if ill.begin <= now <= ill.end
        )


def minds(world: World, **policy: object) -> Minds:
    """The shipped runbooks under a policy that allows everything, over the world's diagnoses."""
    settings = WardenSettings(policy=Policy(**{"autonomy": Autonomy.AUTO, **policy}))  # type: ignore[arg-type]
    shipped = make_minds(settings, None, Bystander(shipped_verbs()))
    return Minds(lambda _: NOTHING, world.diagnose, shipped.runbooks, shipped.policy)


def played(world: World, **policy: object) -> Played:
    """The replay of a world."""
    return play(world, minds(world, **policy), shipped_verbs(), horizon=60.0, measuring=SystemClock())


def rows_of(world: World, **policy: object) -> tuple[Row, ...]:
    """The incidents of a world."""
    return rows(played(world, **policy))


def verdicts(found: tuple[Row, ...]) -> Mapping[str, list[tuple[str, str]]]:
    """Verdict and reason of each row, by entity."""
    told: dict[str, list[tuple[str, str]]] = {}
    for row in found:
        told.setdefault(row.entity, []).append((row.verdict, row.reason))
    return told
