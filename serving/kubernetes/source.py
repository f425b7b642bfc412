"""What a cluster says as a source of telemetry: starts and revisions of engines, and the state of nodes.

While what is known of the cluster cannot be trusted the source says so, and nothing else.
"""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

import numpy as np

from serving.fleet.entity import Entity, EntityKind
from serving.fleet.relations import KUBERNETES
from serving.fleet.topology import Topology
from serving.kubernetes.cluster_view import ClusterView
from serving.kubernetes.engine_signals import engine_signals
from serving.kubernetes.naming import Member
from serving.kubernetes.node_signals import Memory, node_events, node_table, remembered
from serving.telemetry.reading import Reading
from serving.telemetry.window import Event

ENDED = "engine.ended"


class KubernetesSource:
    """Reads a ClusterView; nothing is asked of the API server here. `server_now` is Unix seconds by the cluster's clock."""

    def __init__(self, view: ClusterView, server_now: Callable[[], float]) -> None:
        self._view = view
        self._server_now = server_now
        self._memory = Memory()
        self._restarts: Mapping[str, int] | None = None

    @property
    def entity(self) -> Entity:
        return KUBERNETES

    def read(self, topology: Topology, now: float, deadline: float) -> Reading:  # noqa: ARG002 - memory is always in time
        current = self._view.map()
        rows = len(topology.engines)
        if current.doubts:
            return Reading(KUBERNETES, now, np.full(rows, np.nan), error="; ".join(current.doubts.values()))
        objects, notes = self._view.objects, self._view.notes()
        members = {one.name: one for one in self._view.roster.members}
        events = [
            *node_events(current.nodes, self._memory, objects.nodes, notes, now),
            *self._ends(members, now),
        ]
        self._memory = remembered(self._memory, objects.nodes, objects.pods.values(), notes)
        return Reading(
            source=KUBERNETES,
            at=now,
            sampled_at=np.full(rows, now),
            values=engine_signals(topology, members, objects, self._server_now()),
            events=tuple(events),
            tables=MappingProxyType({EntityKind.NODE: node_table(current.nodes, self._memory, now)}),
        )

    def close(self) -> None:
        """Nothing is open here; the watch is closed by whoever started it."""

    def _ends(self, members: Mapping[str, Member], now: float) -> Iterator[Event]:
        """One event for each container of an engine that ended since the last look, with its reason and exit code."""
        before, seen = self._restarts, {}
        for name, one in members.items():
            if one.pod is None:
                continue
            run = one.pod.run
            seen[one.pod.meta.uid] = run.restarts
            if before is not None and run.restarts > before.get(one.pod.meta.uid, run.restarts):
                code = "" if run.exit_code is None else f" with exit code {run.exit_code}"
                yield Event(now, ENDED, Entity.engine(name), f"its container ended{code} ({run.reason or 'no reason told'})")
        self._restarts = seen
