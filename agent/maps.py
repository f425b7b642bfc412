"""Where the fleet's map comes from: a fleet file that lists it once and for all, or a cluster in which it changes."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from serving.clock import Clock
from serving.fleet.entity import Entity
from serving.fleet.fleet_file import FleetFile
from serving.fleet.topology import EngineFacts, Topology
from serving.telemetry.reading import Source
from serving.yaml_file import FileError, Problem

if TYPE_CHECKING:  # the extra `kubernetes`, wanted only for a fleet that lies in a cluster
    from serving.kubernetes.opening import Cluster
    from serving.kubernetes.slots import SlotMemory


@dataclass(frozen=True, slots=True)
class Maps:
    """The map as it is whenever asked. `cluster` is the open cluster, where there is one."""

    topology: Callable[[], Topology]
    opted_out: Callable[[], frozenset[Entity]] = frozenset
    at_door: Callable[[str], str] = str
    sources: tuple[Source, ...] = ()
    cluster: "Cluster | None" = None

    def facts(self, engine: str) -> EngineFacts | None:
        """What is known of an engine now; None when it is not on the map."""
        topology = self.topology()
        return topology.facts(Entity.engine(engine)) if engine in topology.row_of else None


@contextmanager
def maps_of(
    fleet: FleetFile, path: Path, clock: Clock, memory: "SlotMemory | None" = None, *, must_know: bool = False
) -> Iterator[Maps]:
    """The maps of `fleet`, which was read from `path`; a cluster is watched until the block ends.

    A cluster that cannot be read in time is waited for while the warden runs, unless `must_know`. Raises FileError.
    """
    if fleet.kubernetes is None:
        topology = fleet.topology()
        yield Maps(lambda: topology)
        return
    from serving.kubernetes.cluster_error import ClusterError  # noqa: PLC0415 - the extra `kubernetes`, wanted only here
    from serving.kubernetes.opening import opened  # noqa: PLC0415 - same

    with ExitStack() as closing:
        try:
            cluster = closing.enter_context(opened(fleet, clock, memory))
        except ClusterError as wrong:
            raise FileError([Problem(str(path), 0, "kubernetes", wrong.says)]) from wrong
        missing = cluster.wait_known()
        if missing and must_know:
            raise FileError([Problem(str(path), 0, "kubernetes", missing)])
        if missing:
            log = structlog.get_logger("fleetwarden.kubernetes")
            log.warning("the cluster cannot be seen yet; nothing is decided until it can", says=missing)
        yield of_cluster(cluster)


def of_cluster(cluster: "Cluster") -> Maps:
    """The maps of an open cluster. A front door there knows an engine by the pod that it is at the moment."""
    view = cluster.view

    return Maps(
        topology=view.topology,
        opted_out=view.opted_out,
        at_door=lambda engine: view.map().at_door.get(engine, engine),
        sources=(cluster.source(),),
        cluster=cluster,
    )
