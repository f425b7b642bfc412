"""The warden's own place in a cluster: how many replicas it has, and whether they can share what they must."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.doctor.findings import Check, ok, problem
from serving.kubernetes.client import ClusterClient, path_of
from serving.kubernetes.cluster_error import ClusterError
from serving.kubernetes.connection import IN_CLUSTER, NAMESPACE_FILE
from serving.kubernetes.decoding import meta_of

CHECK = "cluster.replicas"


@dataclass(frozen=True, slots=True)
class Place:
    """The pod that we run in."""

    namespace: str
    pod: str


def own_place(environment: Mapping[str, str] = os.environ, file: Path = NAMESPACE_FILE) -> Place | None:
    """Our pod; None outside of a cluster. A pod's host name is its name."""
    if not environment.get(IN_CLUSTER) or not file.exists():
        return None
    return Place(file.read_text().strip(), environment.get("HOSTNAME", ""))


def examine(client: ClusterClient, place: Place, *, sqlite: bool, elects: bool) -> list[Check]:
    """Whether several replicas share a journal and elect. Nothing where our workload cannot be read. Raises ClusterError."""
    try:
        found = _replicas(client, place)
    except ClusterError as refused:
        if refused.forbidden or refused.hopeless:
            return []
        raise
    if found is None:
        return []
    name, replicas = found
    if replicas > 1 and sqlite:
        says = f"{replicas} replicas with a journal each, in SQLite: who takes over knows nothing of what was done"
        todo = "set journal.url_file to a PostgreSQL that they share, or replicas to 1"
        return [problem(CHECK, name, says, todo, replicas=replicas)]
    if replicas > 1 and not elects:
        says = f"{replicas} replicas and no election: each would act"
        return [problem(CHECK, name, says, "set election.kind to lease, or replicas to 1", replicas=replicas)]
    return [ok(CHECK, name, f"{replicas} replica{'' if replicas == 1 else 's'}", replicas=replicas)]


def _replicas(client: ClusterClient, place: Place) -> tuple[str, int] | None:
    """Name and wanted replicas of the Deployment that our pod belongs to."""
    pod = client.get(path_of("v1", "pods", place.pod, namespace=place.namespace))
    owner = _controller(pod, "ReplicaSet")
    if owner is None:
        return None
    replica_set = client.get(path_of("apps/v1", "replicasets", owner, namespace=place.namespace))
    name = _controller(replica_set, "Deployment")
    if name is None:
        return None
    deployment = client.get(path_of("apps/v1", "deployments", name, namespace=place.namespace))
    return name, int(deployment["spec"].get("replicas", 1))


def _controller(thing: Mapping[str, Any], kind: str) -> str | None:
    owner = meta_of(thing).owner
    return owner.name if owner is not None and owner.kind == kind else None
