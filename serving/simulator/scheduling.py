"""The scheduler: which sequence computes how many tokens in the next step, and who has to give way.

The order of service, the admission rules and the preemption rule are those of vLLM's scheduler in version 0.32.
"""

import bisect
from dataclasses import dataclass, field
from enum import StrEnum

from serving.simulator.blocks import BlockPool, Holding
from serving.simulator.request import FinishReason, Request, SchedulerNumbers


class Policy(StrEnum):
    """In which order waiting requests are served, by vLLM's names."""

    FCFS = "fcfs"
    PRIORITY = "priority"


class Pause(StrEnum):
    """How far the scheduler is paused: not at all, for new requests, or for all."""

    NONE = "none"
    NEW = "new"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class EngineShape:
    """The limits of an engine, by vLLM's names."""

    num_gpu_blocks: int = 192
    block_size: int = 128
    max_num_seqs: int = 16
    max_num_batched_tokens: int = 2048
    max_model_len: int = 4096
    policy: Policy = Policy.FCFS
    prefix_caching: bool = True

    def __post_init__(self) -> None:
        if self.usable_blocks * self.block_size < self.max_model_len:
            raise ValueError(
                f"{self.num_gpu_blocks} KV blocks of {self.block_size} tokens (one of them is reserved) cannot hold a single"
                f" request of max_model_len {self.max_model_len}: raise num_gpu_blocks to at least"
                f" {-(-self.max_model_len // self.block_size) + 1} or lower max_model_len"
            )

    @property
    def usable_blocks(self) -> int:
        """Blocks that sequences can hold; vLLM keeps one for itself, its null block."""
        return self.num_gpu_blocks - 1

    def blocks_for(self, tokens: int) -> int:
        """Blocks that hold so many tokens."""
        return -(-tokens // self.block_size)


@dataclass(slots=True, eq=False)
class Sequence:
    """A request inside the scheduler. `computed` of its tokens have their KV in the blocks it holds."""

    request: Request
    rank: tuple[int, float, int]
    queued_at: float
    holding: Holding = field(default_factory=Holding)
    computed: int = 0
    generated: int = 0
    scheduled_at: float | None = None
    cached_tokens: int = 0
    preemptions: int = 0

    @property
    def tokens(self) -> int:
        """Tokens known so far: the prompt and what was generated."""
        return self.request.prompt_tokens + self.generated

    @property
    def ready_at(self) -> float:
        """Until when it is deferred."""
        return self.queued_at + self.request.defer_seconds


@dataclass(slots=True)
class Plan:
    """One step as planned: tokens by request id, and what planning it led to."""

    budget: int
    scheduled: dict[str, tuple[Sequence, int]] = field(default_factory=dict)
    preempted: int = 0
    prefix_queries: int = 0
    prefix_hits: int = 0

    @property
    def prefill_tokens(self) -> int:
        """Tokens of sequences that compute a prompt, or compute again what a preemption lost."""
        return sum(tokens for sequence, tokens in self.scheduled.values() if not _decodes(sequence))

    @property
    def decode_sequences(self) -> int:
        """Sequences that compute their latest token only."""
        return sum(_decodes(sequence) for sequence, _ in self.scheduled.values())

    def schedule(self, sequence: Sequence, tokens: int) -> None:
        self.scheduled[sequence.request.id] = (sequence, tokens)
        self.budget -= tokens

    def withdraw(self, sequence: Sequence) -> None:
        _, tokens = self.scheduled.pop(sequence.request.id, (sequence, 0))
        self.budget += tokens


def _decodes(sequence: Sequence) -> bool:
    return sequence.generated > 0 and sequence.tokens - sequence.computed == 1


def _rank(sequence: Sequence) -> tuple[int, float, int]:
    return sequence.rank


class Scheduler:
    """Keeps the running and the waiting sequences of one engine and their KV blocks."""

    def __init__(self, shape: EngineShape) -> None:
        self.shape = shape
        self.pool = BlockPool(shape.usable_blocks)
        self.pause = Pause.NONE
        self.running: list[Sequence] = []
        self.waiting: list[Sequence] = []
        self._deferred: set[str] = set()
        self._arrivals = 0

    @property
    def unfinished(self) -> int:
        """Requests held, running or waiting."""
        return len(self.running) + len(self.waiting)

    @property
    def schedulable(self) -> bool:
        """Whether there is a request that the pause leaves to be served."""
        if self.pause is Pause.ALL:
            return False
        return bool(self.running or (self.waiting and self.pause is Pause.NONE))

    def next_ready(self, now: float) -> float | None:
        """When the next deferred request becomes ready."""
        return min((each.ready_at for each in self.waiting if each.ready_at > now), default=None)

    def numbers(self) -> SchedulerNumbers:
        """What the gauges are set from."""
        deferred = sum(each.request.id in self._deferred for each in self.waiting) if self._deferred else 0
        return SchedulerNumbers(len(self.running), len(self.waiting) - deferred, deferred, self.pool.usage)

    def enqueue(self, request: Request, now: float) -> None:
        """Take a request in as waiting."""
        self._arrivals += 1
        by_priority = self.shape.policy is Policy.PRIORITY
        rank = (request.priority, request.arrival, self._arrivals) if by_priority else (0, 0.0, self._arrivals)
        bisect.insort(self.waiting, Sequence(request, rank, queued_at=now), key=_rank)

    def drop(self, wanted: frozenset[str] | None) -> list[Sequence]:
        """Let go of the requests `wanted` (None: all) with their blocks; returns those that it had."""
        dropped = [each for each in (*self.running, *self.waiting) if wanted is None or each.request.id in wanted]
        for sequence in dropped:
            self.pool.release(sequence.holding)
        gone = {each.request.id for each in dropped}
        self.running = [each for each in self.running if each.request.id not in gone]
        self.waiting = [each for each in self.waiting if each.request.id not in gone]
        return dropped

    def plan(self, now: float) -> Plan:
        """Plan the next step: blocks are taken and requests admitted; tokens count as computed only when it ends."""
        plan = Plan(self.shape.max_num_batched_tokens)
        self._deferred.clear()
        if self.pause is not Pause.ALL:
            self._continue_running(plan)
        if self.pause is Pause.NONE and not plan.preempted:
            self._admit(plan, now)
        return plan

    def computed(self, sequence: Sequence, tokens: int) -> bool:
        """Count `tokens` as computed. True where the sequence has caught up, so that a new token was sampled."""
        sequence.computed += tokens
        if self.shape.prefix_caching:
            full = sequence.request.prefix_keys[: sequence.computed // self.shape.block_size]
            if len(full) > len(sequence.holding.keys):
                self.pool.publish(sequence.holding, full)
        return sequence.computed == sequence.tokens

    def generated(self, sequence: Sequence) -> FinishReason | None:
        """Count one new token; ends the sequence, and returns why, where it was the last."""
        sequence.generated += 1
        if sequence.generated < sequence.request.output_tokens:
            return None
        self.running.remove(sequence)
        self.pool.release(sequence.holding)
        return sequence.request.finish

    def _continue_running(self, plan: Plan) -> None:
        index = 0
        while index < len(self.running) and plan.budget > 0:
            sequence = self.running[index]
            tokens = min(sequence.tokens - sequence.computed, plan.budget)
            while not self.pool.grow(sequence.holding, self.shape.blocks_for(sequence.computed + tokens)):
                victim = self._victim()
                if self.running.index(victim) < index:
                    index -= 1
                self._preempt(victim, plan)
                if victim is sequence:
                    return
            plan.schedule(sequence, tokens)
            index += 1

    def _victim(self) -> Sequence:
        """Who gives way: the latest admitted, or the one of lowest priority."""
        return max(self.running, key=_rank) if self.shape.policy is Policy.PRIORITY else self.running[-1]

    def _preempt(self, victim: Sequence, plan: Plan) -> None:
        plan.withdraw(victim)
        plan.preempted += 1
        self.running.remove(victim)
        self.pool.release(victim.holding)
        victim.computed = 0
        victim.preemptions += 1
        bisect.insort(self.waiting, victim, key=_rank)

    def _admit(self, plan: Plan, now: float) -> None:
        index = 0
        while index < len(self.waiting) and plan.budget > 0 and len(self.running) < self.shape.max_num_seqs:
            sequence = self.waiting[index]
            if sequence.ready_at > now:
                self._deferred.add(sequence.request.id)
                index += 1
                continue
            if not self._take_blocks(sequence, plan):
                return  # the head of the queue waits for blocks, and everybody behind it with it
            del self.waiting[index]
            self.running.append(sequence)
            if sequence.scheduled_at is None:
                sequence.scheduled_at = now

    def _take_blocks(self, sequence: Sequence, plan: Plan) -> bool:
        """Find its cached prefix and its first blocks; all tokens known so far must fit, though only a chunk is taken."""
        # The last token is computed in any case, for something must be sampled from it.
        keys = sequence.request.prefix_keys[: (sequence.tokens - 1) // self.shape.block_size]
        hits = keys[: self.pool.match(keys)] if self.shape.prefix_caching else ()
        needed = self.shape.blocks_for(sequence.tokens) - len(hits) + self.pool.idle_among(hits)
        if needed > self.pool.free:
            return False
        cached = len(hits) * self.shape.block_size
        tokens = min(sequence.tokens - cached, plan.budget)
        self.pool.adopt(sequence.holding, hits)
        self.pool.grow(sequence.holding, self.shape.blocks_for(cached + tokens))
        sequence.computed = cached
        plan.schedule(sequence, tokens)
        if sequence.preemptions == 0:
            sequence.cached_tokens = cached
            plan.prefix_queries += sequence.request.prompt_tokens
            plan.prefix_hits += cached
        return True
