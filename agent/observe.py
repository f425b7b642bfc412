"""Observe: ask every source of telemetry at once, with a deadline, and make one frozen Window of the answers."""

from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import numpy as np

from serving.fleet.topology import Topology
from serving.telemetry.reading import Reading, Source
from serving.telemetry.window import Window


class WindowKeeper(Protocol):
    """What remembers earlier readings: serving.telemetry.history.History."""

    def window(self, now: float, topology: Topology, readings: tuple[Reading, ...]) -> Window:
        """The window at `now`, after taking in `readings`."""
        ...


class Observer:
    """Reads all sources in parallel. A source that breaks its promise not to raise is itself reported as unreadable."""

    def __init__(self, sources: tuple[Source, ...], keeper: WindowKeeper, deadline: float) -> None:
        self._sources = sources
        self._keeper = keeper
        self._deadline = deadline
        self._threads = ThreadPoolExecutor(max_workers=max(1, len(sources)), thread_name_prefix="source")

    def observe(self, topology: Topology, now: float) -> Window:
        """One reading of every source, and the window that results."""
        asked = [self._threads.submit(self._read, source, topology, now) for source in self._sources]
        return self._keeper.window(now, topology, tuple(answer.result() for answer in asked))

    def close(self) -> None:
        """Stop the threads and close every source."""
        self._threads.shutdown(wait=True, cancel_futures=True)
        for source in self._sources:
            source.close()

    def _read(self, source: Source, topology: Topology, now: float) -> Reading:
        try:
            return source.read(topology, now, self._deadline)
        except Exception as error:  # noqa: BLE001 - one broken source must cost its own part only
            nothing = np.full(len(topology.engines), np.nan)
            return Reading(source.entity, now, nothing, error=f"{type(error).__name__}: {error}")
