"""What a pod object, or a node object, says of itself. Pure; `now` in Unix seconds by the API server's clock."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from actuators.kubernetes.outcomes import Facts

Json = Mapping[str, Any]
MIRROR = "kubernetes.io/config.mirror"  # a static pod: the kubelet's own, and not to be evicted
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"  # set by people or machines that know that a node is shut down
OVER = frozenset({"Succeeded", "Failed"})


def pod_facts(pod: Json) -> Facts:
    """How a pod stands, for the record."""
    return {
        "pod": pod["metadata"]["name"],
        "uid": pod["metadata"]["uid"],
        "node": (pod.get("spec") or {}).get("nodeName"),
        "ending": is_ending(pod),
    }


def is_ending(pod: Json) -> bool:
    """Whether it was told to end."""
    return bool(pod["metadata"].get("deletionTimestamp"))


def overdue(pod: Json, now: float) -> float:
    """Seconds since an ending pod should be gone: its grace is in the time of its deletion. 0 while it may live."""
    told = pod["metadata"].get("deletionTimestamp")
    return max(0.0, now - seconds_of(told)) if told else 0.0


def controller_of(pod: Json) -> Mapping[str, Any] | None:
    """The owner that would replace the pod, None for a pod that nobody keeps."""
    owners = pod["metadata"].get("ownerReferences") or ()
    return next((owner for owner in owners if owner.get("controller")), None)


def belongs_to_its_node(pod: Json) -> bool:
    """Whether draining leaves it: DaemonSets' pods and static ones."""
    owner = controller_of(pod)
    return (owner is not None and owner.get("kind") == "DaemonSet") or MIRROR in (pod["metadata"].get("annotations") or {})


def silent_for(node: Json | None, now: float) -> float | None:
    """Seconds for which a node is not ready. None when it is; infinite when it is gone or said to be shut down."""
    if node is None or any(taint["key"] == OUT_OF_SERVICE for taint in (node.get("spec") or {}).get("taints") or ()):
        return float("inf")
    conditions = (node.get("status") or {}).get("conditions") or ()
    ready = next((one for one in conditions if one["type"] == "Ready"), None)
    if ready is None or ready.get("status") == "True":
        return None
    return max(0.0, now - seconds_of(ready.get("lastTransitionTime")))


def seconds_of(text: str | None) -> float:
    """Unix seconds of a time as the API writes it. Raises ValueError."""
    if not text:
        raise ValueError("an object of the API has no time where it must have one")
    return datetime.fromisoformat(text).timestamp()
