"""Faults of single engines: their core, their API, their memory, their answers, and floods that hit one of them."""

from types import MappingProxyType

from serving.fleet.entity import EntityKind
from serving.virtual.faults.kind import Cure, Kind, Onset, Parameters, one
from serving.virtual.fleet import VirtualFleet
from serving.virtual.users import Flood

GIB = 2.0**30
ANY = (Onset.SUDDEN, Onset.CREEPING, Onset.FLAPPING)
GROWING = (Onset.SUDDEN, Onset.CREEPING)


def _hang(fleet: VirtualFleet, row: int, level: float, given: Parameters) -> None:  # noqa: ARG001 - every lever has this form
    fleet.engines.halted[row] = level > 0


def _silence(fleet: VirtualFleet, row: int, level: float, given: Parameters) -> None:  # noqa: ARG001 - every lever has this form
    fleet.processes.silent[row] = level > 0


def _kill(fleet: VirtualFleet, row: int, level: float, given: Parameters) -> None:  # noqa: ARG001 - every lever has this form
    if level > 0:
        fleet.kill(one(row))
    elif not fleet.processes.up[row]:
        fleet.restart(one(row))


def _slow(fleet: VirtualFleet, row: int, level: float, given: Parameters) -> None:
    fleet.engines.slow[row] = 1.0 + level * (given["factor"] - 1.0)


def _pause(fleet: VirtualFleet, row: int, level: float, given: Parameters) -> None:
    pauses = fleet.engines.pauses
    pauses.length[row] = level * given["pause_s"]
    pauses.every[row] = given["every_s"]
    if level > 0:
        pauses.since[row] = min(fleet.now, pauses.since[row]) if pauses.since[row] > 0 else fleet.now


def _flood(fleet: VirtualFleet, row: int, level: float, given: Parameters) -> None:
    name = f"flood:{row}:{given['prompt']:g}"
    fleet.users.floods.pop(name, None)
    if level > 0:
        fleet.users.floods[name] = Flood(row, level * given["rps"], given["prompt"], given["output"])


def _leak_kv(fleet: VirtualFleet, row: int, level: float, given: Parameters) -> None:
    fleet.engines.leaked[row] = level * given["share"] * fleet.engines.kv_tokens[row]


def _hold(fleet: VirtualFleet, row: int, level: float, given: Parameters) -> None:  # noqa: ARG001 - every lever has this form
    fleet.engines.held[row] = level > 0


def _corrupt(fleet: VirtualFleet, row: int, level: float, given: Parameters) -> None:
    fleet.engines.corrupt[row] = level * given["share"]
    fleet.engines.runaway[row] = 1.0 + level * (given["longer"] - 1.0)


def _leak_memory(fleet: VirtualFleet, row: int, level: float, given: Parameters) -> None:
    fleet.processes.leak_rate[row] = level * given["gib_a_minute"] * GIB / 60.0


def _start_slowly(fleet: VirtualFleet, row: int, level: float, given: Parameters) -> None:
    fleet.processes.start_slow[row] = given["factor"] if level > 0 else 1.0
    if level > 0:
        fleet.restart(one(row))


def _block_start(fleet: VirtualFleet, row: int, level: float, given: Parameters) -> None:
    gpus = fleet.plan.gpu_engine == row
    fleet.hardware.orphaned[gpus] = level * given["gib"] * GIB
    if level > 0:
        fleet.restart(one(row))


def _repeat(fleet: VirtualFleet, row: int, level: float, given: Parameters) -> None:
    fleet.experts.repeated[row] = level * given["share"]


def _with_experts(fleet: VirtualFleet) -> list[int]:
    return [row for row, has in enumerate(fleet.experts.present.tolist()) if has]


E = EntityKind.ENGINE
ENGINE_KINDS = (
    Kind(
        "engine-hang", E, "the core stands still behind an API that answers", "vllm-project/vllm#2731", Cure.PROCESS, _hang
    ),
    Kind("worker-hang", E, "a worker stands still and the core waits for it", "gonka-ai/gonka#1421", Cure.PROCESS, _hang),
    Kind("api-hang", E, "the API takes connections and answers nothing", "vllm-project/vllm#34789", Cure.PROCESS, _silence),
    Kind("engine-kill", E, "the process is gone", "ai-dynamo/dynamo#2124", Cure.PROCESS, _kill),
    Kind(
        *(
            "slow-engine",
            E,
            "every step takes longer, on hardware like its peers'",
            "ray-project/ray#54070",
            Cure.PROCESS,
            _slow,
        ),
        MappingProxyType({"factor": 2.5}),
        GROWING,
    ),
    Kind(
        *("gc-stall", E, "collector pauses hit all of its requests", "vllm-project/vllm#14902", Cure.PROCESS, _pause),
        MappingProxyType({"pause_s": 0.5, "every_s": 3.0}),
        GROWING,
    ),
    Kind(
        *("prefill-flood", E, "long prompts, more than it can read", "local-inference-lab/vllm#541", Cure.NOTHING, _flood),
        MappingProxyType({"rps": 8.0, "prompt": 6_000.0, "output": 20.0}),
        GROWING,
    ),
    Kind(
        *("kv-flood", E, "long answers, more than its KV cache holds", "vllm-project/vllm#18115", Cure.NOTHING, _flood),
        MappingProxyType({"rps": 3.0, "prompt": 2_500.0, "output": 3_000.0}),
        GROWING,
    ),
    Kind(
        *("kv-leak", E, "KV blocks that nobody holds are not given back", "vllm-project/vllm#27073", Cure.PROCESS, _leak_kv),
        MappingProxyType({"share": 0.9}),
        GROWING,
    ),
    Kind("queue-stuck", E, "nobody is admitted though there is room", "vllm-project/vllm-metal#479", Cure.PROCESS, _hold),
    Kind(
        *("bad-output", E, "answers are garbage and run on", "vllm-project/vllm#42426", Cure.PROCESS, _corrupt),
        MappingProxyType({"share": 0.5, "longer": 3.0}),
    ),
    Kind(
        *(
            "memory-leak",
            E,
            "host memory grows until the kernel ends it",
            "vllm-project/vllm#50150",
            Cure.PROCESS,
            _leak_memory,
        ),
        MappingProxyType({"gib_a_minute": 4.0}),
    ),
    Kind(
        *(
            "slow-start",
            E,
            "it starts, and takes far longer than others",
            "vllm-project/vllm#45631",
            Cure.NOTHING,
            _start_slowly,
        ),
        MappingProxyType({"factor": 6.0}),
    ),
    Kind(
        *(
            "start-blocked",
            E,
            "dead processes hold the memory it starts into",
            "vllm-project/vllm#34643",
            Cure.NOTHING,
            _block_start,
        ),
        MappingProxyType({"gib": 40.0}),
    ),
    Kind(
        *(
            "hot-expert",
            E,
            "prompts that repeat one token go to few experts",
            "vllm-project/vllm#24116",
            Cure.NOTHING,
            _repeat,
        ),
        MappingProxyType({"share": 0.85}),
        GROWING,
        _with_experts,
    ),
)
