"""The settings of a simulated engine, checked as a whole before anything starts."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from serving.simulator.experts import ExpertCounts
from serving.simulator.scheduling import EngineShape, Policy
from serving.simulator.timing import StepTiming

VLLM_VERSION = "0.32.0"


class SimulatorSettings(BaseModel):
    """All that a simulated engine is told at its start. Names are those of vLLM's options where vLLM has one."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())

    name: str = Field(min_length=1, max_length=200, description="name of the engine, the service name of its spans")
    host: str = Field(default="127.0.0.1", description="address to serve on")
    port: int = Field(ge=0, le=65535, description="port to serve on; 0 takes a free one and logs it")
    model: str = Field(default="sim", min_length=1, description="served model name")
    seed: int = Field(default=0, description="seed of the jitter and of the generated text")
    startup_seconds: float = Field(default=3.0, ge=0, le=3600, description="how long loading takes; the port opens after it")
    dev_mode: bool = Field(default=True, description="open vLLM's development routes: pause, resume, sleep, abort and so on")

    num_gpu_blocks: int = Field(default=192, ge=2, description="KV cache blocks; one is reserved")
    block_size: int = Field(default=128, ge=1, description="tokens in a KV block")
    max_num_seqs: int = Field(default=16, ge=1, description="most sequences in a batch")
    max_num_batched_tokens: int = Field(default=2048, ge=1, description="most tokens in a step")
    max_model_len: int = Field(default=4096, ge=2, description="most tokens of prompt and output together")
    max_num_queued_reqs: int | None = Field(
        default=None, ge=0, description="unfinished requests above which new ones get 503"
    )
    max_num_queued_tokens: int | None = Field(
        default=None, ge=0, description="prompt tokens without a first token from which on new requests get 503"
    )
    scheduling_policy: Literal["fcfs", "priority"] = Field(
        default="fcfs", description="order of service; lower priority values go first"
    )
    enable_prefix_caching: bool = Field(default=True, description="cache prompt prefixes")
    enable_server_load_tracking: bool = Field(default=False, description="show requests in flight at /load")

    num_experts: int = Field(
        default=0,
        ge=0,
        le=4096,
        description="experts in each layer that has some, their tokens counted in /metrics; 0: dense",
    )
    num_experts_per_tok: int = Field(default=2, ge=1, le=64, description="experts that each token goes to")
    moe_layers: int = Field(default=2, ge=1, le=256, description="layers that have experts")

    step_base_ms: float = Field(default=10.0, gt=0, le=60_000, description="base duration of a step")
    step_prefill_token_ms: float = Field(default=0.2, ge=0, le=10_000, description="what each prefill token adds to a step")
    step_decode_sequence_ms: float = Field(
        default=0.4, ge=0, le=10_000, description="what each decoding sequence adds to it"
    )
    step_jitter: float = Field(
        default=0.08, ge=0, le=2, description="standard deviation of the logarithm of a step's duration"
    )
    speed: float = Field(default=1.0, gt=0, le=1000, description="divides all step durations")
    grammar_seconds: float = Field(default=0.05, ge=0, le=600, description="how long a request with a grammar is deferred")
    count_client_aborts: bool = Field(
        default=False, description="count requests whose client left as finished by abort; vLLM 0.32 does not"
    )

    otlp_endpoint: str | None = Field(
        default=None, description="URL that takes OTLP/HTTP trace exports; none go out without"
    )
    otlp_interval: float = Field(default=5.0, gt=0, le=600, description="seconds between two exports")

    @field_validator("otlp_endpoint")
    @classmethod
    def _http(cls, endpoint: str | None) -> str | None:
        if endpoint is None:
            return None
        scheme, _, rest = endpoint.partition("://")
        if scheme not in {"http", "https"} or not rest.strip("/"):
            raise ValueError("spans go out over HTTP: give a URL such as http://127.0.0.1:4318/v1/traces")
        return endpoint if "/" in rest.rstrip("/") else endpoint.rstrip("/") + "/v1/traces"

    @model_validator(mode="after")
    def _fits(self) -> "SimulatorSettings":
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise ValueError(
                f"max_num_batched_tokens ({self.max_num_batched_tokens}) must be at least max_num_seqs"
                f" ({self.max_num_seqs}): every decoding sequence takes one token of each step"
            )
        if self.num_experts and self.num_experts_per_tok > self.num_experts:
            raise ValueError(
                f"num_experts_per_tok ({self.num_experts_per_tok}) must not be above num_experts ({self.num_experts})"
            )
        self.shape()
        return self

    def shape(self) -> EngineShape:
        """The limits of the engine."""
        return EngineShape(
            num_gpu_blocks=self.num_gpu_blocks,
            block_size=self.block_size,
            max_num_seqs=self.max_num_seqs,
            max_num_batched_tokens=self.max_num_batched_tokens,
            max_model_len=self.max_model_len,
            policy=Policy(self.scheduling_policy),
            prefix_caching=self.enable_prefix_caching,
        )

    def timing(self) -> StepTiming:
        """How long its steps take."""
        return StepTiming(
            base=self.step_base_ms / 1000,
            per_prefill_token=self.step_prefill_token_ms / 1000,
            per_decode_sequence=self.step_decode_sequence_ms / 1000,
            jitter=self.step_jitter,
            speed=self.speed,
        )

    def experts(self) -> ExpertCounts | None:
        """The counts of tokens per expert of such a model; None for a dense one."""
        return ExpertCounts(self.moe_layers, self.num_experts, self.num_experts_per_tok) if self.num_experts else None

    def cache_labels(self) -> dict[str, str]:
        """The labels of vllm:cache_config_info; what a simulated engine has no notion of reads as in the CPU build."""
        tokens = self.num_gpu_blocks * self.block_size
        return {
            **_CACHE_LABELS,
            "block_size": str(self.block_size),
            "effective_attention_block_size": str(self.block_size),
            "enable_prefix_caching": str(self.enable_prefix_caching),
            "kv_cache_max_concurrency": str(tokens / self.max_model_len),
            "kv_cache_size_tokens": str(tokens),
            "num_gpu_blocks": str(self.num_gpu_blocks),
            "num_gpu_blocks_override": str(self.num_gpu_blocks),
        }


_CACHE_LABELS = {
    "_block_size_resolved": "True",
    "cache_dtype": "auto",
    "cache_hit_alignment_tokens": "None",
    "enable_mamba_shared_prefix_checkpoint": "False",
    "gpu_memory_utilization": "0.92",
    "hash_block_size": "None",
    "is_attention_free": "False",
    "kv_cache_dtype_skip_layers": "[]",
    "kv_cache_layout": "None",
    "kv_cache_memory_bytes": "1073741824",
    "kv_offloading_backend": "native",
    "kv_offloading_size": "None",
    "kv_sharing_fast_prefill": "False",
    "mamba_block_size": "None",
    "mamba_cache_dtype": "auto",
    "mamba_cache_mode": "none",
    "mamba_page_size_padded": "None",
    "mamba_ssm_cache_dtype": "auto",
    "num_cpu_blocks": "None",
    "prefix_cache_retention_interval": "0",
    "prefix_caching_hash_algo": "sha256",
    "prefix_match_unit": "None",
    "replayssm_buffer_len": "16",
    "skip_page_size_padded": "None",
    "sliding_window": "None",
    "swa_bounded_replay": "True",
    "use_kda_recoverssm": "False",
    "use_replayssm": "False",
    "user_specified_block_size": "False",
}
