"""A real front door in a thread, for tests of drains."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from in_background import in_background

from actuators.door import DoorActuator
from serving.fleet.topology import EngineFacts, Topology
from serving.gateway.server import DoorSettings, running_door


@contextmanager
def running_front_door(engines: Sequence[str]) -> Iterator[DoorActuator]:
    """Orders to a door that knows these engines (nobody listens behind it)."""
    topology = Topology([EngineFacts(name, "http://127.0.0.1:9", "llm") for name in engines])
    with in_background(running_door(topology, DoorSettings(grace_s=0))) as door:
        yield DoorActuator(door.admin_url)
