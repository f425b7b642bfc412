"""The pure model of an engine, on a clock of its own."""

import itertools
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.simulator.batching import BatchingEngine
from serving.simulator.request import FinishReason, Request, Step
from serving.simulator.scheduling import EngineShape, Pause, Policy
from serving.simulator.timing import Stalls, StepTiming

STEADY = StepTiming(base=0.01, per_prefill_token=0.0, per_decode_sequence=0.0, jitter=0.0)
FOREVER = 1e7

Arrival = tuple[float, int, int, int, int, str]


def engine_of(timing: StepTiming = STEADY, seed: int = 0, **shape: Any) -> BatchingEngine:
    return BatchingEngine(EngineShape(**shape), timing, seed=seed)


def request(name: str, prompt: int = 10, output: int = 5, arrival: float = 0.0, **more: Any) -> Request:
    return Request(name, prompt, output, arrival, **more)


def ends(steps: list[Step]) -> dict[str, FinishReason]:
    return {each.id: each.finish for step in steps for each in step.emissions if each.finish is not None}


def tokens(steps: list[Step], name: str) -> int:
    return sum(each.tokens for step in steps for each in step.emissions if each.id == name)


small = st.builds(
    EngineShape,
    num_gpu_blocks=st.integers(10, 40),
    block_size=st.just(16),
    max_num_seqs=st.integers(1, 8),
    max_num_batched_tokens=st.integers(8, 128),
    max_model_len=st.just(144),
    policy=st.sampled_from(Policy),
    prefix_caching=st.booleans(),
)
arrivals = st.lists(
    st.tuples(
        st.floats(0, 0.3),  # seconds since the one before
        st.integers(1, 100),  # prompt
        st.integers(1, 44),  # output
        st.integers(-2, 2),  # priority
        st.integers(0, 3),  # family of prompts that share a prefix
        st.sampled_from(["stay", "stay", "stay", "leave"]),
    ),
    max_size=40,
)


@settings(max_examples=60, deadline=None)
@given(small, arrivals, st.integers(0, 9))
def test_every_request_ends_exactly_once_and_all_blocks_come_back(
    shape: EngineShape, plan: list[Arrival], seed: int
) -> None:
    engine = BatchingEngine(shape, StepTiming(), seed=seed)
    now, steps, left = 0.0, [], set()
    for index, (gap, prompt, output, priority, family, mood) in enumerate(plan):
        now += gap
        steps += engine.advance(now)
        keys = tuple(hash((family, block)) for block in range(prompt // shape.block_size))
        engine.add(Request(str(index), prompt, output, now, priority, keys), now)
        if mood == "leave":
            engine.abort((str(index // 2),), now)
            left.add(str(index // 2))
    steps += engine.advance(now + FOREVER)

    finished = [each.id for step in steps for each in step.emissions if each.finish is not None]
    assert len(finished) == len(set(finished))
    assert set(finished) | left >= {str(index) for index in range(len(plan))}
    for index, (_, _, output, *_) in enumerate(plan):
        if str(index) not in left:
            assert tokens(steps, str(index)) == output
    assert engine.idle
    assert engine.scheduler.pool.used == 0
    if steps:
        assert steps[-1].numbers.running == steps[-1].numbers.waiting_capacity == 0
        assert steps[-1].numbers.kv_usage == 0


@settings(max_examples=60, deadline=None)
@given(small, arrivals, st.integers(0, 9))
def test_no_step_breaks_a_limit_of_the_engine(shape: EngineShape, plan: list[Arrival], seed: int) -> None:
    engine = BatchingEngine(shape, StepTiming(), seed=seed)
    now, last_end = 0.0, 0.0
    seen = 0
    for index, (gap, prompt, output, priority, family, _) in enumerate([*plan, (FOREVER, 1, 1, 0, 0, "stay")]):
        now += gap
        for step in engine.advance(now):
            assert step.start >= last_end
            last_end = step.end
            assert sum(step.scheduled.values()) <= shape.max_num_batched_tokens
            assert len(step.scheduled) <= shape.max_num_seqs
            assert step.numbers.running <= shape.max_num_seqs
            assert 0 <= step.numbers.kv_usage <= 1
            assert step.prefix_hits <= step.prefix_queries
            seen += 1
        assert engine.scheduler.pool.used <= shape.usable_blocks
        keys = tuple(hash((family, block)) for block in range(prompt // shape.block_size))
        engine.add(Request(str(index), prompt, output, now, priority, keys), now)
    assert seen or not plan


@settings(max_examples=30, deadline=None)
@given(small, arrivals, st.lists(st.floats(0.001, 2.0), max_size=30))
def test_how_often_one_looks_does_not_change_what_happens(
    shape: EngineShape, plan: list[Arrival], looks: list[float]
) -> None:
    def run(extra: list[float]) -> list[Step]:
        engine = BatchingEngine(shape, StepTiming(), seed=3)
        now, steps = 0.0, []
        for index, (gap, prompt, output, priority, _, _) in enumerate(plan):
            for part in extra:
                if part < gap:
                    steps += engine.advance(now + part)
            now += gap
            steps += engine.advance(now)
            engine.add(Request(str(index), prompt, output, now, priority), now)
        return steps + engine.advance(now + FOREVER)

    assert run(sorted(looks)) == run([])


def test_a_long_prompt_is_computed_in_chunks_beside_decoding_ones() -> None:
    engine = engine_of(max_num_batched_tokens=100)
    engine.add(request("short", prompt=10, output=50), 0.0)
    steps = engine.advance(0.015)
    engine.add(request("long", prompt=250, output=2), 0.016)
    steps += engine.advance(FOREVER)
    assert [step.scheduled["long"] for step in steps if "long" in step.scheduled] == [99, 99, 52, 1]
    assert all(step.scheduled["short"] == 1 for step in steps if "long" in step.scheduled)


def test_a_chunk_that_is_not_the_last_brings_no_token() -> None:
    engine = engine_of(max_num_batched_tokens=100)
    engine.add(request("long", prompt=250, output=1), 0.0)
    assert [len(step.emissions) for step in engine.advance(FOREVER)] == [0, 0, 1]


def test_when_blocks_run_out_the_latest_is_preempted_and_still_ends_whole() -> None:
    engine = engine_of(num_gpu_blocks=11, block_size=10, max_model_len=100)
    for name in ("first", "second"):
        engine.add(request(name, prompt=40, output=50), 0.0)
    steps = engine.advance(FOREVER)
    assert sum(step.preempted for step in steps) >= 1
    last = {each.id: each for step in steps for each in step.emissions if each.finish is not None}
    assert last["first"].preemptions == 0
    assert last["second"].preemptions >= 1
    assert tokens(steps, "second") == 50
    assert ends(steps) == {"first": FinishReason.LENGTH, "second": FinishReason.LENGTH}


def test_under_priority_the_least_important_gives_way() -> None:
    engine = engine_of(num_gpu_blocks=11, block_size=10, max_model_len=100, policy=Policy.PRIORITY)
    engine.add(request("unimportant", prompt=40, output=50, priority=5), 0.0)
    engine.add(request("important", prompt=40, output=50, priority=0), 0.0)
    last = {each.id: each for step in engine.advance(FOREVER) for each in step.emissions if each.finish is not None}
    assert last["important"].preemptions == 0
    assert last["unimportant"].preemptions >= 1


@pytest.mark.parametrize(("policy", "first"), [(Policy.FCFS, "early"), (Policy.PRIORITY, "urgent")])
def test_the_queue_is_served_in_the_order_of_the_policy(policy: Policy, first: str) -> None:
    engine = engine_of(max_num_seqs=1, policy=policy)
    engine.add(request("running", output=20), 0.0)
    engine.advance(0.001)
    engine.add(request("early", arrival=0.001, priority=1), 0.001)
    engine.add(request("urgent", arrival=0.002, priority=0), 0.002)
    assert list(ends(engine.advance(FOREVER)))[1] == first


def test_requests_beyond_the_batch_wait_for_capacity() -> None:
    engine = engine_of(max_num_seqs=2)
    for index in range(5):
        engine.add(request(str(index), output=10), 0.0)
    numbers = engine.advance(0.011)[-1].numbers
    assert (numbers.running, numbers.waiting_capacity, numbers.waiting_deferred) == (2, 3, 0)


def test_a_deferred_request_is_counted_apart_and_lets_others_pass() -> None:
    engine = engine_of()
    engine.add(request("grammar", defer_seconds=1.0), 0.0)
    engine.add(request("plain", output=10), 0.0)
    steps = engine.advance(0.5)
    assert steps[0].numbers.waiting_deferred == 1
    assert steps[0].numbers.waiting_capacity == 0
    assert "plain" in ends(steps)
    assert "grammar" in ends(engine.advance(2.0))


def test_only_deferred_requests_keep_no_clock_ticking() -> None:
    engine = engine_of()
    engine.add(request("grammar", defer_seconds=1.0), 0.0)
    engine.advance(0.0)
    assert engine.next_event() == 1.0


def test_a_halted_engine_says_nothing_and_takes_nothing_in() -> None:
    engine = engine_of()
    engine.add(request("before", output=100), 0.0)
    engine.advance(0.205)
    engine.halt("engine-hang", 0.205)
    engine.add(request("during"), 0.3)
    assert engine.next_event() is None
    assert engine.advance(100.0) == []
    assert engine.scheduler.unfinished == 1
    engine.release("engine-hang", 100.0)
    steps = engine.advance(100.006)
    assert steps[0].end == pytest.approx(100.005)
    assert set(ends(engine.advance(FOREVER))) == {"before", "during"}


def test_an_engine_halted_for_two_reasons_goes_on_when_both_are_gone() -> None:
    engine = engine_of()
    engine.add(request("only"), 0.0)
    engine.halt("one", 0.0)
    engine.halt("two", 0.0)
    engine.release("one", 1.0)
    assert engine.halted
    engine.release("two", 2.0)
    assert "only" in ends(engine.advance(FOREVER))


def test_aborting_the_only_request_still_brings_the_numbers_back_to_zero() -> None:
    engine = engine_of()
    engine.add(request("leaves", prompt=500, output=1000), 0.0)
    engine.advance(0.1)
    engine.abort(("leaves",), 0.105)
    last = engine.advance(1.0)[-1]
    assert (last.numbers.running, last.numbers.kv_usage) == (0, 0.0)
    assert engine.idle


def test_abort_all_tells_every_request_once() -> None:
    engine = engine_of(max_num_seqs=1)
    for name in ("running", "waiting"):
        engine.add(request(name, output=1000), 0.0)
    engine.advance(0.1)
    engine.abort_all(0.1)
    assert ends(engine.advance(FOREVER)) == {"running": FinishReason.ABORT, "waiting": FinishReason.ABORT}


def test_a_pause_for_new_requests_lets_running_ones_end() -> None:
    engine = engine_of()
    engine.add(request("old", output=20), 0.0)
    engine.advance(0.05)
    engine.set_pause(Pause.NEW, 0.05)
    engine.add(request("new"), 0.06)
    assert set(ends(engine.advance(10.0))) == {"old"}
    assert engine.next_event() is None
    engine.set_pause(Pause.NONE, 10.0)
    assert set(ends(engine.advance(FOREVER))) == {"new"}


def test_a_pause_for_all_freezes_requests_where_they_are() -> None:
    engine = engine_of()
    engine.add(request("frozen", output=20), 0.0)
    before = tokens(engine.advance(0.05), "frozen")
    engine.set_pause(Pause.ALL, 0.05)
    paused = tokens(engine.advance(10.0), "frozen")
    assert paused <= 1  # the step in flight ends
    engine.set_pause(Pause.NONE, 10.0)
    assert before + paused + tokens(engine.advance(FOREVER), "frozen") == 20


def test_a_cached_prefix_is_not_computed_again() -> None:
    keys = (11, 12, 13, 14)
    engine = engine_of(block_size=16, num_gpu_blocks=400)
    engine.add(request("first", prompt=70, prefix_keys=keys, output=1), 0.0)
    engine.advance(1.0)
    engine.add(request("again", prompt=70, prefix_keys=keys, output=1), 1.0)
    step = engine.advance(2.0)[-1]
    assert step.scheduled == {"again": 70 - 64}
    assert step.emissions[0].cached_tokens == 64
    assert (step.prefix_queries, step.prefix_hits) == (70, 64)


def test_the_last_token_of_a_wholly_cached_prompt_is_computed_all_the_same() -> None:
    keys = (11, 12)
    engine = engine_of(block_size=16, num_gpu_blocks=400)
    for name in ("first", "again"):
        engine.add(request(name, prompt=32, prefix_keys=keys, output=1), 0.0)
        step = engine.advance(FOREVER)[-1]
    assert step.scheduled == {"again": 16}


def test_a_cached_prefix_is_evicted_when_its_blocks_are_needed() -> None:
    engine = engine_of(block_size=16, num_gpu_blocks=10, max_model_len=144)
    engine.add(request("first", prompt=128, prefix_keys=tuple(range(8)), output=1), 0.0)
    engine.advance(1.0)
    engine.add(request("other", prompt=128, prefix_keys=tuple(range(100, 108)), output=1), 1.0)
    engine.advance(2.0)
    engine.add(request("again", prompt=128, prefix_keys=tuple(range(8)), output=1), 2.0)
    # Eight of nine blocks went to the other prompt; the first block of the first prompt is all that can be left of it.
    assert engine.advance(3.0)[-1].prefix_hits <= 16


def test_fewer_blocks_bring_preemption_and_more_bring_peace() -> None:
    engine = engine_of(num_gpu_blocks=101, block_size=10, max_model_len=100)
    for index in range(8):
        engine.add(request(str(index), prompt=50, output=50), 0.0)
    engine.advance(0.1)
    engine.resize(15, 0.1)
    assert sum(step.preempted for step in engine.advance(0.5)) > 0
    engine.resize(100, 0.5)
    rest = engine.advance(FOREVER)
    assert sum(step.preempted for step in rest) == 0
    assert engine.idle


def test_a_request_that_fits_no_more_waits_without_a_busy_loop() -> None:
    engine = engine_of(num_gpu_blocks=101, block_size=10, max_model_len=100)
    engine.resize(3, 0.0)
    engine.add(request("large", prompt=90, output=5), 0.0)
    assert engine.advance(1.0)[-1].numbers.waiting_capacity == 1
    assert engine.next_event() is None
    engine.resize(100, 2.0)
    assert "large" in ends(engine.advance(FOREVER))


def test_a_slowed_engine_takes_that_many_times_as_long() -> None:
    def seconds(slowdown: float) -> float:
        engine = engine_of()
        engine.slowdown = slowdown
        engine.add(request("only", output=50), 0.0)
        return engine.advance(FOREVER)[-1].end

    assert seconds(3.0) == pytest.approx(3 * seconds(1.0))


def test_stalls_pause_all_requests_together() -> None:
    engine = engine_of()
    engine.stalls = Stalls(since=0.0, pause=1.0, every=3.0)
    for name in ("one", "two"):
        engine.add(request(name, output=500), 0.0)
    steps = engine.advance(8.0)
    gaps = [later.end - sooner.end for sooner, later in itertools.pairwise(steps)]
    assert sum(gap > 0.9 for gap in gaps) == 2
    assert all(len(step.emissions) == 2 for step in steps)


@given(st.floats(0, 50), st.floats(0, 20), st.floats(0.01, 5), st.floats(0.01, 5), st.floats(0, 10))
def test_work_in_stalls_takes_its_own_time_and_the_pauses_it_meets(
    start: float, work: float, pause: float, room: float, since: float
) -> None:
    stalls = Stalls(since, pause, pause + room)
    end = stalls.end(start, work)
    assert end >= start + work - 1e-9
    paused = sum(
        max(0.0, min(end, since + index * stalls.every + pause) - max(start, since + index * stalls.every))
        for index in range(math.ceil(max(0.0, end - since) / stalls.every) + 1)
    )
    assert end - start == pytest.approx(work + paused, abs=1e-6) or work == 0


def test_the_same_seed_gives_the_same_life() -> None:
    def run(seed: int) -> list[Step]:
        engine = engine_of(StepTiming(), seed=seed)
        for index in range(20):
            engine.add(request(str(index), prompt=30 * index + 1, output=20), 0.1 * index)
        return engine.advance(FOREVER)

    assert run(1) == run(1)
    assert run(1) != run(2)


def test_an_engine_that_could_not_hold_one_full_request_is_refused() -> None:
    with pytest.raises(ValueError, match="raise num_gpu_blocks to at least 33"):
        EngineShape(num_gpu_blocks=32, block_size=128, max_model_len=4096)


def test_a_request_without_tokens_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one token"):
        request("empty", prompt=0)
