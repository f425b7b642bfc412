"""How each program of the control plane is told to run. Options bear the names that Kubernetes and etcd give them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from control_plane import audit
from control_plane.access import CONTROLLER_MANAGER, SCHEDULER, Access

HOST = "127.0.0.1"
ISSUER = "https://kubernetes.default.svc"  # of the tokens of service accounts, and whom they are for
Options = dict[str, str]


@dataclass(frozen=True, slots=True)
class Settings:
    """What differs from the defaults of Kubernetes so that a test need not wait minutes for a lost node.

    Seconds, with the default of Kubernetes 1.36 behind each. `users` are further users and their groups.
    """

    node_monitor_period: float = 1.0  # 5
    node_monitor_grace: float = 6.0  # 50: a lease that was not renewed for so long means that the node is lost
    unreachable_toleration: int = 5  # 300: after so long the pods of a lost node are deleted
    node_eviction_rate: float = 10.0  # 0.1 nodes a second
    users: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ports:
    """Where each program listens on the loopback."""

    etcd: int
    etcd_peer: int
    api_server: int
    controller_manager: int
    scheduler: int


def etcd_options(directory: Path, ports: Ports) -> Options:
    """One member, which is all of its cluster."""
    clients, members = f"http://{HOST}:{ports.etcd}", f"http://{HOST}:{ports.etcd_peer}"
    return {
        "data-dir": str(directory / "etcd"),
        "listen-client-urls": clients,
        "advertise-client-urls": clients,
        "listen-peer-urls": members,
        "initial-advertise-peer-urls": members,
        "initial-cluster": f"default={members}",
        "unsafe-no-fsync": "true",  # what a power cut would lose is not missed
        "log-level": "warn",
    }


def api_server_options(directory: Path, ports: Ports, settings: Settings, tokens: Path, key: Path) -> Options:
    """Tokens from a file, RBAC, and an audit log."""
    policy = directory / "audit-policy.yaml"
    policy.write_text(audit.POLICY)
    return {
        "etcd-servers": f"http://{HOST}:{ports.etcd}",
        "bind-address": HOST,
        "advertise-address": HOST,
        "endpoint-reconciler-type": "none",  # it would publish the loopback, which no endpoint may have
        "secure-port": str(ports.api_server),
        "cert-dir": str(directory / "certificates"),
        "token-auth-file": str(tokens),
        "authorization-mode": "Node,RBAC",
        "service-cluster-ip-range": "10.0.0.0/16",
        "service-account-issuer": ISSUER,
        "service-account-key-file": str(key),
        "service-account-signing-key-file": str(key),
        "audit-policy-file": str(policy),
        "audit-log-path": str(directory / "audit.log"),
        "default-unreachable-toleration-seconds": str(settings.unreachable_toleration),
        "default-not-ready-toleration-seconds": str(settings.unreachable_toleration),
    }


def manager_options(directory: Path, ports: Ports, settings: Settings, access: Access, key: Path) -> Options:
    """Each controller with the rights that it has in a real cluster."""
    return {
        "kubeconfig": str(access.kubeconfig(CONTROLLER_MANAGER)),
        "use-service-account-credentials": "true",
        "service-account-private-key-file": str(key),
        "root-ca-file": str(access.certificate),
        "bind-address": HOST,
        "secure-port": str(ports.controller_manager),
        "cert-dir": str(directory / "kube-controller-manager"),
        "leader-elect": "false",
        "node-monitor-period": f"{settings.node_monitor_period}s",
        "node-monitor-grace-period": f"{settings.node_monitor_grace}s",
        "node-eviction-rate": str(settings.node_eviction_rate),
    }


def scheduler_options(directory: Path, ports: Ports, access: Access) -> Options:
    """The default profile."""
    return {
        "kubeconfig": str(access.kubeconfig(SCHEDULER)),
        "bind-address": HOST,
        "secure-port": str(ports.scheduler),
        "cert-dir": str(directory / "kube-scheduler"),
        "leader-elect": "false",
    }
