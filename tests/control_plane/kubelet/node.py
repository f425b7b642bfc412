"""One node: its registration, its lease, its status, its GPUs, and what it lets in."""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from control_plane.kubelet.api import Api, ApiError
from control_plane.kubelet.times import micro_stamp, stamp
from serving.clock import Clock

GPU = "nvidia.com/gpu"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
LEASE_DURATION_S = 40  # nodeLeaseDurationSeconds of the real kubelet
CONFLICT = 409
# The kubelet's own conditions, with reasons and messages as in pkg/kubelet/nodestatus/setters.go.
OWN_CONDITIONS = (
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
)


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """A node as it registers. `taints` as the API has them."""

    name: str
    gpus: int = 8
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: Sequence[Mapping[str, str]] = ()
    cpu: str = "128"
    memory: str = "1Ti"
    pods: int = 110


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a pod was not let in, as its status says it."""

    reason: str
    message: str


class Node:
    """A registered node. Faults are switched by ProcessKubelet."""

    def __init__(self, spec: NodeSpec, address: str, api: Api, clock: Clock) -> None:
        self.spec, self.address = spec, address
        self.lost = False
        self.black_hole = False
        self.unhealthy: frozenset[int] = frozenset()
        self.conditions: dict[
            str, dict[str, str]
        ] = {}  # beyond the kubelet's own, as a node-problem-detector would set them
        self._api, self._clock = api, clock
        self._transitions: dict[str, tuple[str, str]] = {}
        self._given: dict[str, list[int]] = {}
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        return self.spec.name

    def register(self) -> None:
        """Make the node and its lease, or take over those that exist. Raises ApiError."""
        labels = {
            "kubernetes.io/hostname": self.name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
            **self.spec.labels,
        }
        body = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": self.name, "labels": labels},
            "spec": {"taints": list(self.spec.taints)},
            "status": self.status(),
        }
        made = _created(self._api, "/api/v1/nodes", body)
        self.report(force=True)
        owner = {
            "apiVersion": "v1",
            "kind": "Node",
            "name": self.name,
            "uid": (made or {"metadata": {}})["metadata"].get("uid"),
        }
        lease = {
            "metadata": {"name": self.name, "ownerReferences": [owner] if made else []},
            "spec": {"holderIdentity": self.name, "leaseDurationSeconds": LEASE_DURATION_S, **self._renewed()},
        }
        if _created(self._api, LEASES, lease) is None:
            self.renew()

    def renew(self) -> None:
        """Renew the lease: the sign of life that the node lifecycle controller looks for. Raises ApiError."""
        self._api.patch(f"{LEASES}/{self.name}", {"spec": self._renewed()})

    def report(self, *, force: bool = False) -> None:
        """Set the status where the API has another one, as after the node was thought to be lost. Raises ApiError."""
        path = f"/api/v1/nodes/{self.name}"
        wanted, known = self.status(), self._api.get(path)["status"] if not force else {}
        words = {one["type"]: one["status"] for one in known.get("conditions", ())}
        same = all(words.get(one["type"]) == one["status"] for one in wanted["conditions"])
        if not same or known.get("allocatable", {}).get(GPU) != wanted["allocatable"][GPU]:
            self._api.patch(f"{path}/status", {"status": wanted})

    def status(self) -> dict[str, Any]:
        """NodeStatus now. A GPU that is not healthy stays in the capacity and leaves what can be allocated."""
        spec, now = self.spec, stamp(self._clock.now())
        capacity = {"cpu": spec.cpu, "memory": spec.memory, "pods": str(spec.pods), GPU: str(spec.gpus)}
        conditions = [dict(zip(("type", "status", "reason", "message"), own, strict=True)) for own in OWN_CONDITIONS]
        conditions += [{"type": kind, **rest} for kind, rest in self.conditions.items()]
        return {
            "capacity": capacity,
            "allocatable": {**capacity, GPU: str(spec.gpus - len(self.unhealthy))},
            "conditions": [
                {**one, "lastHeartbeatTime": now, "lastTransitionTime": self._since(one, now)} for one in conditions
            ],
            "addresses": [{"type": "InternalIP", "address": self.address}, {"type": "Hostname", "address": spec.name}],
            "nodeInfo": {
                **dict.fromkeys(("machineID", "systemUUID", "bootID"), f"process-{spec.name}"),
                "kernelVersion": "process",
                "osImage": "process",
                "containerRuntimeVersion": "process://1",
                "kubeletVersion": "v1.36.3",
                "kubeProxyVersion": "",
                "operatingSystem": "linux",
                "architecture": "amd64",
            },
        }

    def admit(self, pod: Mapping[str, Any]) -> list[list[int]] | Rejection:
        """The GPUs for each container, or why the pod cannot be here.

        The words for a node whose devices all fail: devicesToAllocate in pkg/kubelet/cm/devicemanager/manager.go, wrapped by
        pkg/kubelet/cm/admission/errors.go; those for too little: pkg/kubelet/lifecycle/predicate.go.
        """
        containers = pod["spec"]["containers"]
        if pod["spec"].get("initContainers") or any("grpc" in _probes(container) for container in containers):
            return Rejection("Unsupported", "the process kubelet has neither init containers nor gRPC probes")
        wanted: list[int] = [int(((one.get("resources") or {}).get("limits") or {}).get(GPU, 0)) for one in containers]
        with self._lock:
            if self.black_hole and any(wanted):
                why = f"no healthy devices present; cannot allocate unhealthy devices {GPU}"
                return Rejection("UnexpectedAdmissionError", f"Allocate failed due to {why}, which is unexpected")
            used = {gpu for gpus in self._given.values() for gpu in gpus}
            free = [gpu for gpu in range(self.spec.gpus) if gpu not in used | self.unhealthy]
            if sum(wanted) > len(free):
                total = self.spec.gpus - len(self.unhealthy)
                numbers = f"requested: {sum(wanted)}, used: {len(used)}, capacity: {total}"
                return Rejection(f"OutOf{GPU}", f"Node didn't have enough resource: {GPU}, {numbers}")
            self._given[pod["metadata"]["uid"]] = free[: sum(wanted)]
        return [[free.pop(0) for _ in range(count)] for count in wanted]

    def give_back(self, uid: str) -> None:
        """The pod is gone from this node, and its GPUs are free."""
        with self._lock:
            self._given.pop(uid, None)

    def _since(self, condition: Mapping[str, str], now: str) -> str:
        """Since when the condition has its status, as far as this kubelet set it."""
        before = self._transitions.get(condition["type"])
        if before is None or before[0] != condition["status"]:
            before = self._transitions[condition["type"]] = condition["status"], now
        return before[1]

    def _renewed(self) -> dict[str, str]:
        return {"renewTime": micro_stamp(self._clock.now())}


def _created(api: Api, path: str, body: Mapping[str, Any]) -> dict[str, Any] | None:
    """What was made, None when it exists already."""
    try:
        return api.post(path, body)
    except ApiError as refused:
        if refused.status != CONFLICT:
            raise
        return None


def _probes(container: Mapping[str, Any]) -> set[str]:
    """The ways in which the container is probed."""
    return {way for kind in ("startup", "readiness", "liveness") for way in container.get(f"{kind}Probe") or ()}
