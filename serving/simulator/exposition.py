"""Writes an engine's measures as vLLM 0.32 exposes them: the same names, help texts, labels and buckets."""

from collections.abc import Mapping

from serving.simulator.experts import ExpertCounts
from serving.simulator.measures import EngineMeasures, Histogram
from serving.simulator.request import FinishReason
from serving.simulator.text_format import Distribution, Scalars, Value


class EngineExposition:
    """The `vllm:` part of `/metrics` for one engine.

    `created_at` is Unix seconds; `cache` are the labels of cache_config_info. With `experts`, also the counter of tokens per
    expert that our hook inside a real engine shows on a port of its own.
    """

    def __init__(
        self,
        measures: EngineMeasures,
        *,
        model: str,
        cache: Mapping[str, str],
        created_at: float,
        experts: ExpertCounts | None = None,
    ) -> None:
        self._measures = measures
        self._model = model
        self._base = {"engine": "0", "model_name": model}
        self._created_at = created_at
        self._cache = {**cache, "engine": "0"}
        self._families: list[Scalars | Distribution] = [
            *self._work(),
            *self._gauges(),
            *self._counters(),
            *self._histograms(),
            self._cache_info(),
            *(self._experts(experts) if experts is not None else ()),
        ]

    def text(self) -> str:
        """All families, each with the numbers of this moment."""
        return "".join(family.text() for family in self._families)

    def _counter(self, name: str, help_text: str, *samples: tuple[Mapping[str, str], Value]) -> Scalars:
        labelled = [({**self._base, **labels}, value) for labels, value in samples]
        return Scalars(f"vllm:{name}", help_text, labelled, self._created_at)

    def _gauge(self, name: str, help_text: str, *samples: tuple[Mapping[str, str], Value]) -> Scalars:
        return Scalars(f"vllm:{name}", help_text, [({**self._base, **labels}, value) for labels, value in samples])

    def _histogram(self, name: str, help_text: str, histogram: Histogram) -> Distribution:
        return Distribution(f"vllm:{name}", help_text, self._base, histogram, self._created_at)

    def _work(self) -> list[Scalars]:
        """Work estimates, which vLLM exposes and leaves at 0 unless asked to estimate."""
        reason = "(for Model Flops Utilization calculations)."
        return [
            self._counter(name, f"Estimated number of {what} per GPU {reason}", ({}, _zero))
            for name, what in (
                ("estimated_flops_per_gpu", "floating point operations"),
                ("estimated_read_bytes_per_gpu", "bytes read from memory"),
                ("estimated_write_bytes_per_gpu", "bytes written to memory"),
            )
        ]

    def _gauges(self) -> list[Scalars]:
        measures = self._measures
        return [
            self._gauge(
                "num_requests_running", "Number of requests in model execution batches.", ({}, lambda: measures.running)
            ),
            self._gauge(
                "num_requests_waiting",
                "Number of requests waiting to be processed.",
                ({}, lambda: measures.waiting_capacity + measures.waiting_deferred),
            ),
            self._gauge(
                "num_requests_waiting_by_reason",
                "Number of waiting requests by reason. Reason labels: 'capacity' = waiting for scheduling capacity;"
                " 'deferred' = deferred by transient constraints (LoRA budget, KV transfer, blocked status)."
                " Sum of all reasons equals vllm:num_requests_waiting.",
                ({"reason": "capacity"}, lambda: measures.waiting_capacity),
                ({"reason": "deferred"}, lambda: measures.waiting_deferred),
            ),
            self._gauge(
                "engine_sleep_state",
                "Engine sleep state; awake = 0 means engine is sleeping; awake = 1 means engine is awake;"
                " weights_offloaded = 1 means sleep level 1; discard_all = 1 means sleep level 2.",
                ({"sleep_state": "awake"}, lambda: measures.sleep_level is None),
                ({"sleep_state": "weights_offloaded"}, lambda: measures.sleep_level == 1),
                ({"sleep_state": "discard_all"}, lambda: measures.sleep_level == 2),  # noqa: PLR2004 - vLLM's sleep level 2
            ),
            self._gauge(
                "kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", ({}, lambda: measures.kv_usage)
            ),
        ]

    def _counters(self) -> list[Scalars]:
        return [*self._cache_counters(), *self._token_counters(), *self._request_counters()]

    def _cache_counters(self) -> list[Scalars]:
        measures = self._measures
        queried, shared = (
            "in terms of number of queried tokens.",
            "from KV connector cross-instance cache sharing, in terms of",
        )
        return [
            self._counter("prefix_cache_queries", f"Prefix cache queries, {queried}", ({}, lambda: measures.prefix_queries)),
            self._counter(
                "prefix_cache_hits",
                "Prefix cache hits, in terms of number of cached tokens.",
                ({}, lambda: measures.prefix_hits),
            ),
            self._counter(
                "external_prefix_cache_queries",
                f"External prefix cache queries {shared} number of queried tokens.",
                ({}, _zero),
            ),
            self._counter(
                "external_prefix_cache_hits", f"External prefix cache hits {shared} number of cached tokens.", ({}, _zero)
            ),
            self._counter(
                "mm_cache_queries", "Multi-modal cache queries, in terms of number of queried items.", ({}, _zero)
            ),
            self._counter("mm_cache_hits", "Multi-modal cache hits, in terms of number of cached items.", ({}, _zero)),
            self._counter(
                "num_preemptions", "Cumulative number of preemption from the engine.", ({}, lambda: measures.preemptions)
            ),
        ]

    def _token_counters(self) -> list[Scalars]:
        measures = self._measures
        return [
            self._counter("prompt_tokens", "Number of prefill tokens processed.", ({}, lambda: measures.prompt_tokens)),
            self._counter(
                "prompt_tokens_by_source",
                "Number of prompt tokens by source.",
                ({"source": "local_compute"}, lambda: measures.prompt_tokens - measures.prompt_tokens_cached),
                ({"source": "local_cache_hit"}, lambda: measures.prompt_tokens_cached),
                ({"source": "external_kv_transfer"}, _zero),
            ),
            self._counter(
                "prompt_tokens_cached",
                "Number of cached prompt tokens (local + external).",
                ({}, lambda: measures.prompt_tokens_cached),
            ),
            self._counter(
                "prompt_tokens_cached_by_source",
                "Prefix-cache hit tokens by the cache tier that supplied them: device (local HBM), host (offloaded to DRAM),"
                " disk, p2p (transferred from another vLLM instance) or external_unspecified. Counted at admission; sums to"
                " vllm:prefix_cache_hits + vllm:external_prefix_cache_hits.",
                ({"source": "device"}, lambda: measures.prefix_hits),
                *(({"source": tier}, _zero) for tier in ("host", "p2p", "disk", "external_unspecified")),
            ),
            self._counter(
                "generation_tokens", "Number of generation tokens processed.", ({}, lambda: measures.generation_tokens)
            ),
        ]

    def _request_counters(self) -> list[Scalars]:
        measures = self._measures
        finished = [
            ({"finished_reason": reason.value}, lambda reason=reason: measures.finished[reason]) for reason in FinishReason
        ]
        rejected = [
            ({"model_name": self._model, "reason": reason}, lambda reason=reason: measures.rejected[reason])
            for reason in measures.rejected
        ]
        return [
            self._counter("request_success", "Count of successfully processed requests.", *finished),
            # The one family without an engine label: requests are turned away before an engine is chosen.
            Scalars(
                "vllm:admission_rejections",
                "Number of admission attempts rejected by a queue limit, by reason.",
                rejected,
                self._created_at,
            ),
        ]

    def _histograms(self) -> list[Distribution]:
        measures = self._measures
        table: list[tuple[str, str, Histogram]] = [
            ("request_prompt_tokens", "Number of prefill tokens processed.", measures.prompt_length),
            ("request_generation_tokens", "Number of generation tokens processed.", measures.generation_length),
            ("iteration_tokens_total", "Histogram of number of tokens per engine_step.", measures.step_tokens),
            (
                "request_max_num_generation_tokens",
                "Histogram of maximum number of requested generation tokens.",
                measures.max_generation_length,
            ),
            ("request_params_n", "Histogram of the n request parameter.", measures.parameter_n),
            ("request_params_max_tokens", "Histogram of the max_tokens request parameter.", measures.parameter_max_tokens),
            ("time_to_first_token_seconds", "Histogram of time to first token in seconds.", measures.first_token),
            ("inter_token_latency_seconds", "Histogram of inter-token latency in seconds.", measures.inter_token),
            (
                "request_time_per_output_token_seconds",
                "Histogram of time_per_output_token_seconds per request.",
                measures.per_output_token,
            ),
            ("e2e_request_latency_seconds", "Histogram of e2e request latency in seconds.", measures.e2e),
            ("request_queue_time_seconds", _phase("WAITING"), measures.queue),
            ("request_inference_time_seconds", _phase("RUNNING"), measures.inference),
            ("request_prefill_time_seconds", _phase("PREFILL"), measures.prefill),
            ("request_decode_time_seconds", _phase("DECODE"), measures.decode),
            (
                "request_num_preemptions",
                "Histogram of the number of times a request was preempted.",
                measures.request_preemptions,
            ),
            (
                "request_prefill_kv_computed_tokens",
                "Histogram of new KV tokens computed during prefill (excluding cached tokens).",
                measures.prefill_computed,
            ),
        ]
        return [self._histogram(*row) for row in table]

    def _cache_info(self) -> Scalars:
        return Scalars("vllm:cache_config_info", "Information of the LLMEngine CacheConfig", [(self._cache, lambda: 1.0)])

    def _experts(self, experts: ExpertCounts) -> list[Scalars]:
        samples = [
            ({"layer": str(layer), "expert": str(expert), "rank": "0"}, lambda row=row, expert=expert: row[expert])
            for layer, row in enumerate(experts.counts)
            for expert in range(len(row))
        ]
        about = "Tokens that each expert got, by layer among those with experts."
        return [
            Scalars("fleetwarden:expert_tokens", about, samples, self._created_at),
            Scalars(
                "fleetwarden:expert_balancing", "1 where EPLB spreads experts anew by itself.", [({"rank": "0"}, _zero)]
            ),
        ]


def _zero() -> float:
    return 0.0


def _phase(phase: str) -> str:
    return f"Histogram of time spent in {phase} phase for request."
