"""The engine: continuous batching as vLLM's scheduler does it, on a clock that is handed in.

In each step every running sequence gets the tokens it still needs: one when it decodes, as many as the budget leaves
when it is in prefill (chunked prefill). Then waiting ones are admitted, in order, while sequence slots, budget and KV
blocks last. A running sequence that finds no free block preempts the one to be served last, which loses its blocks and
is computed anew later. Requests and aborts reach the scheduler between two steps only: a halted engine takes nothing in
and says nothing.
"""

import random
from collections import deque
from collections.abc import Callable, Iterable

from serving.simulator.request import Emission, FinishReason, Request, Step
from serving.simulator.scheduling import EngineShape, Pause, Plan, Scheduler, Sequence
from serving.simulator.timing import Stalls, StepTiming


class BatchingEngine:
    """One engine, scheduler and worker. Times are seconds on one clock that never goes back.

    What is done to it only leaves a note that is read at the end of the step in flight; `halt`, `release` and `delay` act
    on that step itself, so `advance` comes first. `next_event` says when `advance` will have something to do.
    """

    def __init__(self, shape: EngineShape, timing: StepTiming | None = None, *, seed: int = 0) -> None:
        self.shape = shape
        self.timing = timing or StepTiming()
        self.slowdown = 1.0
        self.stalls: Stalls | None = None
        self.scheduler = Scheduler(shape)
        self._rng = random.Random(seed)
        self._notes: deque[tuple[float, Callable[[float], None]]] = deque()
        self._work: tuple[Plan, float, float] | None = None
        self._ended: list[Sequence] = []
        self._must_tell = False
        self._stuck = False
        self._halts: set[str] = set()
        self._halted_at = 0.0
        self._clock = 0.0

    # What the outside does to it.

    def add(self, request: Request, now: float) -> None:
        """Send a request to the scheduler."""
        self._notes.append((now, lambda at: self.scheduler.enqueue(request, at)))

    def abort(self, ids: Iterable[str], now: float) -> None:
        """Have requests dropped without a word; unknown ids are none of its business."""
        wanted = frozenset(ids)
        self._notes.append((now, lambda _at: self._drop(wanted, tell=False)))

    def abort_all(self, now: float) -> None:
        """Have every request that is in the scheduler by then dropped, and told so by a last emission."""
        self._notes.append((now, lambda _at: self._drop(None, tell=True)))

    def set_pause(self, pause: Pause, now: float) -> None:
        """Stop admitting, stop altogether, or go on."""
        self._notes.append((now, lambda _at: setattr(self.scheduler, "pause", pause)))

    def resize(self, usable_blocks: int, now: float) -> None:
        """Change the number of KV blocks that sequences can hold."""
        self._notes.append((now, lambda _at: self.scheduler.pool.resize(usable_blocks)))

    def halt(self, reason: str, now: float) -> None:
        """Stop dead: no step ends or begins until every reason is released."""
        if not self._halts:
            self._halted_at = now
        self._halts.add(reason)

    def release(self, reason: str, now: float) -> None:
        """Take one reason to stand still back. The step in flight goes on where it stood."""
        if reason not in self._halts:
            return
        self._halts.remove(reason)
        if not self._halts:
            self._clock = max(self._clock, now)
            if self._work is not None:
                plan, start, end = self._work
                self._work = (plan, start, end + now - max(self._halted_at, start))

    def delay(self, seconds: float) -> None:
        """Let the step in flight end later: the machine stood still, not the model."""
        if self._work is not None:
            plan, start, end = self._work
            self._work = (plan, start, end + seconds)

    # What it is doing.

    @property
    def halted(self) -> bool:
        """Whether it is stopped dead."""
        return bool(self._halts)

    @property
    def idle(self) -> bool:
        """Whether it holds no request, has none on its way and nothing left to say."""
        return not (self.scheduler.unfinished or self._notes or self._work or self._ended or self._must_tell)

    def next_event(self) -> float | None:
        """When there is something to do; a moment in the past means now. None: nothing until something is done to it."""
        if self._halts:
            return None
        if self._work is not None:
            return self._work[2]
        noted = max(self._clock, self._notes[0][0]) if self._notes else None
        if self._must_tell or self._ended or (self.scheduler.schedulable and not self._stuck):
            return self._clock
        if not self._stuck:
            return noted
        wake = self.scheduler.next_ready(self._clock)
        return min((each for each in (noted, wake) if each is not None), default=None)

    def advance(self, now: float) -> list[Step]:
        """Do everything that is due by `now`. Returns the steps that ended, in order."""
        steps: list[Step] = []
        while (due := self.next_event()) is not None and due <= now:
            self._clock = max(self._clock, due)
            if self._work is not None:
                plan, start, end = self._work
                self._work = None
                steps.append(self._finish(plan, start, end))
            self._take_in()
            self._begin()
        return steps

    # Inside.

    def _take_in(self) -> None:
        while self._notes and self._notes[0][0] <= self._clock:
            _, note = self._notes.popleft()
            note(self._clock)
            self._stuck = False

    def _drop(self, wanted: frozenset[str] | None, *, tell: bool) -> None:
        dropped = self.scheduler.drop(wanted)
        if dropped:
            self._must_tell = True
        if tell:
            self._ended.extend(dropped)

    def _begin(self) -> None:
        """Begin the next step, if there is anything to compute or to tell."""
        plan = self.scheduler.plan(self._clock)
        stuck = not plan.scheduled and self.scheduler.schedulable
        newly_stuck, self._stuck = stuck and not self._stuck, stuck
        if plan.scheduled:
            work = self.slowdown * self.timing.seconds(plan.prefill_tokens, plan.decode_sequences, self._rng)
            end = self.stalls.end(self._clock, work) if self.stalls else self._clock + work
            self._work = (plan, self._clock, end)
        elif self._must_tell or self._ended or newly_stuck or plan.preempted:
            # As in vLLM, a step without work still brings the scheduler's numbers to the API side.
            self._work = (plan, self._clock, self._clock)
        self._must_tell = False

    def _finish(self, plan: Plan, start: float, end: float) -> Step:
        ended, self._ended = self._ended, []
        emissions = [_emission(each, 0, FinishReason.ABORT) for each in ended]
        for sequence, tokens in plan.scheduled.values():
            if self.scheduler.computed(sequence, tokens):
                finish = self.scheduler.generated(sequence)
                emissions.append(_emission(sequence, 1, finish))
        return Step(
            start=start,
            end=end,
            scheduled={name: tokens for name, (_, tokens) in plan.scheduled.items()},
            emissions=tuple(emissions),
            preempted=plan.preempted,
            prefix_queries=plan.prefix_queries,
            prefix_hits=plan.prefix_hits,
            numbers=self.scheduler.numbers(),
        )


def _emission(sequence: Sequence, tokens: int, finish: FinishReason | None) -> Emission:
    return Emission(
        id=sequence.request.id,
        tokens=tokens,
        queued_at=sequence.queued_at,
        scheduled_at=sequence.queued_at if sequence.scheduled_at is None else sequence.scheduled_at,
        cached_tokens=sequence.cached_tokens,
        preemptions=sequence.preemptions,
        finish=finish,
    )
