"""A Deployment of simulated engines on nodes of their own, and a warden that looks at them."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from control_plane.kubelet.kubelet import ProcessKubelet
from control_plane.kubelet.node import NodeSpec
from control_plane.manifests import vllm_container
from control_plane.server import ControlPlane
from control_plane.waiting import until
from kubernetes import client

from agent import status as page
from agent.settings import HttpSettings, LoopSettings, WardenSettings
from agent.status import FleetStatus
from agent.wiring import Warden, warden
from serving.clock import SystemClock
from serving.fleet.fleet_file import FleetFile, ScrapeEntry, TelemetryEntry
from serving.fleet.kubernetes_entry import KubernetesEntry

NAME = "llm"
READY_S = 60.0


@dataclass
class FleetOfPods:
    """One test's nodes and engines. Pods are placed on the nodes of this test only."""

    plane: ControlPlane
    kubelet: ProcessKubelet
    namespace: str
    directory: Path

    def __post_init__(self) -> None:
        self.core = client.CoreV1Api(self.plane.api_client())
        self.apps = client.AppsV1Api(self.plane.api_client())

    def nodes(self, *names: str, gpus: int = 4) -> None:
        for name in names:
            labels = {"pool": self.namespace, "topology.kubernetes.io/zone": "zone-1"}
            self.kubelet.add_node(NodeSpec(name, gpus=gpus, labels=labels))

    def deploy(self, replicas: int) -> None:
        spec = {
            "terminationGracePeriodSeconds": 5,
            "nodeSelector": {"pool": self.namespace},
            "containers": [vllm_container()],
        }
        labels = {"app": NAME}
        template = {"metadata": {"labels": labels}, "spec": spec}
        deployment = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
        self.apps.create_namespaced_deployment(self.namespace, {"metadata": {"name": NAME}, "spec": deployment})

    def pods(self) -> list[Any]:
        listed: list[Any] = self.core.list_namespaced_pod(self.namespace, label_selector=f"app={NAME}").items
        return listed

    def until_ready(self, count: int) -> None:
        def ready() -> int:
            conditions = (one for pod in self.pods() for one in pod.status.conditions or ())
            return sum(one.type == "Ready" and one.status == "True" for one in conditions)

        until(lambda: ready() == count, READY_S, lambda: f"{count} are ready: {[pod.status for pod in self.pods()]}")

    def annotate(self, **annotations: str) -> None:
        marks = {
            "metadata": {"annotations": {f"fleetwarden.dev/{key.replace('_', '-')}": v for key, v in annotations.items()}}
        }
        self.apps.patch_namespaced_deployment(NAME, self.namespace, marks)

    def file(self) -> FleetFile:
        """The fleet as an operator declares it."""
        where = KubernetesEntry(selector=f"app={NAME}", namespaces=[self.namespace], kubeconfig=self.plane.kubeconfig())
        return FleetFile(fleet="west", kubernetes=where, telemetry=TelemetryEntry(scrape=ScrapeEntry(timeout=1.0)))

    @contextmanager
    def warden(self) -> Iterator["Watching"]:
        """A whole warden over this fleet, stepped by the test."""
        self.file().dump(self.directory / "fleet.yaml")
        settings = WardenSettings(
            state_dir=self.directory,
            loop=LoopSettings(interval=2.0, observe_deadline=2.0),
            http=HttpSettings(port=0),
        )
        with warden(settings, SystemClock()) as one:
            yield Watching(one, self.directory)


@dataclass
class Watching:
    """A warden at work."""

    warden: Warden
    directory: Path

    def look(self) -> FleetStatus:
        """One step, and the status page after it."""
        report = self.warden.runner.tick()
        assert report is not None, "the step failed"
        seen = page.read(self.directory)
        assert seen is not None
        return seen

    def states(self) -> dict[str, str]:
        """How each engine stands after a step."""
        return {row.engine: row.state for row in self.look().engines}
