"""The control plane as a fixture: one for all tests of a session, because its start takes longer than most tests."""

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    """A running ControlPlane; the test is skipped where its programs are missing, which are never built by a test."""
    from control_plane.programs import MissingProgramsError, find  # noqa: PLC0415 - costs a second that other tests need not pay
    from control_plane.server import ControlPlane  # noqa: PLC0415 - same

    try:
        programs = find()
    except MissingProgramsError as missing:
        pytest.skip(str(missing))
    with ControlPlane(programs, tmp_path_factory.mktemp("control-plane")) as plane:
        yield plane
