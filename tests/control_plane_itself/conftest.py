"""A test's own nodes and namespace."""

import pytest
from benches import Bench
from control_plane.kubelet.kubelet import ProcessKubelet
from control_plane.server import ControlPlane


@pytest.fixture
def bench(control_plane: ControlPlane, kubelet: ProcessKubelet, namespace: str) -> Bench:
    return Bench(control_plane, kubelet, namespace)
