"""Runs one engine model in real time on an event loop: wakes when a step is due, hands tokens to those who wait."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from serving.clock import Clock
from serving.simulator.batching import BatchingEngine
from serving.simulator.experts import ExpertCounts
from serving.simulator.frontend import Delivery, Finished, Frontend
from serving.simulator.request import Request, Step
from serving.simulator.scheduling import Pause

# Later than this, the machine or the whole process stood still: the step ends then, instead of many at once to catch up.
LATE = 0.25


@dataclass(frozen=True, slots=True)
class Aborted:
    """A request that was aborted from the outside, not by its client: it is told so."""

    id: str


@dataclass(frozen=True, slots=True)
class EngineDied:
    """The engine is gone; nothing more will come."""


News = Delivery | Aborted | EngineDied


class EngineDriver:
    """One engine behind an API, in real time. All methods are called on the event loop's thread.

    While `answering` is not set the API side stands still: steps go on, but nobody hears of them until it is set again.
    """

    def __init__(
        self,
        engine: BatchingEngine,
        frontend: Frontend,
        clock: Clock,
        *,
        count_client_aborts: bool = False,
        on_finished: Callable[[Finished], None] | None = None,
        experts: ExpertCounts | None = None,
    ) -> None:
        self.engine = engine
        self.frontend = frontend
        self.clock = clock
        self.experts = experts
        self.answering = asyncio.Event()
        self.answering.set()
        self.dead = False
        self._count_client_aborts = count_client_aborts
        self._on_finished = on_finished
        self._moving = asyncio.Event()
        self._moving.set()
        self._ticked = asyncio.Event()
        self._waiters: dict[str, asyncio.Queue[News]] = {}
        self._unheard: list[Step] = []
        self._timer: asyncio.TimerHandle | None = None

    def submit(self, request: Request, max_tokens: int, waiter: "asyncio.Queue[News]") -> None:
        """Send a request to the engine; `waiter` gets all that comes of it."""
        self.frontend.track(request, max_tokens)
        self._waiters[request.id] = waiter
        with self.changing() as now:
            self.engine.add(request, now)

    def leave(self, request_id: str) -> None:
        """The client of a request is gone: abort it. Nothing happens where it has ended."""
        if self.frontend.forget(request_id):
            self._waiters.pop(request_id, None)
            if self._count_client_aborts:
                self.frontend.count_abort()
            with self.changing() as now:
                self.engine.abort((request_id,), now)

    def abort(self, request_ids: tuple[str, ...]) -> None:
        """Abort requests from the outside; their clients are told, the counters are not, as in vLLM."""
        for request_id in request_ids:
            if self.frontend.forget(request_id):
                self._waiters.pop(request_id).put_nowait(Aborted(request_id))
        with self.changing() as now:
            self.engine.abort(request_ids, now)

    @contextmanager
    def changing(self) -> Iterator[float]:
        """Do something to the engine at the moment that is given, then see to what is due."""
        self._tick()
        yield self.clock.monotonic()
        self._tick()
        if self.engine.halted:
            self._moving.clear()
        else:
            self._moving.set()

    async def reach_engine(self) -> None:
        """Wait until the engine takes calls: not while it hangs."""
        await self._moving.wait()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until the engine is as `condition` says; it is asked anew whenever the engine has moved."""
        while not condition():
            self._ticked.clear()
            await self._ticked.wait()

    def set_answering(self, *, answering: bool) -> None:
        """Let the API side stand still or go on; what it missed is heard of at once."""
        if not answering:
            self.answering.clear()
            return
        self.answering.set()
        missed, self._unheard = self._unheard, []
        for step in missed:
            self._hear(step)

    def pause(self, pause: Pause) -> None:
        """Pause or resume the scheduler."""
        with self.changing() as now:
            self.engine.set_pause(pause, now)

    def die(self) -> None:
        """The engine is dead: everybody who waits is told, nothing runs any more."""
        self.dead = True
        self.close()
        for waiter in self._waiters.values():
            waiter.put_nowait(EngineDied())
        self._waiters.clear()

    def close(self) -> None:
        """Stop the clockwork."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self) -> None:
        self.close()
        if self.dead:
            return
        now = self.clock.monotonic()
        due = self.engine.next_event()
        if due is not None and now - due > LATE:
            self.engine.delay(now - due)
        for step in self.engine.advance(now):
            if self.experts is not None:
                self.experts.count(step.scheduled)
            if self.answering.is_set():
                self._hear(step)
            else:
                self._unheard.append(step)
        self._ticked.set()
        due = self.engine.next_event()
        if due is not None:
            delay = max(0.0, due - self.clock.monotonic())
            self._timer = asyncio.get_running_loop().call_later(delay, self._tick)

    def _hear(self, step: Step) -> None:
        for delivery in self.frontend.record(step, self.clock.monotonic()):
            waiter = self._waiters.get(delivery.id)
            if delivery.finished is not None:
                self._waiters.pop(delivery.id, None)
                if self._on_finished is not None:
                    self._on_finished(delivery.finished)
            if waiter is not None:
                waiter.put_nowait(delivery)
