"""Who else decides how many pods a workload has: a HorizontalPodAutoscaler, or KEDA through one."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from actuators.kubernetes.access import Access
from actuators.kubernetes.pod_state import controller_of
from serving.kubernetes.client import path_of
from serving.kubernetes.cluster_error import NOT_FOUND, ClusterError
from serving.kubernetes.cluster_map import WorkloadRef

HPA = "autoscaling/v2"
KEDA = "keda.sh/v1alpha1"


@dataclass(frozen=True, slots=True)
class Autoscaler:
    """An autoscaler. `keda`: the ScaledObject that made it; `path`: that of the HorizontalPodAutoscaler, if there is one."""

    name: str
    path: str | None
    keda: str | None = None

    def __str__(self) -> str:
        return f"the ScaledObject {self.keda}" if self.keda else f"the HorizontalPodAutoscaler {self.name}"


def owner_of(access: Access, workload: WorkloadRef) -> Autoscaler | None:
    """The autoscaler of a workload, None without one. Raises ClusterError: who cannot be asked may be there."""
    path = path_of(HPA, "horizontalpodautoscalers", namespace=workload.namespace)
    for one in access.client.list_all(path, deadline_s=access.deadline_s).items:
        if _aims_at(one, workload):
            name, above = one["metadata"]["name"], controller_of(one)
            keda = above["name"] if above is not None and above.get("kind") == "ScaledObject" else None
            return Autoscaler(name, f"{path}/{name}", keda)
    for one in _scaled_objects(access, workload.namespace):
        if _aims_at(one, workload):  # one that is paused, or has scaled to nothing, has no autoscaler of its own
            return Autoscaler(one["metadata"]["name"], None, one["metadata"]["name"])
    return None


def _scaled_objects(access: Access, namespace: str) -> tuple[dict[str, Any], ...]:
    path = path_of(KEDA, "scaledobjects", namespace=namespace)
    try:
        return access.client.list_all(path, deadline_s=access.deadline_s).items
    except ClusterError as refused:
        if refused.status != NOT_FOUND:
            raise
        return ()  # KEDA is not installed


def _aims_at(autoscaler: Mapping[str, Any], workload: WorkloadRef) -> bool:
    aim = autoscaler["spec"].get("scaleTargetRef") or {}
    return (aim.get("kind") or "Deployment", aim.get("name")) == (workload.owner_kind, workload.name)
