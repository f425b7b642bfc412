"""A test's own namespace with one pod in it, and a synced cache that looks at it."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from control_plane.kubelet.kubelet import ProcessKubelet
from control_plane.server import ControlPlane
from control_plane.waiting import until
from fleet_of_pods import FleetOfPods
from gated_client import GatedClient
from hand_made import HandMade
from sight import Sight

from serving.clock import SystemClock
from serving.fleet.kubernetes_entry import KubernetesEntry
from serving.kubernetes.cluster_cache import ClusterCache
from serving.kubernetes.connection import connect


@pytest.fixture
def sight(control_plane: ControlPlane, namespace: str) -> Iterator[Sight]:
    clock = SystemClock()
    client = GatedClient(connect(control_plane.kubeconfig(), clock=clock, deadline_s=5.0))
    cache = ClusterCache(client, KubernetesEntry(selector="app=llm", namespaces=[namespace]), clock, Random(1))
    made = HandMade(control_plane, namespace)
    made.pod("first")
    cache.start()
    try:
        until(lambda: cache.wait_synced(0.1), 20, lambda: f"the cache is synced: {dict(cache.doubts())}")
        yield Sight(cache, client, made)
    finally:
        client.open()
        cache.close()
        client.close()


@pytest.fixture
def fleet(control_plane: ControlPlane, kubelet: ProcessKubelet, namespace: str, tmp_path: Path) -> FleetOfPods:
    return FleetOfPods(control_plane, kubelet, namespace, tmp_path)
