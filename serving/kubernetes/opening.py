"""A fleet's cluster, opened: the client, the watch and the map, put together and closed again."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random

from serving.clock import Clock
from serving.fleet.fleet_file import FleetFile
from serving.kubernetes.client import ClusterClient
from serving.kubernetes.cluster_cache import ClusterCache
from serving.kubernetes.cluster_error import ClusterError
from serving.kubernetes.cluster_view import ClusterView
from serving.kubernetes.connection import connect
from serving.kubernetes.mapping import Surroundings
from serving.kubernetes.slots import ForgetfulMemory, SlotMemory
from serving.kubernetes.source import KubernetesSource

FIRST_LOOK_S = 60.0


@dataclass(frozen=True, slots=True)
class Cluster:
    """An open cluster. `client` may be used for anything else too."""

    client: ClusterClient
    cache: ClusterCache
    view: ClusterView

    def source(self) -> KubernetesSource:
        """What it says as a source of telemetry."""
        return KubernetesSource(self.view, self.client.server_now)

    def wait_known(self, seconds: float = FIRST_LOOK_S) -> str:
        """Wait until everything was read once. Says what is missing when that takes longer than `seconds`."""
        if self.cache.wait_synced(seconds):
            return ""
        return "; ".join(self.cache.doubts().values()) or "the cluster was not read in time"


@contextmanager
def opened(fleet: FleetFile, clock: Clock, memory: SlotMemory | None = None) -> Iterator[Cluster]:
    """Watch the cluster that `fleet` names until the block ends.

    Raises ClusterError (reason Configuration) when there is no way to an API server; one that does not answer is waited for.
    """
    entry = fleet.kubernetes
    if entry is None:
        raise ClusterError(0, "Configuration", f"fleet {fleet.fleet} names no cluster", reached=False)
    client = connect(entry.kubeconfig, entry.context, clock=clock)
    rng = Random()
    cache = ClusterCache(client, entry, clock, rng)
    cache.start()
    try:
        yield Cluster(client, cache, ClusterView(cache, entry, Surroundings.of(fleet), memory or ForgetfulMemory(), clock))
    finally:
        cache.close()
        client.close()
