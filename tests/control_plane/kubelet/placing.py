"""What the parts of a kubelet share, and the place that each pod gets in it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from control_plane.access import Access
from control_plane.kubelet.events import Recorder
from control_plane.kubelet.images import Images
from control_plane.kubelet.node import Node
from control_plane.orphan_guard import OrphanGuard
from serving.clock import Clock


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds. Where it is quicker than the real kubelet, the real one's default is said."""

    tick: float = 0.1  # 1: how often it looks whether its processes live (pkg/kubelet/pleg)
    lease: float = 1.0  # 10: how often leases of nodes are renewed
    first_backoff: float = 10.0
    most_backoff: float = 300.0


@dataclass(frozen=True, slots=True)
class PodContext:
    """One pod's place. `event` records an event on it: type, reason, message."""

    namespace: str
    name: str
    uid: str
    node: str
    node_address: str
    address: str
    directory: Path
    images: Images
    pace: Pace
    guard: OrphanGuard
    clock: Clock
    event: Callable[[str, str, str], None]


@dataclass(frozen=True, slots=True)
class Placing:
    """What every pod's worker gets from its kubelet."""

    directory: Path
    images: Images
    pace: Pace
    guard: OrphanGuard
    clock: Clock
    recorder: Recorder
    access: Access

    def context(self, pod: Mapping[str, Any], node: Node, address: str) -> PodContext:
        """The place of one pod at its address."""
        metadata = pod["metadata"]
        namespace, name, uid = metadata["namespace"], metadata["name"], metadata["uid"]
        return PodContext(
            *(namespace, name, uid, node.name, node.address, address),
            self.directory / f"{namespace}_{name}_{uid}",
            *(self.images, self.pace, self.guard, self.clock),
            lambda kind, reason, message: self.event(pod, node, kind, reason, message),
        )

    def event(self, pod: Mapping[str, Any], node: Node, kind: str, reason: str, message: str) -> None:
        """Record an event, unless the node is cut off."""
        if not node.lost:
            self.recorder.record(pod, node.name, kind, reason, message)
