"""Durations and stores that the tests of elections share."""

from collections.abc import Callable

from elections import SharedRecord

from agent.election.machine import Record, Saw
from agent.election.store import RecordStore, StoreSilentError
from agent.election.timing import Timing

# As short as loaded machines allow; whole seconds are what a Lease can hold.
QUICK = Timing(lease=6, renew=4.2, retry=1.2, request=1.1)
MakeStore = Callable[[], RecordStore]


class MemoryStore:
    """Several of these share one record."""

    def __init__(self, shared: SharedRecord) -> None:
        self._shared = shared

    location = "memory"

    def read(self, seconds: float) -> Saw:  # noqa: ARG002 - it answers at once
        return self._shared.saw() if self._shared.record else Saw(None, "")

    def write(self, record: Record, version: str | None, seconds: float) -> str | None:  # noqa: ARG002 - same
        return self._shared.write(record, version)

    def close(self) -> None:
        """Nothing is held."""


class CutStore:
    """A store behind a network that can be cut."""

    def __init__(self, store: RecordStore) -> None:
        self._store = store
        self.cut = False
        self.location = store.location

    def read(self, seconds: float) -> Saw:
        self._check()
        return self._store.read(seconds)

    def write(self, record: Record, version: str | None, seconds: float) -> str | None:
        self._check()
        return self._store.write(record, version, seconds)

    def close(self) -> None:
        self._store.close()

    def _check(self) -> None:
        if self.cut:
            raise StoreSilentError("the network is cut")
