"""The vocabulary of reporting: each cause, symptom and verb in words, of which agent.report.wording makes sentences."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from actuators.action import OutcomeStatus
from detectors.finding import Symptom


class Cause(NamedTuple):
    """A cause as a predicate of its entity (`is hung`, `was hung`), and what it means for users."""

    present: str
    past: str
    meaning: str


CAUSES: Mapping[str, Cause] = MappingProxyType(
    {
        "engine.hung": Cause(
            "is hung",
            "was hung",
            "it takes requests, but its core makes no steps, so answers do not come; its /health may still say 200",
        ),
        "engine.frozen_gauges": Cause(
            "has frozen gauges", "had frozen gauges", "its gauges claim work that is not there; users are not affected"
        ),
        "engine.api_hung": Cause(
            "does not answer HTTP", "did not answer HTTP", "its port is open, but its API process says nothing"
        ),
        "engine.dead": Cause("is down", "was down", "nothing listens where it should be, so every request to it fails"),
        "engine.slow": Cause("is slow", "was slow", "it does clearly less work than its peers under the same load"),
        "engine.gc_stall": Cause(
            "keeps pausing",
            "kept pausing",
            "all its requests stand still together, again and again, as in garbage collection",
        ),
        "prefill.saturated": Cause(
            "is flooded by long prompts",
            "was flooded by long prompts",
            "long prompts take its time, so first tokens of all others are late",
        ),
        "engine.kv_pressure": Cause(
            "is short of KV cache",
            "was short of KV cache",
            "it throws out requests for lack of KV cache blocks and does their work again",
        ),
        "experts.hot": Cause(
            "has a hot expert",
            "had a hot expert",
            "one expert of its model gets most of the tokens, so the rank that holds it decides how fast all others are",
        ),
        "overload": Cause(
            "is overloaded", "was overloaded", "more requests arrive than can be served, so all of them wait longer"
        ),
        "clients.leaving": Cause(
            "is losing its clients",
            "was losing its clients",
            "clients give up before their answer is whole; the engines are well",
        ),
        "engine.queue_stuck": Cause(
            "lets nobody in", "let nobody in", "requests wait in its queue although it has room, and none of them begins"
        ),
        "engine.bad_output": Cause(
            "gives bad answers", "gave bad answers", "its answers come in time and are garbage, or never end by themselves"
        ),
        "engine.kv_leak": Cause(
            "leaks KV cache", "leaked KV cache", "KV blocks stay taken that no request holds, so it can hold fewer and fewer"
        ),
        "engine.memory_leak": Cause(
            "leaks memory",
            "leaked memory",
            "its host memory only rises; at its limit the kernel kills it with all its requests",
        ),
        "engine.slow_start": Cause(
            "is slow to start", "was slow to start", "it starts for far longer than its like and serves nobody meanwhile"
        ),
        "engine.start_blocked": Cause(
            "cannot start",
            "could not start",
            "processes that are nobody's hold the GPU memory that it needs, so its start cannot succeed",
        ),
        "rollout.bad": Cause(
            "has a bad rollout", "had a bad rollout", "the engines of its newest revision are ill, and only those"
        ),
        "gateway.broken": Cause(
            "is broken", "was broken", "requests fail, hang or queue at it although engines behind it are well and free"
        ),
        "telemetry.renamed": Cause(
            "lost names", "had lost names", "some series are gone under their names for all engines; the engines are well"
        ),
        "telemetry.doubled": Cause(
            "counts twice", "counted twice", "an engine is measured twice, so its rates look doubled; the engine is well"
        ),
        "gpu.faulted": Cause(
            "has a fault",
            "had a fault",
            "its driver or its memory reports an error that must be acted on before it is used again",
        ),
        "gpu.degraded": Cause(
            "is held back", "was held back", "it computes slower than its peers, and every batch it takes part in with it"
        ),
        "gpu.memory_vampire": Cause(
            "is used by somebody else",
            "was used by somebody else",
            "a process that is not its engine's holds much of its memory, so the engine may run out of it",
        ),
        "node.unhealthy": Cause(
            "is unwell", "was unwell", "all engines on it are at risk, and nothing new should be placed there"
        ),
        "fabric.degraded": Cause(
            "is degraded",
            "was degraded",
            "the nodes, GPUs or engines that share it are unwell together; none of them is at fault",
        ),
        "telemetry.blind": Cause(
            "is blind", "was blind", "measurements do not come, so nothing there is judged or repaired until they do"
        ),
    }
)

SYMPTOMS: Mapping[Symptom, str] = MappingProxyType(
    {
        Symptom.STEPS_FROZEN: "no engine steps although requests wait for answers",
        Symptom.RETURNED: "it stood still until a moment ago",
        Symptom.GAUGES_FROZEN: "gauges claim work while nothing steps and nothing is awaited",
        Symptom.TARGET_REFUSED: "connection refused",
        Symptom.TARGET_SILENT: "the port is open and no answer comes",
        Symptom.RESTARTED: "the process was started anew",
        Symptom.SLOWER_THAN_PEERS: "slower than its peers",
        Symptom.STEP_GAPS: "repeated gaps between steps that hit all requests at once",
        Symptom.TTFT_RAISED: "first tokens come late",
        Symptom.DECODE_STEADY: "time between tokens is as before",
        Symptom.LONG_PROMPTS: "prompts are much longer than before",
        Symptom.LONG_GENERATIONS: "answers are much longer than before",
        Symptom.PREFILL_BUSY: "most of the work is prompt processing",
        Symptom.QUEUE_GROWING: "requests wait for room for long",
        Symptom.QUEUE_WAITED: "finished requests had waited long in its queue",
        Symptom.BATCH_FULL: "the batch is full",
        Symptom.KV_FULL: "the KV cache is almost full",
        Symptom.PREEMPTING: "requests are thrown out for lack of KV cache",
        Symptom.ARRIVALS_RAISED: "more requests arrive than before",
        Symptom.SERVED_BELOW_ARRIVALS: "more requests arrive than are answered",
        Symptom.EXPERTS_HOT: "one expert gets far more tokens than its share",
        Symptom.CLIENTS_LEAVING: "clients give up",
        Symptom.REQUESTS_FAILING: "requests fail at the front door",
        Symptom.QUEUE_STUCK: "its queue does not move although it has room",
        Symptom.OUTPUT_CORRUPT: "answers with NaN in their logits",
        Symptom.OUTPUT_ENDLESS: "nearly all answers run to their length limit",
        Symptom.KV_HELD: "KV cache is taken that no request holds",
        Symptom.MEMORY_RISING: "host memory rises steadily at flat load",
        Symptom.START_SLOW: "it has been starting for far too long",
        Symptom.START_MEMORY_HELD: "the GPU memory that its start needs is held by somebody else",
        Symptom.REVISION_WORSE: "engines of the newest revision are ill, and only those",
        Symptom.REVISION_SUSPECT: "it has the revision whose engines are ill",
        Symptom.DOOR_FAILING: "requests hang or fail at the front door while engines are idle",
        Symptom.DOOR_STARVES: "the front door sends nothing to an engine that is up",
        Symptom.SERIES_VANISHED: "series vanished under their names for all engines at once",
        Symptom.SERIES_DOUBLED: "counters count everything twice",
        Symptom.XID_RESTART_APP: "the driver reported an error after which the application must be restarted",
        Symptom.XID_RESET_GPU: "the driver reported an error after which the GPU must be reset",
        Symptom.XID_REBOOT_NODE: "the driver reported an error after which the node must be rebooted",
        Symptom.XID_CHECK: "the driver reported an error that a person must look into",
        Symptom.ECC_UNCORRECTED: "memory errors that could not be corrected",
        Symptom.REMAP_FAILED: "a faulty memory row could not be remapped",
        Symptom.REMAP_PENDING: "a faulty memory row waits for a reset to be remapped",
        Symptom.GPU_THROTTLED: "heat or hardware holds its clock below its peers'",
        Symptom.GPU_CLOCK_LOW: "its clock stays below its peers' for no stated reason",
        Symptom.GPU_POWER_LOW: "it draws far less power than its peers at the same work",
        Symptom.GPU_MEMORY_FOREIGN: "much of its memory is held by somebody who is not its engine",
        Symptom.NODE_NOT_READY: "it is not ready",
        Symptom.NODE_RETURNING: "people took it down, or it has just rebooted",
        Symptom.NODE_REJECTS_PODS: "it says that it is ready and refuses GPU pods",
        Symptom.NODE_GPUS_SHORT: "it has fewer GPUs to give than it holds",
        Symptom.NODE_CLOCK_OFF: "its clock is off",
        Symptom.NODE_DISK_READONLY: "its disk takes no writes",
        Symptom.NODE_DISK_FULL: "its disk is almost full",
        Symptom.NODE_NETWORK_ERRORS: "many of its packets have errors",
        Symptom.NODE_ENGINES_LOST: "all of its engines went in the same moment",
        Symptom.SWITCH_ERRORS: "most of what it joins has errors, and hardly anything elsewhere",
        Symptom.SWITCH_SLOW: "most engines behind it are slower than elsewhere",
        Symptom.SOURCE_BLIND: "a source of telemetry does not speak",
        Symptom.MOST_TARGETS_LOST: "most engines vanished from telemetry at the same moment",
    }
)

# What a verb did, and the same as an order.
VERBS: Mapping[str, str] = MappingProxyType(
    {
        "door.drain": "took {target} out of rotation",
        "door.undrain": "put {target} back into rotation",
        "door.set_weight": "set the share of new requests of {target} to {weight}",
        "process.restart": "restarted {target}",
        "process.kill_orphans": "ended processes that {target} had left behind",
        "experts.rebalance": "spread the experts of {target} anew",
        "engine.canary": "sent {target} a test request",
        "engine.pause": "paused {target}",
        "rollout.rollback": "took {target} back to its last good revision",
        "door.refresh": "had {target} read its engines anew",
        "engine.resume": "resumed {target}",
        "node.cordon": "kept new work away from {target}",
        "node.uncordon": "let new work be placed on {target} again",
        "node.reboot": "rebooted {target}",
        "gpu.reset": "reset {target}",
        "gpu.evict_intruder": "ended the process on {target} that was not its engine's",
    }
)
ORDERS: Mapping[str, str] = MappingProxyType(
    {
        "door.drain": "take {target} out of rotation",
        "door.undrain": "put {target} back into rotation",
        "door.set_weight": "set the share of new requests of {target} to {weight}",
        "process.restart": "restart {target}",
        "process.kill_orphans": "end processes that {target} left behind",
        "experts.rebalance": "spread the experts of {target} anew",
        "engine.canary": "send {target} a test request",
        "engine.pause": "pause {target}",
        "rollout.rollback": "take {target} back to its last good revision",
        "door.refresh": "have {target} read its engines anew",
        "engine.resume": "resume {target}",
        "node.cordon": "keep new work away from {target}",
        "node.uncordon": "let new work be placed on {target} again",
        "node.reboot": "reboot {target}",
        "gpu.reset": "reset {target}",
        "gpu.evict_intruder": "end the process on {target} that is not its engine's",
    }
)

# Verbs that only ask. Their failure is an answer, not a failed repair.
PROBES = frozenset({"engine.canary"})
PROBED = {OutcomeStatus.DONE: "answered", OutcomeStatus.FAILED: "no answer", OutcomeStatus.UNKNOWN: "outcome unknown"}
OUTCOMES = {OutcomeStatus.DONE: "done", OutcomeStatus.FAILED: "failed", OutcomeStatus.UNKNOWN: "outcome unknown"}

# Headings of a told story, and what stands where nothing was done.
TITLES: Mapping[str, str] = MappingProxyType(
    {
        "todo": "What to do now",
        "why": "Why we think so",
        "ruled_out": "Ruled out, or less likely",
        "done": "What was done",
        "nothing_done": "nothing yet",
        "users": "Users",
    }
)
