"""The benchmarks are scripts beside the packages; their modules are imported from where they lie."""

import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path += [str(BENCHMARKS), str(BENCHMARKS / "peers")]


@pytest.fixture(scope="session")
def benchmarks() -> Path:
    return BENCHMARKS
