"""Objects as an API server gives them, as short as tests need them."""

from collections.abc import Mapping
from typing import Any

Json = dict[str, Any]
BORN = "2026-10-05T08:00:00Z"


def meta(name: str, namespace: str = "serving", **more: Any) -> Json:
    return {"name": name, "namespace": namespace, "uid": f"{namespace}/{name}", "creationTimestamp": BORN, **more}


def owned_by(kind: str, name: str, api: str = "apps/v1", namespace: str = "serving") -> list[Json]:
    uid = f"{kind}:{namespace}/{name}"
    return [{"apiVersion": api, "kind": kind, "name": name, "uid": uid, "controller": True}]


def container(*arguments: str, gpus: int = 1, **more: Any) -> Json:
    asked = {"limits": {"nvidia.com/gpu": str(gpus)}} if gpus else {}
    return {"name": "vllm", "args": list(arguments), "resources": asked, **more}


def pod(
    name: str,
    owner: list[Json] | None = None,
    *,
    namespace: str = "serving",
    node: str = "node-a",
    ip: str = "10.0.0.1",
    ready: bool = True,
    ending: bool = False,
    phase: str = "Running",
    labels: Mapping[str, str] | None = None,
    created: str = BORN,
    uid: str = "",
    containers: list[Json] | None = None,
    status: Mapping[str, Any] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> Json:
    metadata = meta(name, namespace, labels={"app": "llm", **(labels or {})}, ownerReferences=owner or [])
    metadata["creationTimestamp"] = created
    metadata["annotations"] = dict(annotations or {})
    metadata["uid"] = uid or metadata["uid"]
    if ending:
        metadata["deletionTimestamp"] = BORN
    running = {"name": "vllm", "state": {"running": {"startedAt": created}}, "restartCount": 0}
    return {
        "metadata": metadata,
        "spec": {"nodeName": node, "containers": containers or [container("--model=llama")]},
        "status": {
            "phase": phase,
            "podIP": ip,
            "conditions": [{"type": "Ready", "status": "True" if ready else "False", "lastTransitionTime": created}],
            "containerStatuses": [running],
            **(status or {}),
        },
    }


def node(name: str, *, gpus: int = 8, labels: Mapping[str, str] | None = None, **spec: Any) -> Json:
    return {
        "metadata": {"name": name, "uid": f"node/{name}", "labels": dict(labels or {}), "creationTimestamp": BORN},
        "spec": spec,
        "status": {
            "capacity": {"nvidia.com/gpu": str(gpus), "cpu": "96"},
            "allocatable": {"nvidia.com/gpu": str(gpus), "cpu": "96"},
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "lastTransitionTime": BORN}],
            "nodeInfo": {"bootID": f"boot-of-{name}"},
        },
    }


def workload(kind: str, name: str, replicas: int, *, namespace: str = "serving", owner: list[Json] | None = None) -> Json:
    template = {"metadata": {"labels": {"app": "llm"}}, "spec": {"containers": [container("--model=llama")]}}
    metadata = meta(name, namespace, ownerReferences=owner or [])
    metadata["uid"] = f"{kind}:{namespace}/{name}"
    return {"metadata": metadata, "spec": {"replicas": replicas, "template": template}}
