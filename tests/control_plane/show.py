"""`make up-kubernetes`: a control plane, three nodes and six simulated engines behind a front door, until Ctrl-C.

What is typed here goes to the nodes: `lose NODE`, `kill NODE`, `back NODE`, `black-hole NODE`, `fill NODE`. All else is done
with kubectl from another terminal.
"""

import contextlib
import select
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

from kubernetes import client
from urllib3.exceptions import HTTPError

from control_plane.kubelet.kubelet import ProcessKubelet
from control_plane.kubelet.node import NodeSpec
from control_plane.manifests import PORT, vllm_container
from control_plane.options import HOST
from control_plane.programs import MissingProgramsError, Programs, find
from control_plane.server import ControlPlane, ControlPlaneError, free_ports
from control_plane.service import Service
from control_plane.waiting import until
from serving.clock import SystemClock
from serving.engines.readiness import answers

NODES, ENGINES, GPUS = ("node-a", "node-b", "node-c"), 6, 4
LOOK_S = 1.0
READY_S = 120.0
NAME, MODEL = "llm", "sim"


def manifests() -> tuple[Any, Any]:
    """The engines as a Deployment, and a budget that lets one of them go at a time."""
    labels = {"app": NAME}
    spread = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway"}
    pod = {
        "terminationGracePeriodSeconds": 20,
        "containers": [vllm_container()],
        "topologySpreadConstraints": [{**spread, "labelSelector": {"matchLabels": labels}}],
    }
    template = {"metadata": {"labels": labels}, "spec": pod}
    deployment = {"replicas": ENGINES, "selector": {"matchLabels": labels}, "template": template}
    budget = {"maxUnavailable": 1, "selector": {"matchLabels": labels}}
    return {"metadata": {"name": NAME}, "spec": deployment}, {"metadata": {"name": NAME}, "spec": budget}


class Door:
    """The front door over the engines that are ready. It is started anew when these change: nothing tells it yet."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._core = client.CoreV1Api(plane.api_client())
        self._service: Service | None = None
        self._engines: dict[str, str] = {}
        self.port, self._admin = free_ports(2)

    def ready(self) -> dict[str, str]:
        """URLs of the engines that are ready, by pod."""
        pods: list[Any] = self._core.list_namespaced_pod("default", label_selector=f"app={NAME}").items
        return {pod.metadata.name: f"http://{pod.status.pod_ip}:{PORT}" for pod in pods if _is_ready(pod)}

    def follow(self) -> None:
        """Serve the engines that are ready now."""
        engines = self._engines
        with contextlib.suppress(client.ApiException, HTTPError):  # an API server that is away changes nothing
            engines = self.ready()
        if engines and engines != self._engines:
            self._restart(engines)

    def _restart(self, engines: Mapping[str, str]) -> None:
        self.close()
        command = [sys.executable, "-m", "serving.gateway", "--port", str(self.port), "--admin-port", str(self._admin)]
        command += [f"--engine={name}={MODEL}@{url}" for name, url in engines.items()]
        log = self._plane.directory / "door.log"
        self._service = Service("door", command, log, self._plane.guard, SystemClock())
        self._service.start()
        self._engines = dict(engines)
        until(lambda: answers(f"http://{HOST}:{self.port}/health"), READY_S, f"the front door answers; see {log}")
        say(f"front door: {len(engines)} engines: {', '.join(sorted(engines))}")

    def close(self) -> None:
        """Stop it."""
        if self._service is not None:
            self._service.stop()


def show(programs: Programs, directory: Path) -> None:
    """Start everything, say what to try, and obey until Ctrl-C."""
    say(f"starting a control plane and {len(NODES)} nodes; everything lies in {directory}")
    with (
        ControlPlane(programs, directory / "control-plane") as plane,
        ProcessKubelet(plane.access, plane.guard, directory / "pods") as kubelet,
    ):
        for zone, name in enumerate(NODES):
            kubelet.add_node(NodeSpec(name, gpus=GPUS, labels={"topology.kubernetes.io/zone": f"zone-{zone}"}))
        deployment, budget = manifests()
        client.AppsV1Api(plane.api_client()).create_namespaced_deployment("default", deployment)
        client.PolicyV1Api(plane.api_client()).create_namespaced_pod_disruption_budget("default", budget)
        door = Door(plane)
        try:
            until(lambda: len(door.ready()) == ENGINES, READY_S, f"{ENGINES} engines are ready; see {directory}/pods")
            door.follow()
            say(advice(programs, plane.kubeconfig(), door.port))
            _obey(kubelet, door)
        finally:
            say("stopping")
            door.close()


def advice(programs: Programs, kubeconfig: Path, port: int) -> str:
    """What a person may try."""
    kubectl = programs.kubectl or "kubectl"
    return f"""
The cluster is up. In another terminal:
  export KUBECONFIG={kubeconfig}
  alias kubectl={kubectl}
  kubectl get nodes,pods -o wide
  curl http://127.0.0.1:{port}/v1/completions -H 'Content-Type: application/json' -d '{{"model": "{MODEL}", "prompt": "hi"}}'
  kubectl drain node-a --ignore-daemonsets        # one engine at a time, because of the budget
  kubectl set image deployment/{NAME} vllm=vllm/vllm-openai-typo:v1        # a bad rollout
Here: `lose node-a` (it falls silent), `kill node-a` (its processes die too), `back node-a`, `black-hole node-a` (it fails
all pods that want a GPU), `fill node-a`.
Ctrl-C stops everything."""


def _obey(kubelet: ProcessKubelet, door: Door) -> None:
    orders: dict[str, Callable[[str], None]] = {
        "lose": lambda node: kubelet.lose(node, dead=False),
        "kill": lambda node: kubelet.lose(node, dead=True),
        "back": kubelet.come_back,
        "black-hole": kubelet.make_black_hole,
        "fill": lambda node: kubelet.make_black_hole(node, on=False),
    }
    listening = True
    while True:
        door.follow()
        if not listening:
            SystemClock().sleep(LOOK_S)
        elif select.select([sys.stdin], [], [], LOOK_S)[0]:
            line = sys.stdin.readline()
            listening = bool(line)  # without a terminal nothing more will come
            verb, _, node = line.strip().partition(" ")
            if verb in orders and node in NODES:
                orders[verb](node)
                say(f"{verb} {node}: done")
            elif line.strip():
                say(f"say one of {', '.join(orders)}, and one of {', '.join(NODES)}")


def _is_ready(pod: Any) -> bool:
    ready = any(one.type == "Ready" and one.status == "True" for one in pod.status.conditions or ())
    return ready and pod.metadata.deletion_timestamp is None


def say(what: str) -> None:
    """Print at once, also into a pipe."""
    print(what, flush=True)  # noqa: T201 - a command of its own


def _as_interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main() -> int:
    """Exit status: 0 stopped as asked, 1 something is missing or did not start."""
    signal.signal(signal.SIGTERM, _as_interrupt)
    try:
        with tempfile.TemporaryDirectory(prefix="fleetwarden-kubernetes-") as directory:
            show(find(), Path(directory))
    except (MissingProgramsError, ControlPlaneError) as failed:
        sys.stderr.write(f"{failed}\n")
        return 1
    except KeyboardInterrupt:
        return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
