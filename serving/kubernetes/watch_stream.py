"""The events of a watch, one JSON object a line.

https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes
"""

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import urllib3

from serving.kubernetes.cluster_error import ClusterError, refusal
from serving.kubernetes.transport import CHUNK, decoded, mapped

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One change: ADDED, MODIFIED, DELETED, or BOOKMARK, which only tells a newer `version`."""

    kind: str
    object: Json

    @property
    def version(self) -> str:
        """The resourceVersion to go on from."""
        return str(self.object.get("metadata", {}).get("resourceVersion", ""))


class WatchStream:
    """The events of one watch, in order; over when the server ends it, or when `close` is called from any thread."""

    def __init__(self, response: urllib3.BaseHTTPResponse, path: str) -> None:
        self._response = response
        self._path = path
        self._closed = threading.Event()

    def __iter__(self) -> Iterator[WatchEvent]:
        rest = b""
        while True:
            try:
                with mapped(f"watch {self._path}", sent=True):
                    part = self._response.read1(CHUNK)
            except ClusterError:
                if self._closed.is_set():
                    return
                raise
            if not part:
                return
            *lines, rest = (rest + part).split(b"\n")
            for line in filter(None, lines):
                yield self._event(line)

    def close(self) -> None:
        """End the watch; a thread that waits for its next event goes on at once."""
        self._closed.set()
        self._response.shutdown()

    def _event(self, line: bytes) -> WatchEvent:
        told = decoded(line)
        if not isinstance(told, dict) or not isinstance(told.get("object"), dict):
            raise ClusterError(0, "Broken", f"watch {self._path}: not an event: {line[:200]!r}")
        if told.get("type") == "ERROR":
            raise refusal(int(told["object"].get("code") or 500), told["object"])
        return WatchEvent(str(told.get("type")), told["object"])
