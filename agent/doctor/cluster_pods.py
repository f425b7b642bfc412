"""The pods that a fleet's selector finds: whether there are any, and what they lack to be watched and repaired well."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agent.doctor.findings import Check, ok, problem, warning
from serving.fleet.kubernetes_entry import KubernetesEntry
from serving.kubernetes.client import ClusterClient, path_of
from serving.kubernetes.cluster_error import ClusterError
from serving.kubernetes.decoding import Decoder
from serving.kubernetes.objects import PodObject

Json = Mapping[str, Any]
SHOWN = 4


def examine(client: ClusterClient, entry: KubernetesEntry) -> list[Check]:
    """Every check of the selector. Raises ClusterError, but where reading pods is refused (cluster.rights tells that)."""
    try:
        found = list(_pods(client, entry))
    except ClusterError as refused:
        if refused.forbidden:
            return []
        raise
    check, where = "cluster.engines", f"in {', '.join(entry.namespaces)}" if entry.namespaces else "in any namespace"
    if not found:
        todo = "correct kubernetes.selector and namespaces in the fleet file; see `kubectl get pods -A --show-labels`"
        return [problem(check, entry.selector, f"no pod {where} bears these labels", todo)]
    decoder = Decoder.of(entry)
    leaders = [(one, decoder.pod(one)) for one in found if not _is_worker(one)]
    names = [pod.meta.name for _, pod in leaders]
    workers = f", with {len(found) - len(leaders)} workers of groups" if len(found) > len(leaders) else ""
    says = f"finds {len(leaders)} engine{'' if len(leaders) == 1 else 's'} {where}{workers}"
    return [ok(check, entry.selector, says, pods=names), *_lacking(leaders, entry)]


def _pods(client: ClusterClient, entry: KubernetesEntry) -> Iterator[Json]:
    for namespace in entry.namespaces or ("",):
        yield from client.list_all(path_of("v1", "pods", namespace=namespace), {"labelSelector": entry.selector}).items


def _lacking(pods: Sequence[tuple[Json, PodObject]], entry: KubernetesEntry) -> Iterator[Check]:
    """One warning of each kind of lack, with the pods that have it."""
    without_gpu = [pod.meta.name for _, pod in pods if not pod.gpus]
    todo = "set resources.limits nvidia.com/gpu: else the scheduler does not count them, and no GPU is mapped to its engine"
    yield from _told("cluster.gpus", "ask for no GPU", without_gpu, len(pods), todo)
    without_port = [pod.meta.name for one, pod in pods if not _has_port(_container(one, entry), entry, pod)]
    todo = "declare the port of the HTTP API in `ports` of the container, or name it as kubernetes.port in the fleet file"
    yield from _told("cluster.ports", "tell no port of their HTTP API", without_port, len(pods), todo)
    unprobed = [pod.meta.name for one, pod in pods if not _container(one, entry).get("readinessProbe")]
    todo = "add a readinessProbe on /health: else a pod gets requests while it loads its model, and counts as healthy"
    yield from _told("cluster.readiness", "have no readiness probe", unprobed, len(pods), todo)
    unowned = [pod.meta.name for _, pod in pods if pod.meta.owner is None]
    todo = "let a Deployment, StatefulSet or LeaderWorkerSet own them: a pod of nobody does not come back when it is ended"
    yield from _told("cluster.owners", "belong to no workload", unowned, len(pods), todo)


def _told(check: str, what: str, names: Sequence[str], of: int, todo: str) -> Iterator[Check]:
    if names:
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        says = f"{len(names)} of {of} pods {what}: {', '.join(names[:SHOWN])}{more}"
        yield warning(check, "pods", says, todo, pods=list(names))


def _container(pod: Json, entry: KubernetesEntry) -> Json:
    """The container that is the engine: by name, else the first that asks for GPUs, else the first."""
    containers: list[Json] = (pod.get("spec") or {}).get("containers") or [{}]
    named = next((one for one in containers if one.get("name") == entry.container), None)
    with_gpus = next((one for one in containers if "nvidia.com/gpu" in str(one.get("resources"))), None)
    return named or with_gpus or containers[0]


def _has_port(container: Json, entry: KubernetesEntry, pod: PodObject) -> bool:
    """Whether its port is known, and not only vLLM's usual one assumed."""
    ports = container.get("ports") or ()
    if isinstance(entry.port, str):
        return any(one.get("name") == entry.port for one in ports)
    told = "--port" in " ".join(map(str, (*(container.get("command") or ()), *(container.get("args") or ()))))
    return bool(entry.port or ports or told) and pod.launch.port > 0


def _is_worker(pod: Json) -> bool:
    labels = (pod.get("metadata") or {}).get("labels") or {}
    return str(labels.get("leaderworkerset.sigs.k8s.io/worker-index", "0")) != "0"
