"""The API side of an engine without its HTTP: who is in flight, who is let in, and what is counted.

It knows of a request from the moment a client sent it, and of the engine only what its steps say. So a hung engine
leaves requests here that no gauge shows, and a client that leaves is forgotten here before the engine hears of it.
"""

from dataclasses import dataclass
from typing import Literal

from serving.simulator.measures import EngineMeasures, token_buckets
from serving.simulator.request import Emission, FinishReason, Request, Step

RejectionReason = Literal["max_num_queued_reqs", "max_num_queued_tokens"]


@dataclass(slots=True)
class Tracked:
    """A request in flight, as the API side sees it."""

    request: Request
    max_tokens: int
    generated: int = 0
    preemptions: int = 0
    first_token_latency: float = 0.0
    first_token_at: float | None = None
    last_token_at: float = 0.0


@dataclass(frozen=True, slots=True)
class Finished:
    """A request that ended, with where its time went in seconds. `arrival` is on the clock of the caller."""

    id: str
    reason: FinishReason
    arrival: float
    first_token: float
    e2e: float
    queue: float
    prefill: float
    decode: float
    prompt_tokens: int
    generated: int
    max_tokens: int

    @property
    def inference(self) -> float:
        """Seconds from being scheduled to the last token."""
        return self.prefill + self.decode


@dataclass(frozen=True, slots=True)
class Delivery:
    """What is to be handed to one client: a number of new tokens, the request's end, or both."""

    id: str
    tokens: int
    cached_tokens: int
    finished: Finished | None


class Frontend:
    """Tracks the requests of one engine and keeps its measures."""

    def __init__(
        self, max_model_len: int, *, max_num_queued_reqs: int | None = None, max_num_queued_tokens: int | None = None
    ) -> None:
        self.measures = EngineMeasures(token_buckets(max_model_len))
        self._max_requests = max_num_queued_reqs
        self._max_tokens = max_num_queued_tokens
        self._tracked: dict[str, Tracked] = {}

    @property
    def in_flight(self) -> tuple[str, ...]:
        """The ids of the requests that wait for an answer."""
        return tuple(self._tracked)

    def check_admission(self, requests: int = 1) -> RejectionReason | None:
        """Why so many more requests are turned away now, counted as a rejection; None when they are let in.

        `max_num_queued_reqs` limits all unfinished requests, running ones too; `max_num_queued_tokens` the prompt tokens
        of requests without a first token. Both as in vLLM.
        """
        reason: RejectionReason | None = None
        if self._max_requests is not None and len(self._tracked) + requests > self._max_requests:
            reason = "max_num_queued_reqs"
        elif self._max_tokens is not None and self._queued_tokens() >= self._max_tokens:
            reason = "max_num_queued_tokens"
        if reason is not None:
            self.measures.rejected[reason] += 1
        return reason

    def track(self, request: Request, max_tokens: int) -> None:
        """Know of a request from now on. Its id must not be in flight already."""
        if request.id in self._tracked:
            raise ValueError(f"a request with the id {request.id!r} is in flight already")
        self._tracked[request.id] = Tracked(request, max_tokens)

    def forget(self, request_id: str) -> bool:
        """A client left: know of its request no more, count nothing. False where it was not in flight."""
        return self._tracked.pop(request_id, None) is not None

    def count_abort(self) -> None:
        """Count a request that its client left as finished by abort. vLLM 0.32 itself does not count these."""
        self.measures.finished[FinishReason.ABORT] += 1

    def record(self, step: Step, now: float) -> list[Delivery]:
        """Hear of a step: set the gauges, count, and say what is to be delivered. `now` is when it was heard of."""
        measures = self.measures
        measures.running = step.numbers.running
        measures.waiting_capacity = step.numbers.waiting_capacity
        measures.waiting_deferred = step.numbers.waiting_deferred
        measures.kv_usage = step.numbers.kv_usage
        measures.prefix_queries += step.prefix_queries
        measures.prefix_hits += step.prefix_hits
        if not step.emissions:
            return []
        deliveries = []
        prompt_tokens_computed = generated = 0
        for emission in step.emissions:
            tracked = self._tracked.get(emission.id)
            if tracked is None:
                continue
            if tracked.first_token_at is None and emission.tokens:
                prompt_tokens_computed += tracked.request.prompt_tokens - emission.cached_tokens
            generated += emission.tokens
            deliveries.append(self._hear(tracked, emission, step.end, now))
        measures.step_tokens.observe(prompt_tokens_computed + generated)
        return deliveries

    def _queued_tokens(self) -> int:
        return sum(each.request.prompt_tokens for each in self._tracked.values() if each.first_token_at is None)

    def _hear(self, tracked: Tracked, emission: Emission, at: float, now: float) -> Delivery:
        measures = self.measures
        measures.preemptions += emission.preemptions - tracked.preemptions
        tracked.preemptions = emission.preemptions
        if emission.tokens:
            measures.generation_tokens += emission.tokens
            tracked.generated += emission.tokens
            if tracked.first_token_at is None:
                measures.prompt_tokens += tracked.request.prompt_tokens
                measures.prompt_tokens_cached += emission.cached_tokens
                tracked.first_token_at = at
                tracked.first_token_latency = now - tracked.request.arrival
                measures.first_token.observe(tracked.first_token_latency)
            else:
                measures.inter_token.observe(at - tracked.last_token_at)
            tracked.last_token_at = at
        finished = None
        if emission.finish is not None:
            del self._tracked[emission.id]
            finished = _finished(tracked, emission, now)
            self._count_finished(finished, emission)
        return Delivery(emission.id, emission.tokens, emission.cached_tokens, finished)

    def _count_finished(self, finished: Finished, emission: Emission) -> None:
        measures = self.measures
        measures.finished[finished.reason] += 1
        measures.e2e.observe(finished.e2e)
        measures.queue.observe(finished.queue)
        measures.prefill.observe(finished.prefill)
        measures.inference.observe(finished.inference)
        measures.decode.observe(finished.decode)
        measures.request_preemptions.observe(emission.preemptions)
        measures.prefill_computed.observe(finished.prompt_tokens - emission.cached_tokens)
        measures.prompt_length.observe(finished.prompt_tokens)
        measures.generation_length.observe(finished.generated)
        measures.max_generation_length.observe(finished.generated)
        measures.parameter_n.observe(1)
        measures.parameter_max_tokens.observe(finished.max_tokens)
        decoded = finished.generated - 1
        measures.per_output_token.observe(finished.decode / decoded if decoded > 0 else 0.0)


def _finished(tracked: Tracked, emission: Emission, now: float) -> Finished:
    # A request that is aborted before its first token spent no time in the model; vLLM's own figures go wild there.
    first = emission.scheduled_at if tracked.first_token_at is None else tracked.first_token_at
    last = first if tracked.first_token_at is None else tracked.last_token_at
    return Finished(
        id=emission.id,
        reason=emission.finish or FinishReason.LENGTH,
        arrival=tracked.request.arrival,
        first_token=tracked.first_token_latency,
        e2e=now - tracked.request.arrival,
        queue=emission.scheduled_at - emission.queued_at,
        prefill=first - emission.scheduled_at,
        decode=last - first,
        prompt_tokens=tracked.request.prompt_tokens,
        generated=tracked.generated,
        max_tokens=tracked.max_tokens,
    )
