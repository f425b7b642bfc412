"""The workloads that keep engines there: finding the one that is meant, and what must hold before any of them is changed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil, floor
from typing import Any

from actuators.action import Outcome
from actuators.kubernetes.access import Access
from actuators.kubernetes.object_change import Change, Json, ObjectChange, Refused
from actuators.kubernetes.outcomes import NONE, failed
from actuators.kubernetes.pod_state import controller_of
from serving.kubernetes.client import path_of
from serving.kubernetes.cluster_map import WorkloadRef
from serving.kubernetes.decoding import asks_to_be_left

PLURALS = {"Deployment": "deployments", "StatefulSet": "statefulsets", "LeaderWorkerSet": "leaderworkersets"}
GITOPS = ("argocd.argoproj.io/tracking-id", "argocd.argoproj.io/instance", "kustomize.toolkit.fluxcd.io/name")


@dataclass(frozen=True, slots=True)
class Workload:
    """One workload and its path in the API."""

    ref: WorkloadRef
    path: str

    @property
    def name(self) -> str:
        """For messages."""
        return f"{self.ref.owner_kind} {self.ref.namespace}/{self.ref.name}"


def find(access: Access, model: str, name: str | None) -> Workload | Outcome:
    """The workload of a model, `name` where it has several. A failure when it cannot be told, or not be changed."""
    all_of = access.map().workloads.get(model, ())
    meant = [ref for ref in all_of if name is None or ref.name == name]
    if not meant:
        known = ", ".join(ref.name for ref in all_of) or "none"
        return failed(f"model {model} has no workload {name or 'at all'} on the map; it has {known}", permanent=True)
    if len(meant) > 1:
        names = ", ".join(ref.name for ref in meant)
        return failed(f"model {model} is served by several workloads, so name one of them: {names}", permanent=True)
    (ref,) = meant
    plural = PLURALS.get(ref.owner_kind)
    if plural is None:
        return failed(f"{ref.owner_kind} {ref.name} is of a kind that the warden cannot change", permanent=True)
    return Workload(ref, path_of(ref.api, plural, ref.name, namespace=ref.namespace))


def change(access: Access, verb: str, workload: Workload, plan: Callable[[Json, str], Change | Refused]) -> ObjectChange:
    """The operation that changes a workload, which nobody above it may take back, and which nobody opted out."""

    def guarded(live: Json, key: str) -> Change | Refused:
        return _untouchable(live, workload) or plan(live, key)

    return ObjectChange(access, verb, workload.path, workload.name, guarded)


def _untouchable(live: Json, workload: Workload) -> Refused | None:
    if live["metadata"]["uid"] != workload.ref.uid:
        return Refused(f"{workload.name} is another one than the map says: it was made anew", NONE)
    if asks_to_be_left(live):
        return Refused(f"{workload.name} asks to be left alone", NONE, permanent=True)
    owner = controller_of(live)
    if owner is not None:
        above = f"{owner.get('kind')} {owner.get('name')}"
        return Refused(f"{workload.name} is kept by {above}, which would take the change back", NONE, permanent=True)
    return None


def rolling(live: Mapping[str, Any]) -> bool:
    """Whether a rollout is under way: what was asked for last is not all there yet."""
    status, wanted = live.get("status") or {}, live["spec"].get("replicas", 1)
    if status.get("observedGeneration", 0) < live["metadata"].get("generation", 0):
        return True
    return bool(status.get("updatedReplicas", 0) < wanted or status.get("replicas", 0) > wanted)


def kept_by_gitops(live: Mapping[str, Any]) -> str:
    """A warning for the record when a GitOps tool keeps the object, and may take a change back; empty without one."""
    metadata = live["metadata"]
    marks = {**(metadata.get("labels") or {}), **(metadata.get("annotations") or {})}
    tool = next((mark.partition("/")[0] for mark in GITOPS if mark in marks), None)
    return f"; {tool} keeps it and may take this back" if tool else ""


def lost_in_rollout(spec: Mapping[str, Any]) -> int:
    """How many pods a Deployment may lack during a rollout. 0: new before old.

    As pkg/controller/deployment/util of Kubernetes resolves maxUnavailable (down) and maxSurge (up); both 0: one is lost.
    """
    wanted, strategy = spec.get("replicas", 1), spec.get("strategy") or {}
    if strategy.get("type", "RollingUpdate") == "Recreate":
        return int(wanted)
    rolling_update = strategy.get("rollingUpdate") or {}
    lost = _resolved(rolling_update.get("maxUnavailable", "25%"), wanted, floor)
    surge = _resolved(rolling_update.get("maxSurge", "25%"), wanted, ceil)
    return 1 if lost == surge == 0 else lost


def _resolved(value: int | str, of: int, rounding: Callable[[float], int]) -> int:
    return value if isinstance(value, int) else rounding(of * float(value.rstrip("%")) / 100)
