"""Reading single objects right before acting. What cannot be read is never taken for gone: that raises."""

from typing import Any

from actuators.kubernetes.access import Access
from serving.kubernetes.client import path_of
from serving.kubernetes.cluster_error import NOT_FOUND, ClusterError

Json = dict[str, Any]


def read(access: Access, path: str) -> Json | None:
    """The object at `path`, None when the server says that there is none. Raises ClusterError."""
    try:
        return access.client.get(path, deadline_s=access.deadline_s)
    except ClusterError as missing:
        if missing.status == NOT_FOUND:
            return None
        raise


def read_pod(access: Access, namespace: str, name: str) -> Json | None:
    """A pod now. Raises ClusterError."""
    return read(access, path_of("v1", "pods", name, namespace=namespace))


def read_node(access: Access, name: str) -> Json | None:
    """A node now. Raises ClusterError."""
    return read(access, path_of("v1", "nodes", name))


def pods_on(access: Access, node: str) -> list[Json]:
    """All pods on a node, of the namespaces that the fleet lies in. Raises ClusterError."""
    query = {"fieldSelector": f"spec.nodeName={node}"}
    found: list[Json] = []
    for namespace in access.namespaces or ("",):
        path = path_of("v1", "pods", namespace=namespace)
        found += access.client.list_all(path, query, deadline_s=access.deadline_s).items
    return found
