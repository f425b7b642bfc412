"""The control plane as a fixture: one for all tests of a session, because its start takes longer than most tests.

Each test has nodes and a namespace of its own, which are gone when it ends.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:  # the library of Kubernetes takes a second to import, which other tests need not pay
    from control_plane.kubelet.kubelet import ProcessKubelet
    from control_plane.server import ControlPlane

NAMESPACE_READY_S = 20.0
_numbers = itertools.count()


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A running ControlPlane; the test is skipped where its programs are missing, which are never built by a test."""
    from control_plane.programs import MissingProgramsError, find  # noqa: PLC0415 - see above
    from control_plane.server import ControlPlane  # noqa: PLC0415 - same

    try:
        programs = find()
    except MissingProgramsError as missing:
        pytest.skip(str(missing))
    with ControlPlane(programs, tmp_path_factory.mktemp("control-plane")) as plane:
        yield plane


@pytest.fixture
def kubelet(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessKubelet]:
    """A kubelet without nodes yet; a container that crashes waits 1 s, 2 s, 4 s instead of 10 s, 20 s, 40 s."""
    from control_plane.kubelet.kubelet import ProcessKubelet  # noqa: PLC0415 - see above
    from control_plane.kubelet.placing import Pace  # noqa: PLC0415 - same

    directory = tmp_path_factory.mktemp("pods")
    with ProcessKubelet(control_plane.access, control_plane.guard, directory, pace=Pace(first_backoff=1.0)) as running:
        yield running


@pytest.fixture
def namespace(control_plane: ControlPlane) -> Iterator[str]:
    """A new namespace, deleted with all that is in it when the test ends."""
    from kubernetes import client  # noqa: PLC0415 - same

    from control_plane.waiting import until  # noqa: PLC0415 - see above

    core = client.CoreV1Api(control_plane.api_client())
    name = f"test-{next(_numbers)}"
    core.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name=name)))
    until(
        lambda: core.list_namespaced_service_account(name, field_selector="metadata.name=default").items,
        *(NAMESPACE_READY_S, "the new namespace has its service account"),
    )
    yield name
    core.delete_namespace(name)
