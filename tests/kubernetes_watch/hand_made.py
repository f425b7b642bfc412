"""Objects made by hand in a real API server: pods that nobody runs, and a store that forgets its past."""

from typing import Any

import requests
from control_plane.server import ControlPlane
from control_plane.waiting import until
from kubernetes import client

AT_ONCE = client.V1DeleteOptions(grace_period_seconds=0)


class HandMade:
    """Pods in one namespace. No scheduler looks at them."""

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        self.plane = plane
        self.namespace = namespace
        self.core = client.CoreV1Api(plane.api_client())

    def pod(self, name: str, **labels: str) -> None:
        container = {"name": "vllm", "image": "vllm/vllm-openai:v0.32.0", "args": ["--model=llama"]}
        spec = {"schedulerName": "nobody", "containers": [container]}
        body = {"metadata": {"name": name, "labels": {"app": "llm", **labels}}, "spec": spec}
        self.core.create_namespaced_pod(self.namespace, body)

    def delete(self, name: str) -> None:
        self.core.delete_namespaced_pod(name, self.namespace, body=AT_ONCE)

    def forget_the_past(self) -> None:
        """Compact the store up to now and start the API server anew, so that no version of before can be watched from."""
        etcd = next(word for word in self.plane.service("etcd")._command if word.startswith("--listen-client-urls="))
        url = etcd.partition("=")[2]
        with requests.Session() as session:
            session.trust_env = False
            head = session.post(f"{url}/v3/kv/range", json={"key": "AA=="}, timeout=5).json()["header"]
            asked = {"revision": head["revision"], "physical": True}
            answer = session.post(f"{url}/v3/kv/compaction", json=asked, timeout=10)
            assert answer.ok, answer.text
        self.plane.restart_api_server()
        until(self._answers, 20, "the API server answers again")

    def _answers(self) -> bool:
        try:
            self.core.list_namespaced_pod(self.namespace)
        except Exception:  # noqa: BLE001 - whatever the library raises while nobody listens
            return False
        return True


def by_name(objects: dict[str, Any]) -> set[str]:
    return {one.meta.name for one in objects.values()}
