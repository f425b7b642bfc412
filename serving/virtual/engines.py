"""Engines as columns: continuous batching with chunked prefill, decode, KV cache and preemption, for all engines at once.

Each engine has a batch of so many requests and a queue before it. A tick is a second or a few and holds many steps of an
engine: how many follows from the time of a step, and what each request gets of them follows from the step's token budget.
The step's time is that of serving.simulator.timing, of which this is the vectorised form.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from serving.virtual.batches import Batches
from serving.virtual.intervals import covered
from serving.virtual.measures import ENGINE_COUNTERS, ENGINE_HISTOGRAMS, Measures
from serving.virtual.pauses import Pauses
from serving.virtual.plan import FleetPlan
from serving.virtual.queues import Queues, Requests

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]
Bools = NDArray[np.bool_]

JITTER = 0.06  # standard deviation of the logarithm of a tick's step time, beside the fleet's own noise
NOTHING_LEFT = 1e-9  # of a token
MOST_ROUNDS = 32  # of admission in a tick


@dataclass(frozen=True, slots=True)
class Answers:
    """What became of requests in a tick: the engine's row, when it came, first token and end."""

    rows: Rows
    arrived: Floats
    first: Floats
    ended: Floats


@dataclass(slots=True)
class _Room:
    """What admission goes by, each (engines,).

    Requests in the batch and the most of them; tokens they have still to read, and how many may wait for it in a tick; free
    tokens of the KV cache as at the tick's beginning, for what is admitted holds nothing until it is read.
    """

    count: Floats
    unread: Floats
    free: Floats
    most: Floats
    reads: Floats


class Engines:
    """All engines. The public columns are levers: what a fault, an order or the hardware does to an engine."""

    def __init__(self, plan: FleetPlan, rng: np.random.Generator) -> None:
        rows = len(plan.engine_names)
        models = [plan.models[number] for number in plan.engine_model.tolist()]
        self.rows = rows
        self.measures = Measures(rows, ENGINE_COUNTERS, ENGINE_HISTOGRAMS)
        self.queues = Queues(rows)
        self.batches = Batches()
        self.pauses = Pauses(rows)
        self._rng = rng
        self._base = np.array([model.step_base for model in models])
        self._per_prefill = np.array([model.per_prefill_token for model in models])
        self._per_decode = np.array([model.per_decode_sequence for model in models])
        self._budget = np.array([model.batch_tokens for model in models])
        self.kv_tokens = np.array([model.kv_tokens for model in models])
        self._block = np.array([model.block_tokens for model in models])
        self._slots = float(plan.slots)
        self.halted = np.zeros(rows, dtype=np.bool_)  # the core or a worker stands still
        self.held = np.zeros(rows, dtype=np.bool_)  # admits nobody, though there is room
        self.slow = np.ones(rows)  # a step takes so many times as long, by whatever cause, hardware left out
        self.hardware = np.ones(rows)  # the same, by the slowest GPU, node or link under it
        self.leaked = np.zeros(rows)  # KV tokens that nobody holds and nobody gets
        self.most_running = np.full(rows, float(plan.slots))
        self.runaway = np.ones(rows)  # answers are so many times as long
        self.corrupt = np.zeros(rows)  # share of answers that are garbage
        self.running = np.zeros(rows)  # as the gauges say: written by a step only
        self.waiting = np.zeros(rows)
        self.deferred = np.zeros(rows)
        self.kv_usage = np.zeros(rows)
        self.busy_share = np.zeros(rows)  # of the last tick

    def in_flight(self) -> Floats:
        """Requests inside each engine."""
        return self.batches.inside(self.rows) + self.queues.size

    def take(self, requests: Requests) -> None:
        """New requests for their engines' queues; what a full queue cannot hold is rejected."""
        rejected = self.queues.push(requests)
        if len(rejected):
            self.measures.count("engine.rejected", rejected)

    def tick(self, now: float, dt: float, alive: Bools) -> Answers:
        """Go on from `now` to `now + dt`. `alive`: engines whose process runs."""
        able = alive & ~self.halted
        usable = np.where(able, dt - self.pauses.within(now, dt), 0.0)
        factor = self.slow * self.hardware * np.exp(self._rng.normal(0.0, JITTER, self.rows))
        per_prefill = self._per_prefill * factor
        self._admit(now, able & ~self.held, usable, per_prefill)
        answers = self._work(now, dt, usable, factor, per_prefill)
        self._tell(able, self._make_room())
        return answers

    def drop(self, rows: Rows) -> Floats:
        """Let go of everything in the engines `rows`; returns how many requests each had."""
        had: Floats = self.in_flight()[rows]
        if len(rows):
            self.batches.keep(~np.isin(self.batches.rows, rows))
            self.queues.clear(rows)
        return had

    def leave(self, before: float) -> Rows:
        """Clients that came before `before` and have no first token give up: a row a client."""
        batches = self.batches
        gone = np.isnan(batches.first) & (batches.arrived < before)
        everybody = np.concatenate([batches.rows[gone], self.queues.drop_before(before)])
        if len(everybody):
            batches.keep(~gone)
            self.measures.count("engine.finished.abort", everybody)
        return everybody

    def abandon(self, rows: Rows, arrived: Floats, alive: Bools) -> Rows:
        """Let go of the requests of `rows` that came at `arrived`, if they are still inside; a row for each that was."""
        inside = self.batches.find(rows, arrived)
        gone = np.concatenate([self.batches.rows[inside], self.queues.drop(rows, arrived)])
        self.batches.keep(~inside)
        self.measures.count("engine.finished.abort", gone)
        self._tell(alive & ~self.halted, self._held())
        return gone

    def restart(self, rows: Rows) -> None:
        """A new process: nothing inside, all counters at zero, and whatever was wrong with the old one gone."""
        self.drop(rows)
        self.measures.forget(rows)
        self.halted[rows] = False
        self.held[rows] = False
        self.leaked[rows] = 0.0
        self.slow[rows] = 1.0
        self.pauses.length[rows] = 0.0
        self.corrupt[rows] = 0.0
        self.runaway[rows] = 1.0
        for gauge in (self.running, self.waiting, self.deferred, self.kv_usage):
            gauge[rows] = 0.0

    def _held(self) -> Floats:
        """Tokens of the KV cache that the batch of each engine holds."""
        return self.batches.total(self.batches.context(self._block), self.rows)

    def _admit(self, now: float, able: Bools, usable: Floats, per_prefill: Floats) -> None:
        waiting = able & (self.queues.size > 0)
        if not waiting.any():
            return
        batches = self.batches
        state = _Room(
            count=batches.inside(self.rows),
            unread=batches.total(batches.unread, self.rows),
            free=self.kv_tokens - self.leaked - self._held(),
            most=np.minimum(self.most_running, self._slots),
            reads=self._budget + usable / (per_prefill + self._base / self._budget),
        )
        admitted = [self._admit_all(waiting, state), *self._admit_in_turn(waiting, state)]
        for new in admitted:
            batches.add(new, new.output * self.runaway[new.rows], np.maximum(new.arrived, now))

    def _admit_all(self, waiting: Bools, state: _Room) -> Requests:
        """The whole queue of every engine that has room for all of it; those are no longer `waiting`."""
        rows = waiting.nonzero()[0]
        queued = self.queues.all_of(rows)
        unread = state.unread + np.bincount(queued.rows, queued.prompt, minlength=self.rows)
        wants = np.ceil(unread / self._block) * self._block
        fits = (state.count + self.queues.size <= state.most) & (unread < state.reads) & (wants <= state.free)
        waiting &= ~fits
        self.queues.clear(rows[fits[rows]])
        return queued.part(fits[queued.rows])

    def _admit_in_turn(self, waiting: Bools, state: _Room) -> Iterator[Requests]:
        """One after the other, as long as there is room."""
        queues, block = self.queues, self._block
        for _ in range(MOST_ROUNDS):
            rows = (waiting & (queues.size > 0) & (state.count < state.most) & (state.unread < state.reads)).nonzero()[0]
            if len(rows) == 0:
                return
            head = queues.heads(rows)
            wants = np.ceil((state.unread[rows] + head.prompt) / block[rows]) * block[rows]
            fits = wants <= state.free[rows]
            rows, head = rows[fits], head.part(fits)
            if len(rows) == 0:
                return
            queues.pop(rows)
            state.count[rows] += 1
            state.unread[rows] += head.prompt
            yield head

    def _work(self, now: float, dt: float, usable: Floats, factor: Floats, per_prefill: Floats) -> Answers:
        batches, measures, engines = self.batches, self.measures, self.rows
        rows, unread = batches.rows, batches.unread.copy()
        reading = np.isnan(batches.first)
        running = batches.total(~reading, engines)
        backlog = batches.total(unread, engines)
        step = (self._base + self._per_decode * running) * factor
        budget = np.maximum(self._budget - running, 1.0)
        chunks = backlog / budget
        reads_for = chunks * step + per_prefill * backlog
        short = reads_for > usable
        part = np.where(short, usable / np.where(short, reads_for, 1.0), 1.0)
        read = backlog * part
        done = reading & ~short[rows]
        if short.any():
            self._read_in_order((reading & short[rows]).nonzero()[0], read, done)
        after = (self._base + self._per_decode * (running + batches.total(done, engines))) * factor
        rest = np.maximum(usable - reads_for * part, 0.0)
        works = batches.inside(engines) > 0
        steps = np.where(works, chunks * part + rest / after, 0.0)
        at = done.nonzero()[0]
        first = self._first_tokens(now, dt, at, unread, backlog, step, per_prefill, budget, short)
        batches.unread[at] = 0.0
        batches.first[at] = first
        measures.observe("engine.ttft", rows[at], first - batches.arrived[at])
        gain = np.where(reading, 0.0, steps[rows])
        pace = after / np.maximum(usable / dt, 1e-9)
        gain[at] = 1.0 + np.maximum(now + dt - first, 0.0) / pace[rows[at]]
        gain = np.minimum(gain, batches.left)
        batches.left[:] -= gain
        batches.made[:] += gain
        made = batches.total(gain, engines)
        going_on = batches.total(~reading & (batches.left > NOTHING_LEFT), engines)
        idle = works & ~short & (going_on == 0)
        spent = self._busy_for(now, dt, idle[rows], gain * pace[rows], done) * (usable / dt)
        most = chunks * part + np.maximum(spent - reads_for, 0.0) / after
        steps = np.where(idle, np.minimum(steps, most), steps)
        measures.add("engine.steps", np.where(usable > 0, steps, 0.0))
        measures.add("engine.step_tokens", read + made)
        measures.add("engine.prompt_tokens", read)
        measures.add("engine.prompt_tokens.computed", read)
        measures.add("engine.generation_tokens", made)
        paced = self._chunks(unread, read, budget, short)
        self._inter_token(now, dt, running, made, paced, step, per_prefill, after)
        self.busy_share = np.where(works, usable / dt, 0.0)
        return self._finish(now, dt, gain, pace)

    def _busy_for(self, now: float, dt: float, idle: Bools, lasts: Floats, began: Bools) -> Floats:
        """Seconds of the tick in which each engine, all of whose requests ended in it, had something to do.

        `idle`: whether a request is in such an engine; `lasts`: for how long it made tokens; `began`: whether it was read in
        this tick.
        """
        batches, some = self.batches, idle.nonzero()[0]
        fresh = began[some]
        starts = np.where(fresh, np.clip(batches.arrived[some] - now, 0.0, dt), 0.0)
        ends = np.where(fresh, batches.first[some] - now, 0.0) + lasts[some]
        return covered(batches.rows[some], starts, np.minimum(ends, dt), self.rows)

    def _read_in_order(self, some: Rows, read: Floats, done: Bools) -> None:
        """Of `some`, whose engines cannot read them all, those admitted first are read; sets `done` for those read whole."""
        unread = self.batches.unread
        order = some[np.argsort(self.batches.rows[some], kind="stable")]
        rows, wants = self.batches.rows[order], unread[order]
        ahead = np.cumsum(wants) - wants
        gets = np.clip(read[rows] - (ahead - ahead[np.searchsorted(rows, rows)]), 0.0, wants)
        unread[order] -= gets
        done[order] = (wants > 0) & (gets >= wants - 1e-6)

    def _first_tokens(
        self,
        now: float,
        dt: float,
        at: Rows,
        unread: Floats,
        backlog: Floats,
        step: Floats,
        per_prefill: Floats,
        budget: Floats,
        short: Bools,
    ) -> Floats:
        """When each of the requests `at`, which were read to their end, got its first token."""
        rows, own = self.batches.rows[at], unread[at]
        first = own + 0.5 * (backlog[rows] - own)
        work = first * per_prefill[rows] + np.ceil(first / budget[rows]) * step[rows]
        began = np.maximum(self.batches.arrived[at], now)
        late = now + dt * self._rng.uniform(0.2, 1.0, len(rows))
        return np.where(short[rows], late, self.pauses.end(rows, began, work))

    def _chunks(self, unread: Floats, read: Floats, budget: Floats, short: Bools) -> tuple[Rows, Floats, Floats]:
        """The steps of a tick that read prompts: their engine's row, tokens of prompt in each, and how many are alike.

        While an engine keeps up, prompts come one by one and each has its own steps; behind a queue every step is full.
        """
        at = ((unread > 0) & ~short[self.batches.rows]).nonzero()[0]
        rows, own = self.batches.rows[at], unread[at]
        many = np.ceil(own / budget[rows])
        full = (short & (read > 0)).nonzero()[0]
        return (
            np.concatenate([rows, full]),
            np.concatenate([own / many, budget[full]]),
            np.concatenate([many, (read / budget)[full]]),
        )

    def _inter_token(
        self,
        now: float,
        dt: float,
        running: Floats,
        made: Floats,
        chunks: tuple[Rows, Floats, Floats],
        step: Floats,
        per_prefill: Floats,
        plain: Floats,
    ) -> None:
        """The waits between tokens of a tick: few behind a chunk of prefill or a pause, the others as a step takes."""
        rows = (made > 0).nonzero()[0]
        count, length = self.pauses.ended(now, dt)
        at, tokens, many = chunks
        behind = np.bincount(at, many * running[at], minlength=self.rows)
        there = np.minimum(made / np.maximum(behind, NOTHING_LEFT), 1.0)
        behind = np.minimum(behind, made)
        paused = np.minimum(count * running, made - behind)
        observe = self.measures.observe
        observe("engine.inter_token", rows, plain[rows], (made - behind - paused)[rows])
        observe("engine.inter_token", at, step[at] + per_prefill[at] * tokens, many * running[at] * there[at])
        some = (paused > 0).nonzero()[0]
        observe("engine.inter_token", some, length[some] + plain[some], paused[some])

    def _finish(self, now: float, dt: float, gain: Floats, pace: Floats) -> Answers:
        batches, measures = self.batches, self.measures
        over = ~np.isnan(batches.first) & (batches.left <= NOTHING_LEFT)
        at = over.nonzero()[0]
        rows, arrived, began, first = batches.rows[at], batches.arrived[at], batches.began[at], batches.first[at]
        ended = np.minimum(np.maximum(first, now) + gain[at] * pace[rows], np.maximum(now + dt, first))
        measures.observe("engine.e2e", rows, ended - arrived)
        measures.observe("engine.queue_time", rows, began - arrived)
        measures.observe("engine.prefill_time", rows, first - began)
        measures.observe("engine.decode_time", rows, ended - first)
        measures.observe("engine.prompt_length", rows, batches.prompt[at])
        measures.observe("engine.generation_length", rows, batches.made[at])
        long = self._rng.uniform(size=len(rows)) < np.where(self.runaway[rows] > 1.0, 0.95, 0.1)
        measures.count("engine.finished.length", rows[long])
        measures.count("engine.finished.stop", rows[~long])
        garbage = self._rng.uniform(size=len(rows)) < self.corrupt[rows]
        measures.count("engine.corrupted", rows[garbage])
        if len(at):
            batches.keep(~over)
        return Answers(rows, arrived, first, ended)

    def _make_room(self) -> Floats:
        """Preempt the latest admitted while a KV cache is over its end: they are read again from the head of the queue.

        Returns the tokens that each batch then holds.
        """
        batches = self.batches
        context = batches.context(self._block)
        held = batches.total(context, self.rows)
        while True:
            crowded = (held + self.leaked > self.kv_tokens) & (batches.inside(self.rows) > 1)
            rows = crowded.nonzero()[0]
            if len(rows) == 0:
                return held
            at = batches.latest(self.rows)[rows]
            held[rows] -= context[at]
            left = np.maximum(batches.left[at], 1.0) / self.runaway[rows]
            again = Requests(rows, batches.arrived[at], batches.prompt[at] + batches.made[at], left)
            self.queues.push_front(again)
            self.measures.count("engine.preemptions", rows)
            stays = np.ones(len(context), dtype=np.bool_)
            stays[at] = False
            context = context[stays]
            batches.keep(stays)

    def _tell(self, able: Bools, held: Floats) -> None:
        """Write the gauges of the engines that step; the others' keep what they said last."""
        waiting = self.queues.size.astype(np.float64)
        usage = np.clip((held + self.leaked) / self.kv_tokens, 0.0, 1.0)
        for gauge, value in (
            (self.running, self.batches.inside(self.rows)),
            (self.waiting, waiting),
            (self.deferred, np.where(self.held, waiting, 0.0)),
            (self.kv_usage, usage),
        ):
            gauge[able] = value[able]
