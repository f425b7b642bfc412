"""The port of what all candidates share: one record that is read, and written only over a version that was read.

Errors: StoreSilentError - no answer, or none that helps. A write may have gone through all the same.
"""

from typing import Protocol

from agent.election.machine import Record, Saw


class StoreSilentError(Exception):
    """The store gave no answer, or none that helps; the message says what to do, without secrets."""


class RecordStore(Protocol):
    """Where the record of one cell lies. Every call ends within the time it is given, or a little later."""

    @property
    def location(self) -> str:
        """Where it is, for messages."""
        ...

    def read(self, seconds: float) -> Saw:
        """The record as it is now: never an older one than was read or written before by anybody."""
        ...

    def write(self, record: Record, version: str | None, seconds: float) -> str | None:
        """Write over `version`, None: where there is none yet. The new version; None when the record had changed."""
        ...

    def close(self) -> None:
        """Let go of connections."""
        ...
