"""Replacing what ran on a lost node. Kubernetes waits for the kubelet to say that a pod has ended; here nobody will.

Pods are told to end first, and are removed by force only when that is overdue. A node that is merely out of reach may go on
running them: its engines are of no harm to others, as they share nothing and the front door does not reach them either.
"""

from dataclasses import dataclass

from actuators.action import Outcome, OutcomeStatus
from actuators.kubernetes.access import Access
from actuators.kubernetes.outcomes import done, failed
from actuators.kubernetes.pod_checks import why_not_stuck
from actuators.kubernetes.pod_removal import How, Json, is_gone, refusal_of, remove
from actuators.kubernetes.pod_state import belongs_to_its_node, controller_of, is_ending, silent_for
from actuators.kubernetes.reading import pods_on, read_node
from serving.kubernetes.cluster_error import ClusterError
from serving.kubernetes.decoding import asks_to_be_left

SHOWN = 5


@dataclass(frozen=True, slots=True)
class LostNode:
    """The operation on `node`: one pass over its pods. Done when none is left that a workload would replace."""

    access: Access
    node: str
    after_s: float

    def rehearse(self) -> Outcome:
        node, pods, refused = self._look()
        if refused is not None:
            return refused
        before = {"pods": len(pods)}
        left = [says for pod in pods if (says := self._removed(pod, node, dry_run=True)) is not None]
        if left:
            return failed(f"{self.node}: {'; '.join(left[:SHOWN])}", before)
        return done(f"{self.node}: would let go of {len(pods)} pods", before, {"pods": 0})

    def apply(self, key: str) -> Outcome:  # noqa: ARG002 - removing what is there is idempotent by itself
        node, pods, refused = self._look()
        if refused is not None:
            return refused
        before = {"pods": len(pods)}
        left: list[str] = []
        for pod in pods:
            if isinstance(permitted := self.access.term(), Outcome):
                return permitted
            says = self._removed(pod, node)
            if says is not None:
                left.append(says)
        still = self._pods()
        if still:
            says = "; ".join(left[:SHOWN]) or "they were told to end, and nobody is there to say when they have"
            return Outcome(
                OutcomeStatus.FAILED, f"{self.node}: {len(still)} pods are left: {says}", before, {"pods": len(still)}
            )
        return done(f"{self.node}: {len(pods)} pods were let go of", before, {"pods": 0})

    def look_up(self, key: str) -> Outcome:  # noqa: ARG002 - the world itself tells
        _, pods, refused = self._look()
        if refused is not None:
            return refused
        facts = {"pods": len(pods)}
        return (
            failed(f"{self.node}: {len(pods)} pods are left", facts)
            if pods
            else done(f"{self.node}: no pod is left", facts, facts)
        )

    def _look(self) -> tuple[Json | None, list[Json], Outcome | None]:
        """The node, its pods, and why nothing may be done to them."""
        node = read_node(self.access, self.node)
        silent = silent_for(node, self.access.client.server_now())
        if silent is None:
            return node, [], failed(f"node {self.node} is ready; it is drained, not given up", permanent=True)
        if silent < self.after_s:
            return node, [], failed(f"node {self.node} is silent for {silent:.0f} s; it is given {self.after_s:.0f} s")
        if node is not None and asks_to_be_left(node):
            return node, [], failed(f"node {self.node} asks to be left alone", permanent=True)
        return node, self._pods(), None

    def _pods(self) -> list[Json]:
        """The pods that a workload would replace elsewhere."""
        found = pods_on(self.access, self.node)
        return [pod for pod in found if controller_of(pod) is not None and not belongs_to_its_node(pod)]

    def _removed(self, pod: Json, node: Json | None, *, dry_run: bool = False) -> str | None:
        """Tell a pod to end, or remove it when it should have long. Why it stays, if it does."""
        name = pod["metadata"]["name"]
        if asks_to_be_left(pod):
            return f"{name} asks to be left alone"
        how = How.FORCE if is_ending(pod) or node is None else How.DELETE
        if is_ending(pod) and node is not None:
            refused = why_not_stuck(pod, node, self.access.client.server_now(), self.after_s)
            if refused is not None:
                return refused.says
        try:
            remove(self.access, pod, how, dry_run=dry_run)
        except ClusterError as error:
            outcome = refusal_of(self.access, pod, how, error, read_only=dry_run)
            return None if is_gone(error) or outcome.status is OutcomeStatus.DONE else outcome.detail
        return None
