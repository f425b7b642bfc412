"""The cluster that a fleet lies in: its API server, our rights there, and whether the selector finds engines."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from actuators.kubernetes.rights import load_rights
from agent.doctor import clocks, cluster_pods, cluster_self, granted
from agent.doctor.cluster_self import Place
from agent.doctor.findings import Check, ok, problem, warning
from agent.doctor.granted import Need
from serving.clock import Clock
from serving.fleet.kubernetes_entry import KubernetesEntry
from serving.kubernetes.client import ClusterClient
from serving.kubernetes.cluster_error import ClusterError
from serving.kubernetes.connection import connect
from serving.kubernetes.rights import load_base_rights

OLDEST, NEWEST = (1, 29), (1, 36)  # of Kubernetes; the newest is what the tests run against
DEADLINE_S = 5.0
_TODOS: Mapping[str, str] = {
    "Configuration": "correct kubernetes.kubeconfig and kubernetes.context in the fleet file, or run it in a pod",
    "Timeout": "see whether the API server is overloaded, and whether a NetworkPolicy or a proxy stands in between",
    "Unreachable": "see its address in the kubeconfig, and whether a NetworkPolicy or a firewall lets this machine reach it",
    "Broken": "see whether that address is an API server, and not a proxy",
}


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the settings want of a cluster: verbs of runbooks that may act, and where the Lease lies, if one elects.

    `place` is our own pod, where we run in one; `sqlite` and `elects` are how replicas would share a journal and a leader.
    """

    verbs: frozenset[str] = frozenset()
    lease_namespace: str | None = None
    place: Place | None = None
    sqlite: bool = False
    elects: bool = False


def examine(entry: KubernetesEntry, wanted: Wanted, clock: Clock) -> list[Check]:
    """Every check of the cluster, as far as it answers."""
    try:
        client = connect(entry.kubeconfig, entry.context, clock=clock, deadline_s=DEADLINE_S)
    except ClusterError as failed:
        return [_unheard("kubernetes", failed)]
    checks: list[Check] = []
    try:
        checks.extend(_asked(client, entry, wanted, clock))
    except ClusterError as failed:
        checks.append(_unheard(client.server, failed))  # what was told before it stays
    finally:
        client.close()
    return checks


def _asked(client: ClusterClient, entry: KubernetesEntry, wanted: Wanted, clock: Clock) -> Iterator[Check]:
    version = client.get("/version")
    yield ok("cluster.answers", client.server, "its API server answers")
    yield _version(client.server, version)
    yield from _clock(client, clock)
    yield from granted.examine(client, list(needs(entry, wanted)))
    if not load_rights().families_of(wanted.verbs):
        yield ok(granted.CHECK, "actions", "no runbook may act on the cluster, so no right to change anything is needed")
    yield from cluster_pods.examine(client, entry)
    if wanted.place is not None:
        yield from cluster_self.examine(client, wanted.place, sqlite=wanted.sqlite, elects=wanted.elects)


def needs(entry: KubernetesEntry, wanted: Wanted) -> Iterator[Need]:
    """What must be allowed: reading, the Lease, and the families of the wanted verbs."""
    spaces = tuple(entry.namespaces)
    base, rights = load_base_rights(), load_rights()
    yield Need("read", "see the fleet", base.read, spaces)
    if wanted.lease_namespace is not None:
        yield Need("own", "elect a leader", base.own, (wanted.lease_namespace,))
    families = rights.families_of(wanted.verbs)
    for name, family in families.items():
        yield Need(name, _purpose(family.says, family.verbs, wanted.verbs), family.rules, spaces, f"actions.{name}.enabled")
    if families:
        yield Need("events", "write events about what it touches", rights.shared)


def _purpose(says: str, verbs: Iterable[str], wanted: frozenset[str]) -> str:
    return f"{says} ({', '.join(verb for verb in verbs if verb in wanted)})"


def _unheard(subject: str, failed: ClusterError) -> Check:
    if failed.forbidden:
        todo = "renew the token or certificate of the kubeconfig, or the ServiceAccount of the pod"
        return problem("cluster.answers", subject, f"refuses us: {failed.says}", todo, status=failed.status)
    todo = _TODOS.get(failed.reason, "see the API server's own log")
    return problem("cluster.answers", subject, failed.says, todo, status=failed.status, reason=failed.reason)


def _version(subject: str, told: Mapping[str, Any]) -> Check:
    """The server's version against what was tried; the client package only reads configuration, so its own is told only."""
    check, known = "cluster.version", f"{_dotted(OLDEST)} to {_dotted(NEWEST)}"
    said, package = str(told.get("gitVersion", "")), metadata.version("kubernetes")
    numbers = re.match(r"v?(\d+)\.(\d+)", said)
    if numbers is None:
        return warning(check, subject, "does not tell its version", f"understood are Kubernetes {known}", client=package)
    version, details = (int(numbers[1]), int(numbers[2])), {"version": said, "client": package}
    if version < OLDEST:
        says = f"Kubernetes {said} is older than what is understood ({known})"
        return warning(check, subject, says, "upgrade the cluster", **details)
    if version > NEWEST:
        says = f"Kubernetes {said} is newer than what was tried ({known})"
        return warning(check, subject, says, "see whether a newer fleetwarden knows it", **details)
    return ok(check, subject, f"Kubernetes {said}, client package {package}", **details)


def _clock(client: ClusterClient, clock: Clock) -> list[Check]:
    before = clock.monotonic()
    client.get("/version")
    ahead = client.skew()
    blur = 0.5 + (clock.monotonic() - before) / 2
    return [] if ahead is None else [clocks.judged("cluster.clock", client.server, ahead, blur, stamps=False)]


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"
