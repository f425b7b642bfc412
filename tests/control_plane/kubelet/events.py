"""Events that the kubelet records on pods: the same one again is counted, not written again."""

import queue
import threading
from collections.abc import Mapping
from typing import Any

from control_plane.kubelet.api import Api, ApiError
from control_plane.kubelet.times import stamp
from serving.clock import Clock


class Recorder(threading.Thread):
    """Writes events by a thread of its own, so that a slow API server holds nobody up. An event that is refused is lost."""

    def __init__(self, api: Api, clock: Clock) -> None:
        super().__init__(name="event-recorder", daemon=True)
        self._api, self._clock = api, clock
        self._waiting: queue.SimpleQueue[tuple[Mapping[str, Any], str, tuple[str, str, str]] | None] = queue.SimpleQueue()
        self._known: dict[tuple[str, ...], tuple[str, int]] = {}

    def record(self, pod: Mapping[str, Any], node: str, kind: str, reason: str, message: str) -> None:
        """Record an event of type `kind` (Normal or Warning) on `pod`."""
        self._waiting.put((pod["metadata"], node, (kind, reason, message[:1000])))

    def close(self) -> None:
        """Write what is waiting, then end."""
        self._waiting.put(None)
        self.join(10)

    def run(self) -> None:
        while (entry := self._waiting.get()) is not None:
            try:
                self._write(*entry)
            except ApiError:
                continue

    def _write(self, pod: Mapping[str, Any], node: str, what: tuple[str, str, str]) -> None:
        kind, reason, message = what
        path, key = f"/api/v1/namespaces/{pod['namespace']}/events", (pod["uid"], *what)
        now = stamp(self._clock.now())
        if key in self._known:
            name, count = self._known[key]
            self._known[key] = name, count + 1
            self._api.patch(f"{path}/{name}", {"count": count + 1, "lastTimestamp": now})
            return
        reference = {"apiVersion": "v1", "kind": "Pod", **{part: pod[part] for part in ("namespace", "name", "uid")}}
        event = {
            "metadata": {"generateName": f"{pod['name']}."},
            "involvedObject": reference,
            "source": {"component": "kubelet", "host": node},
            "reportingComponent": "kubelet",
            "reportingInstance": node,
            "type": kind,
            "reason": reason,
            "message": message,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        self._known[key] = self._api.post(path, event)["metadata"]["name"], 1
