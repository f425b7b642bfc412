"""Discovery: which engines there are, while the door runs, from a fleet file that may change or from a cluster.

What cannot be read changes nothing: the door goes on with the engines that it knows, and says so once.
"""

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from serving.clock import Clock
from serving.fleet.fleet_file import FleetFile
from serving.fleet.topology import Topology
from serving.gateway.server import Door
from serving.yaml_file import FileError

if TYPE_CHECKING:  # the extra `kubernetes`, wanted only where the engines are pods
    from serving.kubernetes.cluster_map import ClusterMap

EVERY_S = 0.5


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """The engines there are, and the names of those that do not serve now."""

    topology: Topology
    unready: frozenset[str] = frozenset()


class DiscoveryError(Exception):
    """The engines cannot be found now. Says why."""


Look = Callable[[], Found]


def fixed(topology: Topology) -> Look:
    """Engines that never change."""
    found = Found(topology)
    return lambda: found


class FileLook:
    """Reads a fleet file again whenever it was written."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written: tuple[int, int] | None = None
        self._found = Found(Topology(()))

    def __call__(self) -> Found:
        """The engines of the file. Raises DiscoveryError when it cannot be read."""
        try:
            told = self._path.stat()
            written = (told.st_mtime_ns, told.st_ino)
            if written != self._written:
                self._found = Found(FleetFile.read(self._path).topology())
                self._written = written
        except (FileError, OSError) as wrong:
            raise DiscoveryError(str(wrong)) from wrong
        return self._found


@contextmanager
def cluster_look(fleet: FleetFile, clock: Clock) -> Iterator[Look]:
    """The pods that `fleet` declares, followed until the block ends. Raises DiscoveryError when no cluster is named."""
    from serving.kubernetes.cluster_error import ClusterError  # noqa: PLC0415 - the extra `kubernetes`, wanted only here
    from serving.kubernetes.opening import opened  # noqa: PLC0415 - same

    try:
        with opened(fleet, clock) as cluster:
            cluster.wait_known()
            yield lambda: of_map(cluster.view.map())
    except ClusterError as wrong:
        raise DiscoveryError(wrong.says) from wrong


def of_map(cluster: "ClusterMap") -> Found:
    """The pods that can be asked, by the names that the warden looks for at a door."""
    facts, unready = [], set()
    for engine in cluster.topology.engines:
        known, pod = cluster.topology.facts(engine), cluster.pod(engine.name)
        if pod is None or not known.url:
            continue
        name = cluster.at_door[engine.name]
        facts.append(replace(known, name=name))
        if not pod.ready or pod.ending:
            unready.add(name)
    return Found(Topology(facts), frozenset(unready))


async def follow(door: Door, look: Look, every: float = EVERY_S) -> None:
    """Look every so often, and let the door know of what changed, until cancelled."""
    known: tuple[object, ...] = ()
    trouble = ""
    while True:
        try:
            found = await asyncio.to_thread(look)
        except Exception as wrong:  # noqa: BLE001 - whatever hides the engines, those known must be served
            if str(wrong) != trouble:
                trouble = str(wrong)
                _say(f"the engines cannot be found, those known are kept: {trouble}")
        else:
            trouble = ""
            told = (tuple(found.topology.facts(engine) for engine in found.topology.engines), found.unready)
            if told != known:
                door.replace_engines(found.topology, found.unready)
                if known:
                    _say(f"front door: {len(found.topology.engines)} engines, {len(found.unready)} of them not ready")
                known = told
        await asyncio.sleep(every)


def _say(what: str) -> None:
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()
