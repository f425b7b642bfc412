"""Probes: asking a container, again and again, whether it has started, is alive and is ready.

Defaults and thresholds: https://kubernetes.io/docs/concepts/configuration/liveness-readiness-startup-probes/ and
pkg/kubelet/prober/worker.go. No other probe is asked before the startup probe has succeeded once.
"""

import socket
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import requests

KINDS = ("startup", "readiness", "liveness")


@dataclass(frozen=True, slots=True)
class Verdict:
    """One probe's answer. `detail` says what went wrong."""

    good: bool
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Target:
    """Where the container of a probe is found. `ports` by name."""

    address: str
    ports: Mapping[str, int]
    environment: Mapping[str, str]

    def port(self, wanted: int | str) -> int:
        """A port by number or name. Raises KeyError."""
        return wanted if isinstance(wanted, int) else self.ports[wanted]


class Prober(threading.Thread):
    """Asks one probe of one container's process until `stop`; tells when the thresholds are reached."""

    def __init__(
        self,
        kind: str,
        probe: Mapping[str, Any],
        target: Target,
        gate: Callable[[], bool],
        tell: Callable[[str, Verdict], None],
        complain: Callable[[str, str], None],
    ) -> None:
        """`gate`: whether it may be asked now. `tell` gets each settled verdict, `complain` each single failure."""
        super().__init__(name=f"{kind}-probe", daemon=True)
        self._kind, self._probe, self._target = kind, probe, target
        self._gate, self._tell, self._complain = gate, tell, complain
        self._over = threading.Event()

    def stop(self) -> None:
        """Ask no more. Returns at once."""
        self._over.set()

    def run(self) -> None:
        self._over.wait(self._probe.get("initialDelaySeconds", 0))
        row, last = 0, None
        while not self._over.is_set():
            if self._gate():
                verdict = ask(self._probe, self._target)
                row, last = (row + 1 if verdict.good == last else 1), verdict.good
                self._heed(verdict, row)
            self._over.wait(self._probe.get("periodSeconds", 10))

    def _heed(self, verdict: Verdict, row: int) -> None:
        if self._over.is_set():
            return
        if not verdict.good:
            self._complain(self._kind, verdict.detail)
        if row >= (self._probe.get("successThreshold", 1) if verdict.good else self._probe.get("failureThreshold", 3)):
            self._tell(self._kind, verdict)


def ask(probe: Mapping[str, Any], target: Target) -> Verdict:
    """Ask once."""
    timeout = float(probe.get("timeoutSeconds", 1))
    if "httpGet" in probe:
        return http(probe["httpGet"], target, timeout)
    if "tcpSocket" in probe:
        return tcp(target.address, target.port(probe["tcpSocket"]["port"]), timeout)
    return execute(probe["exec"]["command"], target.environment, timeout)


def http(get: Mapping[str, Any], target: Target, timeout: float) -> Verdict:
    """GET; 200 to 399 is good (pkg/probe/http/http.go)."""
    where = f"{get.get('host') or target.address}:{target.port(get['port'])}"
    url = f"{get.get('scheme', 'HTTP').lower()}://{where}/{get.get('path', '').removeprefix('/')}"
    headers = {header["name"]: header["value"] for header in get.get("httpHeaders") or ()}
    try:
        with requests.Session() as session:
            session.trust_env = False
            status = session.get(url, headers=headers, timeout=timeout, verify=False, allow_redirects=False).status_code
    except requests.RequestException as failed:
        return Verdict(good=False, detail=f'Get "{url}": {failed}')
    return Verdict(requests.codes.ok <= status < requests.codes.bad_request, f"HTTP probe failed with statuscode: {status}")


def tcp(address: str, port: int, timeout: float) -> Verdict:
    """Whether somebody listens."""
    try:
        socket.create_connection((address, port), timeout).close()
    except OSError as failed:
        return Verdict(good=False, detail=f"dial tcp {address}:{port}: {failed}")
    return Verdict(good=True)


def execute(command: Sequence[str], environment: Mapping[str, str], timeout: float) -> Verdict:
    """Whether a command ends with 0 in time."""
    try:
        done = subprocess.run(command, env=dict(environment), capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        return Verdict(good=False, detail=f"command timed out after {timeout:g}s")
    except OSError as failed:
        return Verdict(good=False, detail=str(failed))
    return Verdict(done.returncode == 0, (done.stdout + done.stderr)[-1000:])
