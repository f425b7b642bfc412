"""What replays are tried on: the carried recordings, a store that plays one back over HTTP, and made-up worlds."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from past_store import PastStore

RECORDINGS = Path(__file__).parents[1] / "recordings"


@pytest.fixture(scope="session")
def recordings() -> Path:
    return RECORDINGS


@pytest.fixture(scope="session")
def store() -> Iterator[PastStore]:
    """A Prometheus that holds the second recording."""
    running = PastStore(RECORDINGS / "vllm-0.32-b")
    yield running
    running.close()
