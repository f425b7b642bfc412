"""The one place where a cluster's map is made: for the loop, which looks at it, and for the actuators, which act by it.

A map is made anew when something of it changed, not more often than every half second, and only of objects that are all
there. Until then, and while the cluster cannot be seen, the last map stands, with its doubts.
"""

import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

import structlog

from serving.clock import Clock
from serving.fleet.entity import Entity
from serving.fleet.kubernetes_entry import KubernetesEntry
from serving.fleet.topology import Topology
from serving.kubernetes.cluster_map import ClusterMap
from serving.kubernetes.mapping import Mapped, Objects, Surroundings, mapped
from serving.kubernetes.naming import Roster
from serving.kubernetes.node_notes import NodeNote
from serving.kubernetes.slots import SlotMemory

LEAST_S = 0.5


class Caches(Protocol):
    """What keeps the objects: serving.kubernetes.cluster_cache.ClusterCache."""

    @property
    def synced(self) -> bool:
        """Whether everything was read once."""
        ...

    @property
    def changes(self) -> int:
        """A number that grows with every change."""
        ...

    def objects(self) -> Objects:
        """All objects now."""
        ...

    def notes(self) -> Mapping[str, NodeNote]:
        """The Kubernetes events about nodes, by uid."""
        ...

    def doubts(self) -> Mapping[str, str]:
        """Why they cannot be decided upon, by kind of object."""
        ...


class ClusterView:
    """The current map of one fleet. May be asked from any thread."""

    def __init__(
        self, cache: Caches, entry: KubernetesEntry, around: Surroundings, memory: SlotMemory, clock: Clock
    ) -> None:
        self._cache = cache
        self._entry = entry
        self._around = around
        self._memory = memory
        self._clock = clock
        self._lock = threading.Lock()
        self._log = structlog.get_logger("fleetwarden.kubernetes")
        self._numbers: Mapping[str, int] = {}
        self._ours = False
        self._kept: Mapping[str, int] = {}
        self._changes = -1
        self._made_at = float("-inf")
        self._objects = Objects()
        self._made = Mapped(ClusterMap(Topology(())), Roster(()))

    @property
    def objects(self) -> Objects:
        """The objects that the last map was made of."""
        return self._objects

    @property
    def roster(self) -> Roster:
        """The engines of the last map, with their pods."""
        return self._made.roster

    def notes(self) -> Mapping[str, NodeNote]:
        """The Kubernetes events about nodes, by uid."""
        return self._cache.notes()

    def map(self) -> ClusterMap:
        """The fleet as it lies in the cluster now."""
        with self._lock:
            changes = self._cache.changes
            due = self._clock.monotonic() - self._made_at >= LEAST_S
            takes_over = self._memory.ours != self._ours  # and must keep the names before it does anything by them
            if self._cache.synced and (takes_over or (due and changes != self._changes)):
                self._make(changes)
            doubts = self._cache.doubts()
            if doubts != self._made.map.doubts:
                self._made = replace(self._made, map=replace(self._made.map, doubts=doubts))
            return self._made.map

    def topology(self) -> Topology:
        """The same as a graph. The same object as before while nothing of the map changed."""
        return self.map().topology

    def opted_out(self) -> frozenset[Entity]:
        """What a label or annotation tells to leave alone."""
        return self.map().opted_out

    def _make(self, changes: int) -> None:
        ours = self._memory.ours
        if not (ours and self._ours):  # others numbered the pods until now, and what they said of a pod holds
            self._kept = self._recalled()
            self._numbers = {**self._numbers, **self._kept}
        self._ours = ours
        self._objects = self._cache.objects()
        now = self._clock.now()
        self._made = mapped(self._objects, self._entry, self._around, self._numbers, now)
        self._numbers = self._made.roster.numbers
        self._changes, self._made_at = changes, self._clock.monotonic()
        if ours and self._numbers != self._kept:
            self._keep(self._numbers)

    def _recalled(self) -> Mapping[str, int]:
        try:
            return self._memory.load()
        except Exception as error:  # noqa: BLE001 - whatever its store raises; names begin anew then
            self._log.warning("the names of engines could not be read; slots are numbered anew", error=str(error))
            return {}

    def _keep(self, numbers: Mapping[str, int]) -> None:
        try:
            self._memory.keep(numbers)
        except Exception as error:  # noqa: BLE001 - tried again at the next change
            self._log.warning("the names of engines could not be kept; a restart may call some otherwise", error=str(error))
        else:
            self._kept = dict(numbers)
