"""Servers that end with their test, the shipped registry, and the recordings."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from stand_ins import Servers

from serving.telemetry.registry import Registry, load_registry

settings.register_profile("noisy machines", deadline=None)
settings.load_profile("noisy machines")

RECORDINGS = Path(__file__).parent.parent / "recordings"


@pytest.fixture
def servers() -> Iterator[Servers]:
    running = Servers()
    yield running
    running.close()


@pytest.fixture(scope="session")
def registry() -> Registry:
    return load_registry()


@pytest.fixture(scope="session")
def recordings() -> Path:
    return RECORDINGS


@pytest.fixture(scope="session")
def exposition() -> str:
    return (RECORDINGS / "vllm-0.32-a" / "exposition-0.32.0.txt").read_text()
