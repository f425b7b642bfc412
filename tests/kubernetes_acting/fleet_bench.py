"""A small fleet of real pods on nodes of the process kubelet, and what tests ask of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from acting_benches import Json, World
from control_plane.kubelet.kubelet import ProcessKubelet
from control_plane.kubelet.node import NodeSpec
from control_plane.waiting import until

from actuators.action import Action, Actuator, Outcome, OutcomeStatus, Scalar
from serving.fleet.entity import Entity, EntityKind
from serving.kubernetes.client import path_of

SLEEPER = "import time\nwhile True: time.sleep(60)"
WAIT_S = 40.0


def process(script: str = SLEEPER, **more: Any) -> Json:
    """A pod of one GPU that runs a Python script."""
    container = {
        "name": "main",
        "image": "localhost/process:1",
        "command": ["python", "-S", "-u", "-c", script],
        "resources": {"limits": {"nvidia.com/gpu": "1"}},
    }
    return {"terminationGracePeriodSeconds": 2, "containers": [container], **more}


@dataclass
class Fleet:
    """Nodes and workloads of one test, seen past every actuator."""

    world: World
    kubelet: ProcessKubelet
    names: list[str] = field(default_factory=list)

    def add_nodes(self, *letters: str, gpus: int = 4) -> list[str]:
        added = [f"{self.world.namespace}-{letter}" for letter in letters]
        for name in added:
            self.kubelet.add_node(NodeSpec(name, gpus=gpus))
        self.names += added
        return added

    def run(self, plural: str, body: Json) -> None:
        self.world.client.create(path_of("apps/v1", plural, namespace=self.world.namespace), body)

    def budget(self, name: str, **spec: Any) -> None:
        selector = {"matchLabels": {"app": name}}
        path = path_of("policy/v1", "poddisruptionbudgets", namespace=self.world.namespace)
        number = len(self.world.client.list_all(path).items)
        self.world.client.create(path, {"metadata": {"name": f"{name}-{number}"}, "spec": {"selector": selector, **spec}})
        made = path_of("policy/v1", "poddisruptionbudgets", f"{name}-{number}", namespace=self.world.namespace)
        until(lambda: self.world.client.get(made)["status"].get("currentHealthy"), WAIT_S, "the budget counts its pods")

    def pods(self, name: str) -> list[Json]:
        return self.world.pods(f"app={name}")

    def ready(self, name: str) -> list[Json]:
        return [pod for pod in self.pods(name) if is_ready(pod) and "deletionTimestamp" not in pod["metadata"]]

    def until_ready(self, name: str, count: int) -> list[Json]:
        until(lambda: len(self.ready(name)) == count, WAIT_S, lambda: f"{count} of {name} ready: {self.told(name)}")
        return self.ready(name)

    def told(self, name: str) -> str:
        return "\n".join(f"{pod['metadata']['name']}: {pod['status']}" for pod in self.pods(name))

    def on(self, node: str, name: str) -> list[Json]:
        return [pod for pod in self.pods(name) if pod["spec"].get("nodeName") == node]

    def until_silent(self, node: str) -> None:
        until(lambda: condition(self.world.node(node), "Ready") == "Unknown", WAIT_S, f"{node} is NotReady")


def condition(node: Json, kind: str) -> str:
    return next(str(one["status"]) for one in node["status"]["conditions"] if one["type"] == kind)


def is_ready(pod: Json) -> bool:
    return any(one["type"] == "Ready" and one["status"] == "True" for one in pod["status"].get("conditions", ()))


def on_engine(verb: str, engine: str, arguments: Mapping[str, Scalar] | None = None) -> Action:
    return Action(verb, Entity.engine(engine), arguments or {})


def on_node(verb: str, node: str, arguments: Mapping[str, Scalar] | None = None) -> Action:
    return Action(verb, Entity(EntityKind.NODE, node), arguments or {})


def passes(actuator: Actuator, action: Action, attempt: str = "1/1/drain", seconds: float = WAIT_S) -> Outcome:
    """Apply an action under new keys of one attempt until it is done or hopeless, as a runbook's retries do."""
    outcomes: list[Outcome] = []

    def over() -> bool:
        outcomes.append(actuator.apply(action, f"{attempt}/{len(outcomes) + 1}"))
        return outcomes[-1].status is not OutcomeStatus.FAILED or outcomes[-1].permanent

    until(over, seconds, lambda: f"{action.verb} ended: {outcomes[-1]}", poll_s=0.3)
    return outcomes[-1]
