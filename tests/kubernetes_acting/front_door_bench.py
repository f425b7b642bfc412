"""A real front door in a thread, for tests of drains."""

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from actuators.door import DoorActuator
from serving.fleet.topology import EngineFacts, Topology
from serving.gateway.server import DoorSettings, running_door

START_S = 20.0


@contextmanager
def running_front_door(engines: Sequence[str]) -> Iterator[DoorActuator]:
    """Orders to a door that knows these engines (nobody listens behind it)."""
    topology = Topology([EngineFacts(name, "http://127.0.0.1:9", "llm") for name in engines])
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    context = running_door(topology, DoorSettings(grace_s=0))
    try:
        door = asyncio.run_coroutine_threadsafe(context.__aenter__(), loop).result(START_S)
        try:
            yield DoorActuator(door.admin_url)
        finally:
            asyncio.run_coroutine_threadsafe(context.__aexit__(None, None, None), loop).result(START_S)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(START_S)
        loop.close()
