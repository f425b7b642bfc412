"""Emptying nodes: draining those that live, and replacing what ran on those that do not."""

from actuators.action import Outcome
from actuators.binding import verb
from actuators.door import DoorActuator
from actuators.kubernetes.access import Access
from actuators.kubernetes.drain import NodeDrain, PodKey
from actuators.kubernetes.family import Family, opted_out
from actuators.kubernetes.front_door import Rotation
from actuators.kubernetes.lost_node import LostNode
from actuators.kubernetes.outcomes import failed
from actuators.kubernetes.pods import STUCK_S
from serving.fleet.entity import Entity, EntityKind
from serving.fleet.places import engines_on, nodes_of


class EmptyingActuator(Family):
    """`node.drain` on nodes and GPUs, `node.replace_lost` on nodes. `door`: the front door's orders, None without one."""

    kinds = {"node.drain": (EntityKind.NODE, EntityKind.GPU), "node.replace_lost": (EntityKind.NODE,)}  # noqa: RUF012 - read only

    def __init__(self, access: Access, door: DoorActuator | None = None) -> None:
        super().__init__(access)
        self._door = door

    @verb("node.drain", summary="empty the node within its pods' disruption budgets, front door first", takes_capacity=True)
    def drain(self, target: Entity, *, grace_s: float | None = None, quiet_s: float = 60.0) -> NodeDrain | Outcome:
        """One pass; done when the node is empty, of a GPU when the engines on it are gone. The node stays cordoned.

        `grace_s`: for each pod, its own without. `quiet_s`: how long requests in flight are waited for before evictions.
        """
        out = opted_out(target, self._access)
        if out is not None:
            return out
        node, only = target.name, None
        if target.kind is EntityKind.GPU:
            found = self._on_gpu(target)
            if isinstance(found, Outcome):
                return found
            node, only = found
        door = self._door
        maker = None if door is None else lambda name: Rotation(door, name)
        return NodeDrain(self._access, node, only, maker, grace_s, quiet_s)

    @verb("node.replace_lost", summary="let the workloads replace what ran on a node that is gone or silent")
    def replace_lost(self, target: Entity, *, after_s: float = STUCK_S) -> LostNode | Outcome:
        """Delete the pods of a node that is silent for `after_s`; those overdue for as long are removed by force."""
        out = opted_out(target, self._access)
        return out if out is not None else LostNode(self._access, target.name, after_s)

    def _on_gpu(self, gpu: Entity) -> tuple[str, frozenset[PodKey]] | Outcome:
        """The node of a GPU and the pods of the engines on it."""
        known = self._access.map()
        nodes = nodes_of(known.topology, gpu) if gpu in known.topology else ()
        engines = engines_on(known.topology, gpu) if nodes else ()
        if not engines:
            return failed(f"nobody knows which engines are on {gpu}; drain its node", permanent=True)
        refs = [known.pod(engine.name) for engine in engines]
        pods = {(pod.namespace, pod.name) for ref in refs if ref for pod in (ref, *ref.workers) if pod.node == nodes[0].name}
        return nodes[0].name, frozenset(pods)
