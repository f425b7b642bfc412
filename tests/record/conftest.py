"""The carried recordings, and the store that plays one back (shared with the tests of replaying)."""

import sys
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("noisy machines", deadline=None)
settings.load_profile("noisy machines")

TESTS = Path(__file__).parents[1]
sys.path.append(str(TESTS / "replay"))


@pytest.fixture(scope="session")
def recordings() -> Path:
    return TESTS / "recordings"
