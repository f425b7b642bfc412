"""Engines' pods: restart, evict, and let go of one that cannot end."""

from dataclasses import dataclass

from actuators.action import Outcome
from actuators.binding import verb
from actuators.kubernetes import claim as claims
from actuators.kubernetes.access import Access
from actuators.kubernetes.family import Family, opted_out
from actuators.kubernetes.object_change import Refused
from actuators.kubernetes.outcomes import failed
from actuators.kubernetes.pod_checks import kept, why_not_stuck
from actuators.kubernetes.pod_removal import Check, How, Json, PodRemoval, look_up_claim
from actuators.kubernetes.reading import read_node
from serving.fleet.entity import Entity, EntityKind

STUCK_S = 300.0
"""Seconds for which a pod must be overdue, and its node silent, before the pod is given up: the time after which Kubernetes
itself gives up on the pods of a node that is unreachable."""


@dataclass(frozen=True, slots=True)
class Gone:
    """The operation `verb` on an engine that has no pod now: nothing to be done, but an earlier one can be looked up."""

    access: Access
    verb: str
    target: Entity

    def rehearse(self) -> Outcome:
        return failed(f"{self.target} has no pod now")

    def apply(self, key: str) -> Outcome:
        known = claims.find(self.access, key, None)
        if known is None or known.verb != self.verb:
            return self.rehearse()
        return look_up_claim(self.access, known, key)

    def look_up(self, key: str) -> Outcome:
        return look_up_claim(self.access, claims.find(self.access, key, None), key)


class PodsActuator(Family):
    """`process.restart`, `pod.evict` and `pod.delete_stuck` on engines, by the pods that the map says they are."""

    kinds = dict.fromkeys(("process.restart", "pod.evict", "pod.delete_stuck"), (EntityKind.ENGINE,))

    @verb("process.restart", summary="delete the engine's pod, so that its workload starts a new one", takes_capacity=True)
    def restart(self, target: Entity, *, grace_s: float | None = None) -> PodRemoval | Gone | Outcome:
        """Delete the pod; `grace_s` seconds between SIGTERM and SIGKILL, the pod's own without. Budgets do not hold it."""
        return self._removal("process.restart", target, How.DELETE, kept, grace_s)

    @verb("pod.evict", summary="evict the engine's pod within its disruption budgets", takes_capacity=True)
    def evict(self, target: Entity, *, grace_s: float | None = None) -> PodRemoval | Gone | Outcome:
        """Evict the pod: its workload starts another, elsewhere if its node is cordoned."""
        return self._removal("pod.evict", target, How.EVICT, kept, grace_s)

    @verb("pod.delete_stuck", summary="remove by force a pod that cannot end, as its node is gone")
    def delete_stuck(self, target: Entity, *, after_s: float = STUCK_S) -> PodRemoval | Gone | Outcome:
        """Forget a pod that should have ended `after_s` seconds ago on a node that is gone or silent for as long."""

        def stuck(pod: Json) -> Refused | None:
            name = pod["spec"].get("nodeName")
            node = read_node(self._access, name) if name else None
            return why_not_stuck(pod, node, self._access.client.server_now(), after_s)

        return self._removal("pod.delete_stuck", target, How.FORCE, stuck, None)

    def _removal(
        self, name: str, target: Entity, how: How, check: Check, grace_s: float | None
    ) -> PodRemoval | Gone | Outcome:
        ref = self._access.map().pod(target.name)
        if ref is None:
            return Gone(self._access, name, target)
        out = opted_out(target, self._access)
        if out is not None:
            return out
        return PodRemoval(self._access, name, ref, how, check, grace_s)
