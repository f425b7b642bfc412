"""A source in memory, for tests and rehearsals: it says what it was told to say."""

from collections.abc import Callable, Mapping

import numpy as np

from serving.fleet.entity import Entity, EntityKind
from serving.fleet.topology import Topology
from serving.telemetry.reading import Reading

Script = Callable[[Topology, float], Reading]


class ScriptedSource:
    """Answers each reading by calling `script(topology, now)`, until closed. The script is the test's own to change."""

    def __init__(self, script: Script, name: str = "scripted") -> None:
        self._entity = Entity(EntityKind.TELEMETRY, name)
        self.script = script
        self.readings = 0
        self.closed = False

    @property
    def entity(self) -> Entity:
        return self._entity

    def read(self, topology: Topology, now: float, deadline: float) -> Reading:  # noqa: ARG002 - memory is always in time
        nothing = np.full(len(topology.engines), np.nan)
        if self.closed:
            return Reading(self._entity, now, nothing, error="this source was closed")
        self.readings += 1
        try:
            return self.script(topology, now)
        except Exception as error:  # noqa: BLE001 - a port never raises, whatever its script does
            return Reading(self._entity, now, nothing, error=f"the script failed: {type(error).__name__}: {error}")

    def close(self) -> None:
        self.closed = True


def reading_of(
    entity: Entity,
    topology: Topology,
    now: float,
    by_engine: Mapping[str, Mapping[str, float]],
    *,
    sampled_at: float | None = None,
) -> Reading:
    """A reading in which each engine named in `by_engine` has the given scalar signals, sampled at `sampled_at` or `now`."""
    rows = len(topology.engines)
    names = {signal for signals in by_engine.values() for signal in signals}
    values = {name: np.full(rows, np.nan) for name in sorted(names)}
    taken = np.full(rows, np.nan)
    for engine, signals in by_engine.items():
        row = topology.row_of[engine]
        taken[row] = now if sampled_at is None else sampled_at
        for name, value in signals.items():
            values[name][row] = value
    return Reading(entity, now, taken, values)
