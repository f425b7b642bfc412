"""Keeps one kind of objects up to date: list, then watch from there, for as long as the warden runs.

After a broken connection the watch goes on where it ended; nothing is listed anew. Only when the server has forgotten that
place (410) is everything listed again, which also tells what was deleted in the gap. Lists come in pages and are cut down
page by page, so that no more than a page of whole objects is ever in memory. A list without a version is the newest there
is (never that of an API server that lags behind), so the map never goes back in time.
https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes
"""

import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from random import Random
from typing import Any, Generic, Protocol, TypeVar

from serving.kubernetes.backoff import Backoff, BackoffPolicy
from serving.kubernetes.client import Page
from serving.kubernetes.cluster_error import GONE, NOT_FOUND, ClusterError
from serving.kubernetes.watch_stream import WatchEvent
from serving.kubernetes.watched import QUIET_S, Watched

Json = dict[str, Any]
T = TypeVar("T")

PAGE = 250
LIST_DEADLINE_S = 30.0
WATCH_S = 300  # and up to as much again by chance, as the server's own spread, so that watches do not end together
BREATH_S = 0.5  # between two watches, so that one which ends at once is not begun again in a tight loop
REFUSALS_UNTIL_LISTED = 5
ABSENT_S = 120.0  # how often a kind that the cluster lacks is looked for


class Events(Protocol):
    """A watch under way: serving.kubernetes.watch_stream.WatchStream."""

    def __iter__(self) -> Iterator[WatchEvent]:
        """The events, until the server ends the watch."""
        ...

    def close(self) -> None:
        """End the watch from any thread."""
        ...


class Reads(Protocol):
    """What a reflector asks: serving.kubernetes.client.ClusterClient."""

    def pages(
        self, path: str, query: Mapping[str, str], *, limit: int, metadata_only: bool, deadline_s: float | None
    ) -> Iterator[Page]:
        """A list, page by page."""
        ...

    def watch(
        self, path: str, version: str, query: Mapping[str, str], *, seconds: int, idle_s: float | None, metadata_only: bool
    ) -> AbstractContextManager[Events]:
        """A watch from `version` on."""
        ...


class Reflector(Generic[T]):
    """One kind's list and watch. `run` blocks until `stop`; `advance` is one round of it."""

    def __init__(self, client: Reads, watched: Watched[T], rng: Random, policy: BackoffPolicy | None = None) -> None:
        self._client = client
        self._watched = watched
        self._rng = rng
        self._backoff = Backoff(policy or BackoffPolicy(), rng)
        self._gone = Backoff(policy or BackoffPolicy(), rng)
        self._refusals = 0
        self._version = ""
        self._stream: Events | None = None
        self._stopped = threading.Event()
        self.lists = 0

    def run(self) -> None:
        """List and watch until stopped."""
        while not self._stopped.is_set():
            self._stopped.wait(self.advance())

    def stop(self) -> None:
        """End; a watch under way is cut off."""
        self._stopped.set()
        self.reconnect()

    def reconnect(self) -> None:
        """Cut off the watch under way, so that it is begun anew where it ended."""
        stream = self._stream
        if stream is not None:
            stream.close()

    def advance(self) -> float:
        """List if need be, and watch until that ends. Returns the seconds to wait before the next round. Never raises."""
        kind = self._watched.kind
        try:
            if not self._version:
                self._version = self._list()
            self._follow()
            self._refusals = 0
        except ClusterError as failed:
            return self._after(failed)
        except Exception as broken:  # noqa: BLE001 - an odd object must not end the sight of its kind for good
            self._version = ""
            self._watched.failed(f"{kind.name}: {type(broken).__name__}: {broken}")
            return self._backoff.after_failure()
        return self._rng.uniform(0.0, BREATH_S)

    def _after(self, failed: ClusterError) -> float:
        kind = self._watched.kind
        if failed.status == GONE:
            self._version = ""
            return self._gone.after_failure()
        if kind.optional and (failed.status == NOT_FOUND or failed.forbidden):
            self._version = ""
            self._watched.replace({})
            return ABSENT_S
        self._watched.failed(failed.says)
        self._refusals += failed.answered
        if failed.answered and self._refusals % REFUSALS_UNTIL_LISTED == 0:
            self._version = ""  # a server whose store was put back to an older state refuses our place for ever
        return self._backoff.after_failure(failed.retry_after)

    def _list(self) -> str:
        kind = self._watched.kind
        objects: dict[str, T] = {}
        version = ""
        self.lists += 1
        for page in self._client.pages(
            kind.path, kind.query, limit=PAGE, metadata_only=kind.metadata_only, deadline_s=LIST_DEADLINE_S
        ):
            for json in page.items:
                objects[_uid(json)] = kind.decode(json)
            version = page.version
        self._watched.replace(objects)
        self._backoff.reset()
        return version

    def _follow(self) -> None:
        kind = self._watched.kind
        seconds = int(self._rng.uniform(WATCH_S, 2 * WATCH_S))
        with self._client.watch(
            *(kind.path, self._version, kind.query),
            seconds=seconds,
            idle_s=QUIET_S,
            metadata_only=kind.metadata_only,
        ) as stream:
            self._stream = stream
            try:
                if self._stopped.is_set():
                    return
                self._watched.heard()
                self._backoff.reset()
                for event in stream:
                    self._take(event)
            finally:
                self._stream = None

    def _take(self, event: WatchEvent) -> None:
        if event.kind == "BOOKMARK":
            self._watched.heard()
        elif event.kind == "DELETED":  # with the object as it was last
            self._watched.remove(_uid(event.object))
        else:
            self._watched.put(_uid(event.object), self._watched.kind.decode(event.object))
        self._version = event.version or self._version
        self._gone.reset()


def _uid(json: Json) -> str:
    return str((json.get("metadata") or {}).get("uid", ""))
