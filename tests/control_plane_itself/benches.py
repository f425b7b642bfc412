"""What tests of the kubelet do with a cluster, and short manifests."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from control_plane.kubelet.kubelet import ProcessKubelet
from control_plane.manifests import vllm_container
from control_plane.server import ControlPlane
from control_plane.waiting import until
from kubernetes import client

SLEEPER = "import time\nwhile True: time.sleep(60)"
# Ends by itself 1.2 s after SIGTERM, and says so with its exit code.
SLOW_TO_END = (
    "import signal, sys, time\nsignal.signal(15, lambda *_: (time.sleep(1.2), sys.exit(7)))\nwhile True: time.sleep(60)"
)
DEAF = "import signal, time\nsignal.signal(15, signal.SIG_IGN)\nwhile True: time.sleep(60)"
Json = dict[str, Any]


@dataclass
class Bench:
    """One test's nodes and namespace."""

    plane: ControlPlane
    kubelet: ProcessKubelet
    namespace: str

    def __post_init__(self) -> None:
        self.core = client.CoreV1Api(self.plane.api_client())
        self.apps = client.AppsV1Api(self.plane.api_client())
        self.policy = client.PolicyV1Api(self.plane.api_client())

    def start(self, name: str, script: str = SLEEPER, pod: Mapping[str, Any] | None = None, **container: Any) -> None:
        """Make a pod that runs a Python script; `pod` are further fields of its spec."""
        body = {"metadata": {"name": name, "labels": {"app": name}}, "spec": pod_spec(script, pod, **container)}
        self.core.create_namespaced_pod(self.namespace, body)

    def deploy(self, name: str, replicas: int, spec: Mapping[str, Any]) -> None:
        labels = {"app": name}
        template = {"metadata": {"labels": labels}, "spec": spec}
        deployment = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
        self.apps.create_namespaced_deployment(self.namespace, {"metadata": {"name": name}, "spec": deployment})

    def pods(self, name: str) -> list[client.V1Pod]:
        found: list[client.V1Pod] = self.core.list_namespaced_pod(self.namespace, label_selector=f"app={name}").items
        return found

    def pod(self, name: str) -> client.V1Pod:
        return self.core.read_namespaced_pod(name, self.namespace)

    def state(self, name: str) -> client.V1ContainerState:
        """The state of the pod's only container; empty before the kubelet has told of it."""
        statuses = self.pod(name).status.container_statuses
        return statuses[0].state if statuses else client.V1ContainerState()

    def until_ready(self, name: str, count: int = 1, seconds: float = 30.0) -> list[client.V1Pod]:
        until(lambda: sum(map(ready, self.pods(name))) == count, seconds, lambda: f"{name} ready: {self.told(name)}")
        return self.pods(name)

    def until_gone(self, name: str, seconds: float = 30.0) -> None:
        until(lambda: not self.pods(name), seconds, lambda: f"{name} gone: {self.told(name)}")

    def told(self, name: str) -> str:
        return "\n".join(str(pod.status) for pod in self.pods(name))

    def events(self, name: str) -> list[str]:
        listed = self.core.list_namespaced_event(self.namespace, field_selector=f"involvedObject.name={name}").items
        return [event.reason for event in listed]

    def node_ready(self, name: str) -> str:
        conditions = self.core.read_node(name).status.conditions
        return next(one.status for one in conditions if one.type == "Ready")


def pod_spec(script: str = SLEEPER, more: Mapping[str, Any] | None = None, **container: Any) -> Json:
    """A pod of one container that runs a Python script, with no long grace."""
    command = ["python", "-S", "-u", "-c", script]
    only = {"name": "main", "image": "localhost/process:1", "command": command, **container}
    return {"terminationGracePeriodSeconds": 5, "containers": [only], **(more or {})}


def engine_spec(*arguments: str, tag: str = "v0.32.0", **container: Any) -> Json:
    """A pod of one vLLM engine on one GPU, as a user would write it."""
    return {"terminationGracePeriodSeconds": 5, "containers": [vllm_container(*arguments, tag=tag, **container)]}


def ready(pod: client.V1Pod) -> bool:
    return any(one.type == "Ready" and one.status == "True" for one in pod.status.conditions or ())
