"""What one watch has brought: the objects of one kind as they are now, and how far that can be trusted."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from serving.clock import Clock
from serving.kubernetes.cluster_map import nothing

Json = dict[str, Any]
T = TypeVar("T")

QUIET_S = 90.0  # a watch with bookmarks says something about once a minute
TRUSTED_S = 15.0  # for so long after contact is lost, what was known is still good enough to decide on


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """A kind of objects to watch. `decode` cuts an object down; `key` is what tells objects apart for as long as they live.

    `optional`: a cluster may lack it, and so may our rights; then there are none. `metadata_only`: nothing else is sent.
    """

    name: str
    path: str
    decode: Callable[[Json], T]
    query: Mapping[str, str] = field(default_factory=nothing)
    metadata_only: bool = False
    optional: bool = False


class Watched(Generic[T]):
    """The objects of one kind by uid. One thread writes; any may read."""

    def __init__(self, kind: Kind[T], clock: Clock) -> None:
        self.kind = kind
        self._clock = clock
        self._lock = threading.Lock()
        self._objects: dict[str, T] = {}
        self._changes = 0
        self._synced = False
        self._heard = clock.monotonic()
        self._failing_since: float | None = None
        self._error = ""

    @property
    def changes(self) -> int:
        """A number that grows whenever an object changed in what is kept of it."""
        return self._changes

    @property
    def synced(self) -> bool:
        """Whether all objects were listed once."""
        return self._synced

    def snapshot(self) -> dict[str, T]:
        """All objects now."""
        with self._lock:
            return dict(self._objects)

    def replace(self, objects: dict[str, T]) -> None:
        """Take a whole list. What is not in it is gone, whether its end was seen or not."""
        with self._lock:
            if not self._synced or objects != self._objects:
                self._objects = objects
                self._changes += 1
            self._synced = True
        self.heard()

    def put(self, uid: str, one: T) -> None:
        """Take one object as it is now."""
        with self._lock:
            if self._objects.get(uid) != one:
                self._objects[uid] = one
                self._changes += 1
        self.heard()

    def remove(self, uid: str) -> None:
        """One object is gone."""
        with self._lock:
            if self._objects.pop(uid, None) is not None:
                self._changes += 1
        self.heard()

    def heard(self) -> None:
        """The server said something: what is here is as new as that."""
        self._heard = self._clock.monotonic()
        self._failing_since, self._error = None, ""

    def failed(self, error: str) -> None:
        """A list or a watch did not work."""
        self._error = error
        if self._failing_since is None:
            self._failing_since = self._clock.monotonic()

    def staleness(self) -> float:
        """Seconds by which the objects may be behind the cluster: since contact was lost; 0 while the watch stands."""
        now = self._clock.monotonic()
        if self._failing_since is not None:
            return now - self._heard
        return max(0.0, now - self._heard - QUIET_S)

    def doubt(self) -> str:
        """Why the objects cannot be decided upon now; empty where they can."""
        if not self._synced:
            return f"the {self.kind.name} have not been read yet{f': {self._error}' if self._error else ''}"
        stale = self.staleness()
        if stale <= TRUSTED_S:
            return ""
        why = self._error or "the watch says nothing any more"
        return f"what is known of {self.kind.name} is {stale:.0f} s old: {why}"
