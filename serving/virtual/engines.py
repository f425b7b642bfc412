"""Engines as columns: continuous batching with chunked prefill, decode, KV cache and preemption, for all engines at once.

Each engine has slots for the requests of its batch and a queue before them. A tick is about a second and holds many steps of
an engine: how many follows from the time of a step, and what each request gets of them follows from the step's token budget.
The step's time is that of serving.simulator.timing, of which this is the vectorised form.
"""

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

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


@dataclass(slots=True)
class Slots:
    """The requests in the batches, (engines, slots). `first` is NaN until the first token; `order` is that of admission."""

    busy: Bools
    prompt: Floats
    unread: Floats
    left: Floats
    made: Floats
    arrived: Floats
    began: Floats
    first: Floats
    order: Floats

    @classmethod
    def empty(cls, rows: int, slots: int) -> "Slots":
        """Nothing in any batch."""
        shape = (rows, slots)
        values = {field.name: np.zeros(shape) for field in fields(cls) if field.name not in {"busy", "first"}}
        return cls(busy=np.zeros(shape, dtype=np.bool_), first=np.full(shape, np.nan), **values)

    def context(self, block: Floats) -> Floats:
        """Tokens that each request holds in the KV cache, in whole blocks of `block` tokens, (engines, 1)."""
        return np.where(self.busy, np.ceil((self.prompt - self.unread + self.made) / block) * block, 0.0)


@dataclass(frozen=True, slots=True)
class Answers:
    """What became of requests in a tick: the engine's row, when it came, first token and end."""

    rows: Rows
    arrived: Floats
    first: Floats
    ended: Floats


class Engines:
    """All engines. The public columns are levers: what a fault, an order or the hardware does to an engine."""

    def __init__(self, plan: FleetPlan, rng: np.random.Generator) -> None:
        rows = len(plan.engine_names)
        models = [plan.models[number] for number in plan.engine_model.tolist()]
        self.rows = rows
        self.measures = Measures(rows, ENGINE_COUNTERS, ENGINE_HISTOGRAMS)
        self.queues = Queues(rows)
        self.slots = Slots.empty(rows, plan.slots)
        self.pauses = Pauses(rows)
        self._rng = rng
        self._base = np.array([model.step_base for model in models])
        self._per_prefill = np.array([model.per_prefill_token for model in models])
        self._per_decode = np.array([model.per_decode_sequence for model in models])
        self._budget = np.array([model.batch_tokens for model in models])
        self._admitted = 0
        self.kv_tokens = np.array([model.kv_tokens for model in models])
        self._block = np.array([model.block_tokens for model in models])[:, None]
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
        return np.asarray(self.slots.busy.sum(axis=1) + self.queues.size, dtype=np.float64)

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
        self._make_room()
        self._tell(able)
        return answers

    def drop(self, rows: Rows) -> Floats:
        """Let go of everything in the engines `rows`; returns how many requests each had."""
        had: Floats = self.in_flight()[rows]
        self.slots.busy[rows] = False
        self.queues.clear(rows)
        return had

    def leave(self, before: float) -> Rows:
        """Clients that came before `before` and have no first token give up: a row a client."""
        slots = self.slots
        gone = slots.busy & np.isnan(slots.first) & (slots.arrived < before)
        slots.busy &= ~gone
        left = np.repeat(np.arange(self.rows), gone.sum(axis=1))
        waited = self.queues.drop_before(before)
        everybody = np.concatenate([left, waited])
        self.measures.count("engine.finished.abort", everybody)
        return np.asarray(everybody)

    def abandon(self, rows: Rows, arrived: Floats, alive: Bools) -> Rows:
        """Let go of the requests of `rows` that came at `arrived`, if they are still inside; a row for each that was."""
        slots = self.slots
        inside = slots.busy[rows] & (slots.arrived[rows] == arrived[:, None])
        which, at = np.nonzero(inside)
        slots.busy[rows[which], at] = False
        gone = np.concatenate([rows[which], self.queues.drop(rows, arrived)])
        self.measures.count("engine.finished.abort", gone)
        self._tell(alive & ~self.halted)
        return np.asarray(gone)

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

    def _admit(self, now: float, able: Bools, usable: Floats, per_prefill: Floats) -> None:
        slots, queues = self.slots, self.queues
        count = slots.busy.sum(axis=1)
        held = slots.context(self._block).sum(axis=1)
        unread = np.where(slots.busy, slots.unread, 0.0).sum(axis=1)
        block = self._block[:, 0]
        reads = self._budget + usable / (per_prefill + self._base / self._budget)
        for _ in range(MOST_ROUNDS):
            room = able & (queues.size > 0) & (count < np.minimum(self.most_running, slots.busy.shape[1])) & (unread < reads)
            rows = np.flatnonzero(room)
            if len(rows) == 0:
                return
            head = queues.heads(rows)
            wants = np.ceil((unread[rows] + head.prompt) / block[rows]) * block[rows]
            fits = held[rows] + wants + self.leaked[rows] <= self.kv_tokens[rows]
            rows, head = rows[fits], head.part(fits)
            if len(rows) == 0:
                return
            queues.pop(rows)
            at = slots.busy[rows].argmin(axis=1)
            slots.busy[rows, at] = True
            slots.prompt[rows, at] = head.prompt
            slots.unread[rows, at] = head.prompt
            slots.left[rows, at] = head.output * self.runaway[rows]
            slots.made[rows, at] = 0.0
            slots.arrived[rows, at] = head.arrived
            slots.began[rows, at] = np.maximum(head.arrived, now)
            slots.first[rows, at] = np.nan
            slots.order[rows, at] = np.arange(self._admitted, self._admitted + len(rows))
            self._admitted += len(rows)
            count[rows] += 1
            unread[rows] += head.prompt

    def _work(self, now: float, dt: float, usable: Floats, factor: Floats, per_prefill: Floats) -> Answers:
        slots, measures = self.slots, self.measures
        reading = slots.busy & np.isnan(slots.first)
        decoding = slots.busy & ~reading
        running = decoding.sum(axis=1)
        unread = np.where(reading, slots.unread, 0.0)
        backlog = unread.sum(axis=1)
        step = (self._base + self._per_decode * running) * factor
        budget = np.maximum(self._budget - running, 1.0)
        chunks = backlog / budget
        reads_for = chunks * step + per_prefill * backlog
        short = reads_for > usable
        with np.errstate(invalid="ignore", divide="ignore"):
            part = np.where(short, usable / reads_for, 1.0)
        read = backlog * part
        done = reading & ~short[:, None]
        if short.any():
            self._read_in_order(np.flatnonzero(short), unread, read, done)
        after = (self._base + self._per_decode * (running + done.sum(axis=1))) * factor
        rest = np.maximum(usable - reads_for * part, 0.0)
        works = slots.busy.any(axis=1)
        steps = np.where(works, chunks * part + rest / after, 0.0)
        rows, at = np.nonzero(done)
        first = self._first_tokens(now, dt, rows, at, unread, step, per_prefill, budget, short)
        slots.unread[rows, at] = 0.0
        slots.first[rows, at] = first
        measures.observe("engine.ttft", rows, first - slots.arrived[rows, at])
        gain = np.where(decoding, steps[:, None], 0.0)
        pace = after / np.maximum(usable / dt, 1e-9)
        gain[rows, at] = 1.0 + np.maximum(now + dt - first, 0.0) / pace[rows]
        gain = np.minimum(gain, slots.left)
        slots.left -= gain
        slots.made += gain
        made = gain.sum(axis=1)
        idle = np.flatnonzero(works & ~short & ~(decoding & (slots.left > NOTHING_LEFT)).any(axis=1))
        spent = self._busy_for(now, dt, idle, gain[idle] * pace[idle, None], done[idle]) * (usable / dt)[idle]
        most = (chunks * part)[idle] + np.maximum(spent - reads_for[idle], 0.0) / after[idle]
        steps[idle] = np.minimum(steps[idle], most)
        measures.add("engine.steps", np.where(usable > 0, steps, 0.0))
        measures.add("engine.step_tokens", read + made)
        measures.add("engine.prompt_tokens", read)
        measures.add("engine.prompt_tokens.computed", read)
        measures.add("engine.generation_tokens", made)
        paced = self._chunks(unread, read, budget, short)
        self._inter_token(now, dt, running.astype(np.float64), made, paced, step, per_prefill, after)
        with np.errstate(invalid="ignore", divide="ignore"):
            self.busy_share = np.where(works, 1.0, 0.0) * (usable / dt)
        return self._finish(now, dt, gain, pace)

    def _busy_for(self, now: float, dt: float, engines: Rows, lasts: Floats, began: Bools) -> Floats:
        """Seconds of the tick in which each of `engines`, all of whose requests ended in it, had something to do.

        `lasts` (engines, slots): how long each request made tokens; `began`: whether it was read in this tick.
        """
        slots = self.slots
        starts = np.where(began, np.clip(slots.arrived[engines] - now, 0.0, dt), 0.0)
        ends = np.where(began, slots.first[engines] - now, 0.0) + lasts
        return covered(starts, np.minimum(ends, dt))

    def _read_in_order(self, rows: Rows, unread: Floats, read: Floats, done: Bools) -> None:
        """Where not all prompts can be read, those admitted first are; `done` is set for those read to their end."""
        order = np.argsort(np.where(unread[rows] > 0, self.slots.order[rows], np.inf), axis=1)
        sorted_unread = np.take_along_axis(unread[rows], order, axis=1)
        gets = np.clip(read[rows, None] - (np.cumsum(sorted_unread, axis=1) - sorted_unread), 0.0, sorted_unread)
        whole = (sorted_unread > 0) & (gets >= sorted_unread - 1e-6)
        back = np.empty_like(gets)
        np.put_along_axis(back, order, gets, axis=1)
        self.slots.unread[rows] -= back
        ended = np.zeros_like(whole)
        np.put_along_axis(ended, order, whole, axis=1)
        done[rows] = ended

    def _first_tokens(
        self,
        now: float,
        dt: float,
        rows: Rows,
        at: Rows,
        unread: Floats,
        step: Floats,
        per_prefill: Floats,
        budget: Floats,
        short: Bools,
    ) -> Floats:
        """When each of the requests that were read to their end got its first token."""
        own = unread[rows, at]
        others = unread[rows].sum(axis=1) - own
        work = (own + 0.5 * others) * per_prefill[rows] + np.ceil((own + 0.5 * others) / budget[rows]) * step[rows]
        began = np.maximum(self.slots.arrived[rows, at], now)
        late = np.where(short[rows], now + dt * self._rng.uniform(0.2, 1.0, len(rows)), began + work)
        return np.where(short[rows], late, self.pauses.end(rows, began, work))

    def _chunks(self, unread: Floats, read: Floats, budget: Floats, short: Bools) -> tuple[Rows, Floats, Floats]:
        """The steps of a tick that read prompts: their engine's row, tokens of prompt in each, and how many are alike.

        While an engine keeps up, prompts come one by one and each has its own steps; behind a queue every step is full.
        """
        rows, at = np.nonzero((unread > 0) & ~short[:, None])
        own = unread[rows, at]
        many = np.ceil(own / budget[rows])
        full = np.flatnonzero(short & (read > 0))
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
        rows = np.flatnonzero(made > 0)
        count, length = self.pauses.ended(now, dt)
        at, tokens, many = chunks
        behind = np.bincount(at, many * running[at], minlength=self.rows)
        with np.errstate(invalid="ignore", divide="ignore"):
            there = np.where(behind > made, made / behind, 1.0)
        behind = np.minimum(behind, made)
        paused = np.minimum(count * running, made - behind)
        observe = self.measures.observe
        observe("engine.inter_token", rows, plain[rows], (made - behind - paused)[rows])
        observe("engine.inter_token", at, step[at] + per_prefill[at] * tokens, many * running[at] * there[at])
        some = np.flatnonzero(paused > 0)
        observe("engine.inter_token", some, length[some] + plain[some], paused[some])

    def _finish(self, now: float, dt: float, gain: Floats, pace: Floats) -> Answers:
        slots, measures = self.slots, self.measures
        rows, at = np.nonzero(slots.busy & ~np.isnan(slots.first) & (slots.left <= NOTHING_LEFT))
        arrived, first = slots.arrived[rows, at], slots.first[rows, at]
        ended = np.minimum(np.maximum(first, now) + gain[rows, at] * pace[rows], np.maximum(now + dt, first))
        slots.busy[rows, at] = False
        measures.observe("engine.e2e", rows, ended - arrived)
        measures.observe("engine.queue_time", rows, slots.began[rows, at] - arrived)
        measures.observe("engine.prefill_time", rows, first - slots.began[rows, at])
        measures.observe("engine.decode_time", rows, ended - first)
        measures.observe("engine.prompt_length", rows, slots.prompt[rows, at])
        measures.observe("engine.generation_length", rows, slots.made[rows, at])
        long = self._rng.uniform(size=len(rows)) < np.where(self.runaway[rows] > 1.0, 0.95, 0.1)
        measures.count("engine.finished.length", rows[long])
        measures.count("engine.finished.stop", rows[~long])
        garbage = self._rng.uniform(size=len(rows)) < self.corrupt[rows]
        measures.count("engine.corrupted", rows[garbage])
        return Answers(rows, arrived, first, ended)

    def _make_room(self) -> None:
        """Preempt the latest admitted while a KV cache is over its end: they are read again from the head of the queue."""
        slots = self.slots
        context = slots.context(self._block)
        over = context.sum(axis=1) + self.leaked - self.kv_tokens
        while True:
            rows = np.flatnonzero((over > 0) & (slots.busy.sum(axis=1) > 1))
            if len(rows) == 0:
                return
            at = np.where(slots.busy[rows], slots.order[rows], -1.0).argmax(axis=1)
            over[rows] -= context[rows, at]
            slots.busy[rows, at] = False
            left = np.maximum(slots.left[rows, at], 1.0) / self.runaway[rows]
            again = Requests(rows, slots.arrived[rows, at], slots.prompt[rows, at] + slots.made[rows, at], left)
            self.queues.push_front(again)
            self.measures.count("engine.preemptions", rows)

    def _tell(self, able: Bools) -> None:
        """Write the gauges of the engines that step; the others' keep what they said last."""
        slots = self.slots
        waiting = self.queues.size.astype(np.float64)
        usage = np.clip((slots.context(self._block).sum(axis=1) + self.leaked) / self.kv_tokens, 0.0, 1.0)
        for gauge, value in (
            (self.running, slots.busy.sum(axis=1)),
            (self.waiting, waiting),
            (self.deferred, np.where(self.held, waiting, 0.0)),
            (self.kv_usage, usage),
        ):
            gauge[able] = value[able]
