"""Whether the API server answers at all: one small question every few seconds.

A network that swallows packets ends no watch; without this it would take a minute and a half to notice.
"""

import threading
from collections.abc import Callable
from typing import Protocol

from serving.clock import Clock
from serving.kubernetes.cluster_error import ClusterError
from serving.kubernetes.watched import TRUSTED_S

EVERY_S = 5.0
DEADLINE_S = 3.0
VERSION = "/version"


class Pulse:
    """Asks until stopped. `returned` is called when the server answers again after it did not."""

    def __init__(self, ask: "Asks", clock: Clock, returned: Callable[[], None]) -> None:
        self._client = ask
        self._clock = clock
        self._returned = returned
        self._answered = clock.monotonic()
        self._error = ""
        self._stopped = threading.Event()

    def run(self) -> None:
        """Ask every few seconds until stopped."""
        while not self._stopped.wait(EVERY_S):
            self.beat()

    def stop(self) -> None:
        """Ask no more."""
        self._stopped.set()

    def beat(self) -> None:
        """Ask once. An answer with an error is an answer: the server is there."""
        try:
            self._client.get(VERSION, deadline_s=DEADLINE_S)
        except ClusterError as failed:
            if not failed.answered or failed.status >= 500:  # noqa: PLR2004 - the server's own failure
                self._error = failed.says
                return
        self._answered = self._clock.monotonic()
        if self._error:
            self._error = ""
            self._returned()

    def silence(self) -> float:
        """Seconds since the last answer."""
        return self._clock.monotonic() - self._answered

    def doubt(self) -> str:
        """Why the server cannot be relied on now; empty where it can."""
        silent = self.silence()
        return f"the API server has not answered for {silent:.0f} s: {self._error}" if silent > TRUSTED_S else ""


class Asks(Protocol):
    """What a pulse asks with: serving.kubernetes.client.ClusterClient."""

    def get(self, path: str, *, deadline_s: float | None) -> object:
        """One object."""
        ...
