"""Tests of the chart need helm; they are skipped where it is missing, and say how to get it."""

import pytest
from control_plane.programs import MissingProgramsError
from helm_chart import program


@pytest.fixture(scope="session")
def helm() -> None:
    try:
        program.find()
    except MissingProgramsError as missing:
        pytest.skip(str(missing))
