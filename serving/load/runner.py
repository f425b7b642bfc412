"""Sends a plan in an open loop: clients arrive when the plan says, whether or not earlier ones have been answered."""

import asyncio
from collections.abc import Callable
from typing import IO

import aiohttp
import orjson

from serving.clock import Clock, SystemClock
from serving.load.arrivals import Arrival, LoadPlan, arrivals
from serving.load.client import Client, session
from serving.load.tally import Finished, Tally

Progress = Callable[[float, Tally], None]
PROGRESS_S = 10.0


async def run_load(
    plan: LoadPlan,
    tally: Tally | None = None,
    *,
    log: IO[bytes] | None = None,
    progress: Progress | None = None,
    clock: Clock | None = None,
) -> Tally:
    """Make the load, and return what became of it.

    `tally` may be given to watch it from outside, `log` gets one JSON line for each finished request, `progress` is called
    every 10 s with the seconds since the start. When this task is cancelled, every client leaves at once, counted as
    client_closed, and CancelledError goes on to the caller.
    """
    run = _Run(plan, tally if tally is not None else Tally(), log, clock or SystemClock())
    reporter = asyncio.create_task(_report(run, progress)) if progress is not None else None
    try:
        await run.make()
    finally:
        await _ended([reporter] if reporter is not None else [])
    return run.tally


class _Run:
    def __init__(self, plan: LoadPlan, tally: Tally, log: IO[bytes] | None, clock: Clock) -> None:
        self.plan = plan
        self.tally = tally
        self.start = asyncio.get_running_loop().time()
        self._log = log
        self._clock = clock
        self._clients: set[asyncio.Task[None]] = set()

    async def make(self) -> None:
        async with session() as http:
            try:
                for arrival in arrivals(self.plan):
                    await self._until(arrival.at)
                    self._arrive(http, arrival)
                await self._until(self.plan.duration)
                if not self.plan.pattern.leave_together:
                    await asyncio.gather(*self._clients)
            finally:
                await _ended(self._clients)

    async def _until(self, at: float) -> None:
        await asyncio.sleep(max(0.0, self.start + at - asyncio.get_running_loop().time()))

    def _arrive(self, http: aiohttp.ClientSession, arrival: Arrival) -> None:
        if self.tally.in_flight >= self.plan.max_in_flight:
            self.tally.not_sent += 1
            return
        client = asyncio.create_task(self._client(http, arrival))
        self._clients.add(client)
        client.add_done_callback(self._clients.discard)

    async def _client(self, http: aiohttp.ClientSession, arrival: Arrival) -> None:
        sent_at, client, outcome = self._clock.now(), Client(http, self.plan, arrival), "client_closed"
        self.tally.sent += 1
        self.tally.in_flight += 1
        try:
            outcome = await client.ask()
        finally:
            self.tally.in_flight -= 1
            ended = client.finished(outcome)
            self.tally.add(ended)
            self._write(arrival, ended, sent_at)

    def _write(self, arrival: Arrival, ended: Finished, sent_at: float) -> None:
        if self._log is None:
            return
        line = {
            "t": round(sent_at, 3),
            "pattern": self.plan.pattern.name,
            "prompt_tokens": len(arrival.prompt),
            "output_tokens": arrival.max_tokens,
            "outcome": ended.outcome,
            "ttft": None if ended.ttft is None else round(ended.ttft, 4),
            "e2e": round(ended.e2e, 4),
            "served_by": ended.served_by,
        }
        self._log.write(orjson.dumps(line) + b"\n")


async def _report(run: _Run, progress: Progress) -> None:
    while True:
        await asyncio.sleep(PROGRESS_S)
        progress(asyncio.get_running_loop().time() - run.start, run.tally)


async def _ended(tasks: "set[asyncio.Task[None]] | list[asyncio.Task[None]]") -> None:
    """Cancel what still runs and wait until it has ended."""
    running = list(tasks)
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
