"""The map of a fleet in a cluster, read once, as the warden would make it."""

from random import Random

from serving.clock import Clock
from serving.fleet.fleet_file import FleetFile
from serving.fleet.kubernetes_entry import KubernetesEntry
from serving.fleet.topology import Topology
from serving.kubernetes.cluster_cache import ClusterCache
from serving.kubernetes.connection import connect
from serving.kubernetes.mapping import Surroundings, mapped

SYNC_S = 15.0


def topology_of(fleet: FleetFile, entry: KubernetesEntry, clock: Clock) -> Topology | None:
    """The map now; None where not everything could be read in time. Raises ClusterError where there is nobody to ask.

    Names of a Deployment's engines are counted from 0, as a warden without a memory would.
    """
    client = connect(entry.kubeconfig, entry.context, clock=clock)
    cache = ClusterCache(client, entry, clock, Random(0))
    cache.start()
    try:
        if not cache.wait_synced(SYNC_S):
            return None
        return mapped(cache.objects(), entry, Surroundings.of(fleet), {}, clock.now()).map.topology
    finally:
        cache.close()
        client.close()
