"""The kubelet of several nodes in one process, and the faults that tests put into it."""

import signal
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from control_plane.access import ADMIN, KUBELET, Access
from control_plane.kubelet.addresses import Addresses
from control_plane.kubelet.api import Api, ApiError
from control_plane.kubelet.events import Recorder
from control_plane.kubelet.images import Images
from control_plane.kubelet.node import Node, NodeSpec
from control_plane.kubelet.placing import Pace, Placing
from control_plane.kubelet.pod import PodWorker
from control_plane.orphan_guard import OrphanGuard
from serving.clock import Clock, SystemClock

PODS = "/api/v1/pods"
BOUND = "spec.nodeName!="
AT_ONCE = {"gracePeriodSeconds": 0}


class ProcessKubelet:
    """Nodes and their pods. A context manager; leaving it kills all processes, and removes its nodes and their pods."""

    def __init__(
        self,
        access: Access,
        guard: OrphanGuard,
        directory: Path,
        *,
        pace: Pace | None = None,
        real_vllm: bool = False,
        clock: Clock | None = None,
    ) -> None:
        """`directory` gets the logs of pods: NAMESPACE_POD_UID/CONTAINER/RESTARTS.log."""
        self.clock = clock or SystemClock()
        self.pace = pace or Pace()
        self._api, self._admin = Api(access, KUBELET), Api(access, ADMIN)
        self._recorder = Recorder(self._api, self.clock)
        images = Images(directory, real_vllm)
        self._placing = Placing(directory, images, self.pace, guard, self.clock, self._recorder, access)
        self._addresses = Addresses()
        self._nodes: dict[str, Node] = {}
        self._workers: dict[str, PodWorker] = {}
        self._finished: set[str] = set()
        self._lock = threading.RLock()
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=work, name=work.__name__, daemon=True) for work in (self._watch, self._beat)
        ]

    def __enter__(self) -> Self:
        self._recorder.start()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(15)
        for name in list(self._nodes):
            with suppress(ApiError):
                self.remove_node(name)
        self._recorder.close()
        self._api.close()
        self._admin.close()

    def add_node(self, spec: NodeSpec) -> Node:
        """Register a node; its pods run from now on. Raises ApiError."""
        node = Node(spec, self._addresses.node(), self._api, self.clock)
        with self._lock:
            self._nodes[spec.name] = node
        node.register()
        return node

    def remove_node(self, name: str) -> None:
        """The machine is taken out of the cluster: its processes are killed, its pods and its node object removed."""
        with self._lock:
            del self._nodes[name]
            workers = [worker for worker in self._workers.values() if worker.node.name == name]
        for worker in workers:
            worker.over.set()
        for worker in workers:
            worker.join(15)
        for pod in self._admin.get(PODS, fieldSelector=f"spec.nodeName={name}")["items"]:
            metadata = pod["metadata"]
            with suppress(ApiError):
                self._admin.delete(f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}", AT_ONCE)
        with suppress(ApiError):
            self._admin.delete(f"/api/v1/nodes/{name}")

    def node(self, name: str) -> Node:
        """Raises KeyError."""
        return self._nodes[name]

    def worker(self, namespace: str, pod: str) -> PodWorker:
        """Raises KeyError when no such pod is on these nodes."""
        with self._lock:
            found = [worker for worker in self._workers.values() if worker.key == (namespace, pod)]
        if not found:
            raise KeyError(f"no pod {namespace}/{pod} runs here")
        return found[-1]

    def pid(self, namespace: str, pod: str) -> int:
        """The process of a pod's first container, for a test to break. Raises KeyError when there is none."""
        containers = self.worker(namespace, pod).containers
        if not containers or containers[0].pid is None or not containers[0].running:
            raise KeyError(f"pod {namespace}/{pod} has no process now")
        return containers[0].pid

    def lose(self, name: str, *, dead: bool) -> None:
        """The node falls silent: no lease, no status, nothing done for its pods. `dead`: its processes are killed too."""
        self._nodes[name].lost = True
        if dead:
            for worker in self._of(name):
                worker.signal(signal.SIGKILL)

    def come_back(self, name: str) -> None:
        """The node goes on; what was killed is started again, what was deleted meanwhile is taken away."""
        self._nodes[name].lost = False

    def make_black_hole(self, name: str, *, on: bool = True) -> None:
        """The node stays ready and rejects every pod that wants a GPU."""
        self._nodes[name].black_hole = on

    def break_gpus(self, name: str, gpus: frozenset[int]) -> None:
        """These GPUs, and only these, can no longer be allocated; pods that have them keep them."""
        self._nodes[name].unhealthy = gpus
        self._nodes[name].report()

    def set_condition(self, name: str, kind: str, status: str, reason: str = "", message: str = "") -> None:
        """Set a condition beyond the kubelet's own, as a node-problem-detector does."""
        node = self._nodes[name]
        node.conditions[kind] = {"status": status, "reason": reason, "message": message}
        node.report(force=True)

    def hold(self, namespace: str, pod: str) -> None:
        """The pod cannot end: once deleted, its processes stand still and nothing kills them, as if stuck in a driver."""
        self.worker(namespace, pod).held = True

    def release(self, namespace: str, pod: str) -> None:
        """Take `hold` back."""
        worker = self.worker(namespace, pod)
        worker.held = False
        worker.signal(signal.SIGCONT)

    def _of(self, node: str) -> list[PodWorker]:
        with self._lock:
            return [worker for worker in self._workers.values() if worker.node.name == node]

    def _watch(self) -> None:
        version = ""
        while not self._over.is_set():
            try:
                if not version:
                    version = self._list()
                for event in self._api.watch(PODS, version, fieldSelector=BOUND):
                    version = event["object"]["metadata"]["resourceVersion"]
                    if event["type"] != "BOOKMARK":
                        self._take(event["object"], gone=event["type"] == "DELETED")
                    if self._over.is_set():
                        break
            except ApiError as failed:
                if failed.status:  # the server has forgotten this version, or does not let us; a new list tells
                    version = ""
                self._over.wait(0.2)

    def _list(self) -> str:
        listed = self._api.get(PODS, fieldSelector=BOUND)
        for pod in listed["items"]:
            self._take(pod, gone=False)
        known = {pod["metadata"]["uid"] for pod in listed["items"]}
        with self._lock:
            missing = [worker for uid, worker in self._workers.items() if uid not in known]
        for worker in missing:
            worker.update(None)
        version: str = listed["metadata"]["resourceVersion"]
        return version

    def _take(self, pod: dict[str, Any], *, gone: bool) -> None:
        """Hand a pod's object to its worker, which is made for a pod that is new on one of our nodes."""
        uid = pod["metadata"]["uid"]
        with self._lock:
            self._forget_finished()
            worker = self._workers.get(uid)
            node = self._nodes.get(pod["spec"].get("nodeName", ""))
            if worker is None and node is not None and not gone and uid not in self._finished:
                worker = PodWorker(pod, node, self._api, self._addresses, self.clock, self._placing)
                self._workers[uid] = worker
                worker.start()
        if worker is not None:
            worker.update(None if gone else pod)

    def _forget_finished(self) -> None:
        for uid in [uid for uid, worker in self._workers.items() if worker.over.is_set()]:
            del self._workers[uid]
            self._finished.add(uid)

    def _beat(self) -> None:
        while not self._over.wait(self.pace.lease):
            with self._lock:
                nodes = list(self._nodes.values())
            for node in nodes:
                if not node.lost:
                    with suppress(ApiError):
                        node.renew()
                        node.report()
