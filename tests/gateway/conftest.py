"""Doors over small engines, made and ended with each test."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
from door_ring import MakeRing, Ring, Upstream, ring_of


@pytest.fixture
async def make_ring() -> AsyncIterator[MakeRing]:
    """Makes rings that end with the test."""
    async with AsyncExitStack() as stack:

        async def make(*upstreams: Upstream, **settings: object) -> Ring:
            return await stack.enter_async_context(ring_of(*upstreams, **settings))  # type: ignore[arg-type]

        yield make
