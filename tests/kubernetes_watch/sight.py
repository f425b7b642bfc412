"""A cache over a namespace of the real API server, behind a gate that can be shut."""

from dataclasses import dataclass

from gated_client import GatedClient
from hand_made import HandMade

from serving.kubernetes.cluster_cache import ClusterCache
from serving.kubernetes.objects import PodObject


@dataclass
class Sight:
    """What one test looks with, and at."""

    cache: ClusterCache
    client: GatedClient
    made: HandMade

    def pods(self) -> dict[str, PodObject]:
        """The pods that the cache knows, by name."""
        return {pod.meta.name: pod for pod in self.cache.objects().pods.values()}
