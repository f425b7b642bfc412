"""One pod on its node: let in, run, reported, and taken away.

Each pod has a worker of its own, as in pkg/kubelet/pod_workers.go. A pod that is deleted is stopped within its grace, its
last status is reported, and only then its object is removed from the API, on the condition that it is still the same one
(pkg/kubelet/status/status_manager.go).
"""

import contextlib
import os
import signal
import threading
from collections.abc import Mapping
from typing import Any

from control_plane.kubelet.addresses import Addresses
from control_plane.kubelet.api import Api, ApiError
from control_plane.kubelet.container import Container
from control_plane.kubelet.credentials import credentials
from control_plane.kubelet.images import PROCESS
from control_plane.kubelet.node import Node, Rejection
from control_plane.kubelet.placing import Placing
from control_plane.kubelet.status import conditions, phase
from control_plane.kubelet.times import stamp
from serving.clock import Clock

NOT_THIS_ONE = (404, 409)  # gone, or another one of the same name
RETRY_S = 0.5
Json = dict[str, Any]


class PodWorker(threading.Thread):
    """Brings one pod to what its object says, until it is gone. `place` makes the pod's context once it has an address."""

    def __init__(self, pod: Json, node: Node, api: Api, addresses: Addresses, clock: Clock, place: Placing) -> None:
        super().__init__(name=f"pod-{pod['metadata']['name']}", daemon=True)
        self.pod = pod
        self.node = node
        self.containers: list[Container] = []
        self.held = False
        self.gone = False
        self.over = threading.Event()
        self._api, self._addresses, self._clock, self._placing = api, addresses, clock, place
        self._wake = threading.Event()
        self._address = ""
        self._rejection: Rejection | None = None
        self._admitted_at = 0.0
        self._conditions: list[Json] = []
        self._reported: Json = {}
        self._again_at = 0.0

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        return self.pod["metadata"]["namespace"], self.pod["metadata"]["name"]

    def update(self, pod: Json | None) -> None:
        """The object as it is now, None when it is gone from the API."""
        if pod is None:
            self.gone = True
        else:
            self.pod = pod
        self._wake.set()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to all processes of the pod."""
        for container in self.containers:
            if container.running and container.pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(container.pid, number)

    def run(self) -> None:
        while not self.over.is_set():
            if not self.node.lost and self._step():
                break
            self._wake.wait(self._placing.pace.tick)
            self._wake.clear()
        self.signal(signal.SIGKILL)
        for container in self.containers:
            container.abandon()
        if self._address not in {"", self.node.address}:
            self._addresses.give_back(self._address)
        self.node.give_back(self.pod["metadata"]["uid"])
        self.over.set()

    def _step(self) -> bool:
        """One look; True when nothing is left to do."""
        ending = self.gone or "deletionTimestamp" in self.pod["metadata"]
        if not self._admitted_at and not ending:
            self._admit()
        if ending and not self.held:
            grace = self._grace()
            for container in self.containers:
                container.stop(grace, f"Stopping container {container.name}", for_good=True)
        elif ending:
            self.signal(signal.SIGSTOP)
        for container in self.containers:
            container.step()
        alive = any(container.running for container in self.containers)
        if self.gone:
            return not alive
        reported = self._report(self._status(over=ending and not alive))
        return ending and not alive and reported and self._remove()

    def _admit(self) -> None:
        self._admitted_at = self._clock.now()
        admitted = self.node.admit(self.pod)
        if isinstance(admitted, Rejection):
            self._rejection = admitted
            self._placing.event(self.pod, self.node, "Warning", admitted.reason, admitted.message)
            return
        specs = self.pod["spec"]["containers"]
        ports = [port["containerPort"] for spec in specs for port in spec.get("ports") or ()]
        on_host = self.pod["spec"].get("hostNetwork")
        self._address = self.node.address if on_host else self._addresses.pod(self.node.address, ports)
        context = self._placing.context(self.pod, self.node, self._address)
        needs_token = any(spec["image"].startswith(PROCESS) for spec in specs)
        extra = credentials(self.pod, context.directory, self._api, self._placing.access) if needs_token else {}
        self.containers = [
            Container(spec, self.pod, context, gpus, extra) for spec, gpus in zip(specs, admitted, strict=True)
        ]

    def _grace(self) -> float:
        """At least a second, whatever was asked for (calculateEffectiveGracePeriod in pkg/kubelet/pod_workers.go)."""
        asked = self.pod["metadata"].get("deletionGracePeriodSeconds")
        usual = self.pod["spec"].get("terminationGracePeriodSeconds", 30)
        return max(1.0, float(usual if asked is None else asked))

    def _status(self, *, over: bool) -> Json:
        if self._rejection is not None:
            message = f"Pod was rejected: {self._rejection.message}"
            return {"phase": "Failed", "reason": self._rejection.reason, "message": message, "startTime": self._since()}
        statuses = [container.status() for container in self.containers]
        current = phase(statuses, self.pod["spec"].get("restartPolicy", "Always"), over=over)
        now = self._clock.now()
        self._conditions = conditions(
            self.pod, statuses, self._conditions, current, now, has_address=bool(self._address) and not over
        )
        return {
            "phase": current,
            "conditions": [dict(condition) for condition in self._conditions],
            "startTime": self._since(),
            "hostIP": self.node.address,
            "hostIPs": [{"ip": self.node.address}],
            **({"podIP": self._address, "podIPs": [{"ip": self._address}]} if self._address else {}),
            "containerStatuses": statuses,
        }

    def _since(self) -> str:
        return stamp(self._admitted_at or self._clock.now())

    def _report(self, status: Json) -> bool:
        """Whether the API has this status."""
        if status == self._reported:
            return True
        if self._clock.monotonic() < self._again_at:
            return False
        return self._asked(lambda: self._api.patch(f"{self._path()}/status", self._own({"status": status})), status)

    def _remove(self) -> bool:
        """Whether the object is gone."""
        condition = {"gracePeriodSeconds": 0, "preconditions": {"uid": self.pod["metadata"]["uid"]}}
        return self._clock.monotonic() >= self._again_at and self._asked(lambda: self._api.delete(self._path(), condition))

    def _asked(self, ask: Any, status: Json | None = None) -> bool:
        try:
            ask()
        except ApiError as failed:
            if failed.status in NOT_THIS_ONE:
                self.gone = True
            self._again_at = self._clock.monotonic() + RETRY_S
            return self.gone
        self._reported = status if status is not None else self._reported
        return True

    def _path(self) -> str:
        namespace, name = self.key
        return f"/api/v1/namespaces/{namespace}/pods/{name}"

    def _own(self, body: Mapping[str, Any]) -> Json:
        """The body, for this very pod and no other of its name."""
        return {"metadata": {"uid": self.pod["metadata"]["uid"]}, **body}
