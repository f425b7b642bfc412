"""A door that follows its engines: what changed is taken over while it runs, what cannot be read changes nothing."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest

from serving.fleet.fleet_file import EngineEntry, FleetFile
from serving.fleet.topology import EngineFacts, Topology
from serving.gateway.discovery import DiscoveryError, FileLook, Found, follow, of_map
from serving.gateway.ejection import EjectionPolicy
from serving.gateway.orders import Orders
from serving.gateway.pool import Pool
from serving.kubernetes.cluster_map import ClusterMap, PodRef


def engines(*names: str) -> Topology:
    return Topology([EngineFacts(name, f"http://{name}", "m") for name in names])


def write(path: Path, *names: str) -> None:
    FleetFile(fleet="f", engines=[EngineEntry(name=n, url=f"http://{n}", model="m") for n in names]).dump(path)


def names(found: Found) -> list[str]:
    return [engine.name for engine in found.topology.engines]


@dataclass
class DoorNotes:
    """Stands in for a door: notes what it is told."""

    told: list[tuple[list[str], frozenset[str]]] = field(default_factory=list)
    told_twice: asyncio.Event = field(default_factory=asyncio.Event)

    def replace_engines(self, topology: Topology, unready: frozenset[str]) -> None:
        self.told.append(([engine.name for engine in topology.engines], unready))
        if len(self.told) == 2:
            self.told_twice.set()


def test_a_fleet_file_is_read_again_when_it_was_written_and_only_then(tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    write(path, "a")
    look = FileLook(path)
    first = look()
    assert names(first) == ["a"]
    assert look() is first
    write(path, "a", "b")
    assert names(look()) == ["a", "b"]


def test_a_file_that_breaks_is_an_error_until_it_is_whole_again(tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    write(path, "a")
    look = FileLook(path)
    look()
    path.write_text("fleet: [")
    with pytest.raises(DiscoveryError, match=r"fleet\.yaml"):
        look()
    write(path, "b")
    assert names(look()) == ["b"]


async def test_the_door_is_told_of_changes_only_and_keeps_what_it_knows_through_troubles(
    capsys: pytest.CaptureFixture[str],
) -> None:
    trouble = DiscoveryError("the file is gone")
    script = [Found(engines("a")), Found(engines("a")), trouble, trouble, Found(engines("a", "b"), frozenset({"b"}))]
    over = asyncio.Event()

    def look() -> Found:
        if len(script) == 1:
            loop.call_soon_threadsafe(over.set)
        now = script.pop(0) if len(script) > 1 else script[0]
        if isinstance(now, Exception):
            raise now
        return now

    loop, door = asyncio.get_running_loop(), DoorNotes()
    following = asyncio.create_task(follow(door, look, every=0.0))  # type: ignore[arg-type]
    await asyncio.wait_for(over.wait(), 10)
    await asyncio.wait_for(door.told_twice.wait(), 10)
    following.cancel()
    assert door.told == [(["a"], frozenset()), (["a", "b"], frozenset({"b"}))]
    assert capsys.readouterr().out.count("the file is gone") == 1


def test_pods_are_called_by_their_own_names_and_only_those_with_an_address_are_asked() -> None:
    facts = [
        EngineFacts("llm-0", "http://10.0.0.1:8000", "m"),
        EngineFacts("llm-1", "", "m"),
        EngineFacts("llm-2", "http://10.0.0.3:8000", "m"),
        EngineFacts("llm-3", "http://10.0.0.4:8000", "m"),
    ]
    pods = {
        "llm-0": PodRef("prod", "llm-77-abc", "1", ready=True),
        "llm-1": PodRef("prod", "llm-77-def", "2"),
        "llm-2": PodRef("prod", "llm-77-ghi", "3", ready=False),
        "llm-3": PodRef("lab", "llm-77-abc", "4", ready=True, ending=True),
    }
    found = of_map(ClusterMap(Topology(facts), engines=pods))
    assert names(found) == ["llm-77-abc", "llm-77-ghi", "llm-77-abc.lab"]
    assert found.unready == {"llm-77-ghi", "llm-77-abc.lab"}


def test_engines_that_are_not_ready_get_nothing_while_another_is_there() -> None:
    pool = Pool(engines("a", "b"), Orders(), EjectionPolicy(), Random(1))
    pool.replace_engines(engines("a", "b"), {"a"})
    assert {seat.facts.name for _ in range(20) if (seat := pool.pick("m", 0.0)) is not None} == {"b"}
    pool.replace_engines(engines("a", "b"), {"a", "b"})
    assert pool.pick("m", 0.0) is not None, "when none is ready, all are tried"
