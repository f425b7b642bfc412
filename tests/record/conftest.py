"""The carried recordings."""

from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("noisy machines", deadline=None)
settings.load_profile("noisy machines")


@pytest.fixture(scope="session")
def recordings() -> Path:
    return Path(__file__).parents[1] / "recordings"
