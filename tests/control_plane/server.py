"""The control plane: etcd, API server, controller manager and scheduler, started together and stopped together.

    with ControlPlane(find(), directory) as plane:
        core = client.CoreV1Api(plane.api_client())

Everything listens on 127.0.0.1. RBAC is on, also for the controller manager, the scheduler and the kubelet, with the rights
that they have in a real cluster.
"""

import shutil
import socket
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Self

import requests
from kubernetes import client

from control_plane import audit
from control_plane.access import ADMIN, KUBELET, Access, signing_key
from control_plane.options import (
    HOST,
    ISSUER,
    Ports,
    Settings,
    api_server_options,
    etcd_options,
    manager_options,
    scheduler_options,
)
from control_plane.orphan_guard import OrphanGuard
from control_plane.programs import Programs
from control_plane.service import Service
from control_plane.waiting import TooLateError, until
from serving.clock import Clock, SystemClock

READY_S = 120.0  # seven seconds on two quiet cores
ATTEMPTS = 3  # a port that was free may be taken by others before its server listens


class ControlPlaneError(Exception):
    """The control plane did not start; the message holds the end of the log that says why."""


class ControlPlane:
    """A running control plane with all its files under `directory`. A context manager, used once."""

    def __init__(
        self, programs: Programs, directory: Path, settings: Settings | None = None, clock: Clock | None = None
    ) -> None:
        self.programs = programs
        self.directory = directory
        self.settings = settings or Settings()
        self._clock = clock or SystemClock()
        self._end = ExitStack()
        self._services: dict[str, Service] = {}
        self._access: Access | None = None

    def __enter__(self) -> Self:
        try:
            self.guard = self._end.enter_context(OrphanGuard())
            self._end.callback(self._stop)
            self._start_onfree_ports()
        except BaseException:
            self._end.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end.close()

    @property
    def access(self) -> Access:
        """Tokens and clients. Raises RuntimeError before the start."""
        if self._access is None:
            raise RuntimeError("the control plane was not started")
        return self._access

    @property
    def url(self) -> str:
        """Where the API server listens: https, with a certificate of its own."""
        return self.access.url

    @property
    def api_server(self) -> Service:
        """The API server's process, for a test to freeze, thaw, kill or stop; `restart_api_server` brings it back."""
        return self._services["kube-apiserver"]

    def service(self, name: str) -> Service:
        """Any of etcd, kube-apiserver, kube-controller-manager, kube-scheduler."""
        return self._services[name]

    def api_client(self, user: str = ADMIN) -> client.ApiClient:
        """A client for this user, closed at the end."""
        return self.access.api_client(user)

    def kubeconfig(self, user: str = ADMIN) -> Path:
        """A kubeconfig file for this user."""
        return self.access.kubeconfig(user)

    def service_account(self, namespace: str, name: str) -> str:
        """Make a ServiceAccount unless it exists; its user name, known from then on to `api_client` and `kubeconfig`."""
        user = f"system:serviceaccount:{namespace}:{name}"
        core = client.CoreV1Api(self.api_client())
        try:
            core.create_namespaced_service_account(
                namespace, client.V1ServiceAccount(metadata=client.V1ObjectMeta(name=name))
            )
        except client.ApiException as refused:
            if refused.status != 409:
                raise
        wanted = client.V1TokenRequestSpec(audiences=[ISSUER], expiration_seconds=24 * 3600)
        given = core.create_namespaced_service_account_token(
            name, namespace, client.AuthenticationV1TokenRequest(spec=wanted)
        )
        self.access.tokens[user] = str(given.status.token if given.status else "")
        return user

    def audit(self) -> list[audit.AuditEvent]:
        """What was asked of the API server so far; see the policy in control_plane.audit for what is left out."""
        return audit.read(self.directory / "audit.log")

    def restart_api_server(self, grace_s: float = 0.0, down_s: float = 0.0) -> None:
        """Stop the API server (SIGKILL unless it gets grace), leave it down for `down_s`, start it, wait until ready."""
        self.api_server.stop(grace_s)
        self._clock.sleep(down_s)
        until(
            lambda: _is_free(int(self.url.rpartition(":")[2])),
            READY_S,
            "the old API server still holds its port",
            self._clock,
        )
        self.api_server.start()
        self._await("kube-apiserver", f"{self.url}/readyz")

    def _start_onfree_ports(self) -> None:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                self._start()
            except ControlPlaneError:
                logs = [
                    service.log.read_text(errors="replace") for service in self._services.values() if service.log.exists()
                ]
                if attempt == ATTEMPTS or not any("address already in use" in log for log in logs):
                    raise
                self._stop()
                shutil.rmtree(self.directory)
            else:
                return

    def _start(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        ports = Ports(*free_ports(5))
        certificate = self.directory / "certificates" / "apiserver.crt"
        self._access = Access(f"https://{HOST}:{ports.api_server}", certificate, self.directory, self.settings.users)
        key = signing_key(self.directory / "service-accounts.key")
        self._run("etcd", self.programs.etcd, etcd_options(self.directory, ports))
        options = api_server_options(self.directory, ports, self.settings, self._access.write_tokens(), key)
        self._run("kube-apiserver", self.programs.api_server, options)
        self._await("kube-apiserver", f"{self.url}/readyz")
        options = manager_options(self.directory, ports, self.settings, self._access, key)
        self._run("kube-controller-manager", self.programs.controller_manager, options)
        self._run("kube-scheduler", self.programs.scheduler, scheduler_options(self.directory, ports, self._access))
        self._let_kubelets_in()
        self._await("kube-controller-manager", f"https://{HOST}:{ports.controller_manager}/healthz", own_certificate=True)
        self._await("kube-scheduler", f"https://{HOST}:{ports.scheduler}/healthz", own_certificate=True)
        self._await_first_service_account()

    def _stop(self) -> None:
        if self._access is not None:
            self._access.close()
        for service in reversed(self._services.values()):
            service.stop(grace_s=0)  # nothing here is to be kept
        self._services.clear()

    def _run(self, name: str, program: Path, options: Mapping[str, str]) -> None:
        command = [str(program), *(f"--{option}={value}" if value else f"--{option}" for option, value in options.items())]
        service = Service(name, command, self.directory / f"{name}.log", self.guard, self._clock)
        self._services[name] = service
        service.start()

    def _let_kubelets_in(self) -> None:
        """The role that kubelets had before the Node authorizer; here one process speaks for all nodes."""
        binding = client.V1ClusterRoleBinding(
            metadata=client.V1ObjectMeta(name=KUBELET),
            role_ref=client.V1RoleRef(api_group="rbac.authorization.k8s.io", kind="ClusterRole", name="system:node"),
            subjects=[client.RbacV1Subject(api_group="rbac.authorization.k8s.io", kind="User", name=KUBELET)],
        )
        client.RbacAuthorizationV1Api(self.api_client()).create_cluster_role_binding(binding)

    def _await_first_service_account(self) -> None:
        """Pods are refused until the controller manager has made the namespace's own account."""
        core = client.CoreV1Api(self.api_client())

        def made() -> bool:
            listed = core.list_namespaced_service_account("default", field_selector="metadata.name=default")
            return bool(listed.items) or self._failed("kube-controller-manager")

        self._until(made, "kube-controller-manager", "the service account of the default namespace")

    def _await(self, name: str, url: str, *, own_certificate: bool = False) -> None:
        session = requests.Session()
        session.trust_env = False
        session.headers["Authorization"] = f"Bearer {self.access.token(ADMIN)}"

        def ready() -> bool:
            certificate = self.directory / name / f"{name}.crt" if own_certificate else self.access.certificate
            try:
                return session.get(url, timeout=2, verify=str(certificate)).ok
            except (OSError, requests.RequestException):  # no certificate yet, or nobody listens yet
                return self._failed(name)

        with session:
            self._until(ready, name, url)

    def _until(self, ready: Callable[[], bool], name: str, what: str) -> None:
        service = self._services[name]
        try:
            until(ready, READY_S, what, self._clock)
        except TooLateError as late:
            raise ControlPlaneError(f"{name} is not ready: {late}\n{service.told()}") from None

    def _failed(self, name: str) -> bool:
        """False while the service runs. Raises ControlPlaneError when it, or etcd below it, has ended."""
        for service in (self._services["etcd"], self._services[name]):
            if not service.running:
                raise ControlPlaneError(
                    f"{service.name} ended with exit code {service.exit_code} while starting\n{service.told()}"
                )
        return False


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now, all different."""
    probes = [socket.create_server((HOST, 0)) for _ in range(count)]
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True
