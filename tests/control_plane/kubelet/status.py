"""A pod's status from the states of its containers. Pure.

Phases: getPhase in pkg/kubelet/kubelet_pods.go. Conditions: pkg/kubelet/status/generate.go.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from control_plane.kubelet.times import stamp

Json = Mapping[str, Any]


def phase(containers: Sequence[Json], restart_policy: str, *, over: bool) -> str:
    """Pending, Running, Succeeded or Failed. `over`: everything was stopped for good."""
    first_start_is_due = any("waiting" in one["state"] and not one["lastState"] for one in containers)
    ended = [one["state"].get("terminated") for one in containers]
    if over or all(ended):
        codes = [one["exitCode"] for one in ended if one]
        if over or restart_policy == "Never" or (restart_policy == "OnFailure" and not any(codes)):
            return "Failed" if any(codes) or len(codes) < len(containers) else "Succeeded"
        return "Running"  # they will be started again
    return "Pending" if first_start_is_due else "Running"


def conditions(
    pod: Json, containers: Sequence[Json], old: Sequence[Json], current: str, now: float, *, has_address: bool
) -> list[dict[str, Any]]:
    """The kubelet's own conditions; each keeps its time of transition unless it changed."""
    unready = [one["name"] for one in containers if not one["ready"]]
    message = f"containers with unready status: [{' '.join(unready)}]"
    if current == "Succeeded":
        because = {"reason": "PodCompleted"}
    elif current == "Failed":
        because = {"reason": "PodFailed"}
    else:
        because = {"reason": "ContainersNotReady", "message": message} if unready else {}
    containers_ready = not unready and current == "Running"
    gates = {condition["type"]: condition["status"] for condition in pod.get("status", {}).get("conditions") or ()}
    closed = [
        gate["conditionType"]
        for gate in pod["spec"].get("readinessGates") or ()
        if gates.get(gate["conditionType"]) != "True"
    ]
    gated = {"reason": "ReadinessGatesNotReady", "message": f"the status of pod readiness gate {closed} is not True"}
    made: tuple[tuple[str, bool, Json], ...] = (
        ("PodReadyToStartContainers", has_address and current not in {"Succeeded", "Failed"}, {}),
        ("Initialized", True, {}),
        ("ContainersReady", containers_ready, because),
        ("Ready", containers_ready and not closed, because if not containers_ready else gated),
    )
    return [_condition(kind, status, {} if status else why, old, now) for kind, status, why in made]


def _condition(kind: str, status: bool, why: Json, old: Sequence[Json], now: float) -> dict[str, Any]:  # noqa: FBT001 - one of a row
    word = str(status)
    before = next((one for one in old if one["type"] == kind), None)
    since = before["lastTransitionTime"] if before is not None and before["status"] == word else stamp(now)
    # null takes back a reason that a merge would keep
    return {"type": kind, "status": word, "lastTransitionTime": since, "reason": None, "message": None, **why}
