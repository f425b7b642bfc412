"""The door over two real simulated engines, each a process of its own: one is killed while users are served."""

import asyncio
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator

import aiohttp
import pytest
from door_ring import until

from serving.fleet.topology import EngineFacts, Topology
from serving.gateway.server import DoorSettings, running_door
from serving.load.arrivals import LoadPlan
from serving.load.patterns import PATTERNS
from serving.load.runner import run_load
from serving.load.tally import Tally

NAMES = ("sim-0", "sim-1")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Engines:
    """Simulated engines as processes, by name."""

    def __init__(self) -> None:
        self.facts = {name: EngineFacts(name, f"http://127.0.0.1:{free_port()}", "sim") for name in NAMES}
        self.processes: dict[str, asyncio.subprocess.Process] = {}

    async def start(self, name: str) -> None:
        url = self.facts[name].url
        command = [sys.executable, "-m", "serving.simulator", "--name", name, "--port", url.rpartition(":")[2]]
        self.processes[name] = await asyncio.create_subprocess_exec(
            *command, "--model", "sim", "--startup-seconds", "0", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

        async def answers() -> bool:
            try:
                async with aiohttp.ClientSession() as http, http.get(f"{url}/health") as response:
                    return response.status == 200
            except aiohttp.ClientError:
                return False

        await until(answers)

    async def kill(self, name: str) -> None:
        self.processes[name].kill()
        await self.processes[name].wait()

    async def stop(self) -> None:
        for process in self.processes.values():
            if process.returncode is None:
                process.kill()
            await process.wait()


@pytest.fixture
async def engines() -> AsyncIterator[Engines]:
    made = Engines()
    try:
        await asyncio.gather(*(made.start(name) for name in NAMES))
        yield made
    finally:
        await made.stop()


async def test_users_without_a_first_byte_survive_an_engine_that_hangs_is_killed_and_comes_back(engines: Engines) -> None:
    """A silent engine holds requests; killing it sends those that have seen nothing to the other engine."""
    async with running_door(Topology(engines.facts.values()), DoorSettings(grace_s=0)) as door:
        held = door.pool.seat("sim-0")
        assert held is not None
        tally = Tally()
        load = LoadPlan(PATTERNS["steady"], door.url, "sim", rps=15, seconds=3, output_tokens=5, seed=1)
        running = asyncio.create_task(run_load(load, tally))
        await until(lambda: tally.ok >= 10)
        engines.processes["sim-0"].send_signal(signal.SIGSTOP)
        await until(lambda: held.tally.in_flight >= 3)
        begun = held.tally.first_byte.counts[:]
        await engines.kill("sim-0")
        await running
        assert held.tally.first_byte.counts == begun  # it was silent until it was killed
        assert held.tally.retries >= 3
        # Only streams already flowing when the engine stopped broke; all tries that had seen nothing were made again.
        broken = held.tally.finished["connection"] - held.tally.retries
        assert tally.outcomes == {"ok": tally.sent - broken} | ({"connection": broken} if broken else {})
        assert held.health.ejected(asyncio.get_running_loop().time())

        await engines.start("sim-0")
        door.pool.forgive("sim-0")
        after = await run_load(LoadPlan(PATTERNS["steady"], door.url, "sim", rps=30, seconds=0.5, output_tokens=2))
        assert after.outcomes == {"ok": after.sent}
        assert set(after.by_engine) == set(NAMES)
