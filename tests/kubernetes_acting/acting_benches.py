"""What tests of acting do with a cluster: objects without a kubelet, a map made by hand, and actuators over both."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from control_plane.kubelet.node import Node, NodeSpec
from control_plane.server import ControlPlane

from actuators.kubernetes.access import Access
from serving.clock import Clock, SystemClock
from serving.fleet.topology import EngineFacts, Topology
from serving.kubernetes.client import ClusterClient, PatchKind, path_of
from serving.kubernetes.cluster_error import ClusterError
from serving.kubernetes.cluster_map import ClusterMap, Owner, PodRef, WorkloadRef
from serving.kubernetes.connection import connect

Json = dict[str, Any]
CLOCK = SystemClock()
GPU = "nvidia.com/gpu"


@dataclass
class World:
    """One test's view of a cluster, past every actuator. `map` is made anew of the live pods each time unless frozen."""

    client: ClusterClient
    namespace: str
    clock: Clock = CLOCK
    selector: str = "app"
    frozen: ClusterMap | None = None
    nodes: list[str] = field(default_factory=list)

    def access(self, **more: Any) -> Access:
        return Access(self.client, self.map, self.clock, **more)

    def map(self) -> ClusterMap:
        """Each pod with the label `app` is an engine of the model that the label names; its name is the pod's."""
        if self.frozen is not None:
            return self.frozen
        pods = self.client.list_all(path_of("v1", "pods", namespace=self.namespace), {"labelSelector": self.selector}).items
        return map_of(pods, self.workloads())

    def workloads(self) -> list[Json]:
        found: list[Json] = []
        for plural, kind in (("deployments", "Deployment"), ("statefulsets", "StatefulSet")):
            listed = self.client.list_all(path_of("apps/v1", plural, namespace=self.namespace)).items
            found += [{**one, "kind": kind} for one in listed]
        return found

    def add_node(self, name: str, **spec: Any) -> None:
        """Register a node as a kubelet does, that no kubelet keeps: it is lost some seconds later."""
        labels = {"kubernetes.io/hostname": name}
        status = Node(NodeSpec(name, gpus=8), "127.0.0.1", None, self.clock).status()  # type: ignore[arg-type] - asks nothing
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "spec": spec}
        self.client.create(path_of("v1", "nodes"), {**body, "status": status})
        self.nodes.append(name)

    def node(self, name: str) -> Json:
        return self.client.get(path_of("v1", "nodes", name))

    def patch_node(self, name: str, patch: Json, manager: str = "kubectl") -> Json:
        """Change a node as somebody else does."""
        path = path_of("v1", "nodes", name)
        return self.client._ask("PATCH", path, {"fieldManager": manager}, body=patch, content=PatchKind.STRATEGIC.value)

    def pods(self, selector: str = "") -> list[Json]:
        query = {"labelSelector": selector} if selector else {}
        return list(self.client.list_all(path_of("v1", "pods", namespace=self.namespace), query).items)

    def pod_path(self, name: str, sub: str = "") -> str:
        return path_of("v1", "pods", name, namespace=self.namespace, sub=sub)

    def close(self) -> None:
        for name in self.nodes:
            with suppress(ClusterError):
                self.client.delete(path_of("v1", "nodes", name))
        self.client.close()


def map_of(pods: list[Json], workloads: list[Json]) -> ClusterMap:
    """The map that these objects make; an owner is the workload with the name in the label `app`."""
    by_name = {one["metadata"]["name"]: _workload(one) for one in workloads}
    engines: dict[str, PodRef] = {}
    for pod in pods:
        metadata, spec = pod["metadata"], pod["spec"]
        workload = by_name.get(metadata["labels"]["app"])
        engines[metadata["name"]] = PodRef(
            namespace=metadata["namespace"],
            name=metadata["name"],
            uid=metadata["uid"],
            node=spec.get("nodeName", ""),
            owner=None if workload is None else workload.as_owner,
            ending="deletionTimestamp" in metadata,
        )
    models = {pod["metadata"]["name"]: pod["metadata"]["labels"]["app"] for pod in pods}
    facts = [EngineFacts(name, "http://127.0.0.1:9", models[name]) for name in engines]
    return ClusterMap(
        Topology(facts), engines=engines, workloads={name: (one,) for name, one in by_name.items() if one is not None}
    )


def _workload(one: Json) -> WorkloadRef:
    metadata = one["metadata"]
    owner = next((Owner(o["kind"], o["name"], o["uid"], o["apiVersion"]) for o in metadata.get("ownerReferences", ())), None)
    return WorkloadRef(
        metadata["namespace"], one["kind"], metadata["name"], metadata["uid"], "apps/v1", one["spec"].get("replicas"), owner
    )


@contextmanager
def world_in(plane: ControlPlane, namespace: str, user: str = "admin", deadline_s: float = 5.0) -> Iterator[World]:
    world = World(connect(plane.kubeconfig(user), clock=CLOCK, deadline_s=deadline_s), namespace)
    try:
        yield world
    finally:
        world.close()


def pod_spec(**more: Any) -> Json:
    """A pod that no node runs; it ends at once when deleted, unless something holds it."""
    return {"terminationGracePeriodSeconds": 0, "containers": [{"name": "main", "image": "any"}], **more}


def workload(name: str, replicas: int, spec: Json | None = None, **more: Any) -> Json:
    """A Deployment or StatefulSet of such pods."""
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": spec or pod_spec()}
    return {
        "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template, **more},
    }
