"""Finding: one symptom on one entity, with the numbers that show it."""

from dataclasses import dataclass
from enum import StrEnum

from serving.fleet.entity import Entity


class Symptom(StrEnum):
    """Every symptom a detector may find. The cause catalogue (agent/diagnosis/causes.yaml) speaks in these."""

    STEPS_FROZEN = "steps.frozen"  # no engine step for long while the door waits for answers; scrape fine
    RETURNED = "engine.returned"  # stood still or did not answer until a moment ago: what is seen now may be after-effects
    GAUGES_FROZEN = "gauges.frozen"  # the engine's gauges claim work, nothing steps, the door waits for nothing
    TARGET_REFUSED = "target.refused"  # nothing listens where the engine should be
    TARGET_SILENT = "target.silent"  # the port is open, the answer does not come
    RESTARTED = "process.restarted"  # the process start changed
    SLOWER_THAN_PEERS = "slower_than_peers"  # less work per second than peers under the same load
    STEP_GAPS = "steps.gaps"  # pauses that hit all requests of one engine at once, again and again
    TTFT_RAISED = "ttft.raised"  # first tokens late, against peers or own past
    DECODE_STEADY = "decode.steady"  # inter-token latency as before while something else is raised
    LONG_PROMPTS = "prompts.long"  # prompts much longer than before
    LONG_GENERATIONS = "generations.long"  # generations much longer than before
    PREFILL_BUSY = "prefill.busy"  # most step tokens are prompt tokens and prefill takes the time
    QUEUE_GROWING = "queue.growing"  # waiting requests, by capacity, for long
    QUEUE_WAITED = "queue.waited"  # finished requests had spent much of their time to first token in the engine's queue
    BATCH_FULL = "batch.full"  # running stands at its ceiling
    KV_FULL = "kv.full"  # KV usage near its ceiling
    PREEMPTING = "preempting"  # requests thrown out for lack of KV blocks
    ARRIVALS_RAISED = "arrivals.raised"  # more requests arrive than before
    SERVED_BELOW_ARRIVALS = "served.below_arrivals"  # in flight grows: more comes than goes
    EXPERTS_HOT = "experts.uneven"  # one expert of a layer gets far more tokens than its share, for long
    CLIENTS_LEAVING = "clients.leaving"  # clients give up
    REQUESTS_FAILING = "requests.failing"  # answers fail at the door
    QUEUE_STUCK = "queue.stuck"  # requests wait although nothing keeps them: room, a live scheduler, and nobody is let in
    OUTPUT_CORRUPT = "output.corrupt"  # answers that the engine itself knows to be garbage
    OUTPUT_ENDLESS = "output.endless"  # nearly all answers run to their length limit, which they did not before
    KV_HELD = "kv.held"  # KV blocks in use that no request holds
    MEMORY_RISING = "memory.rising"  # host memory rises steadily at flat load
    START_SLOW = "start.slow"  # a start takes far longer than its like
    START_MEMORY_HELD = "start.memory_held"  # the memory that a start needs is held by none of its processes
    REVISION_WORSE = "revision.worse"  # the engines of a model's newest revision are ill, and only those
    REVISION_SUSPECT = "revision.suspect"  # this engine has the revision whose engines are ill
    DOOR_FAILING = "door.failing"  # requests hang or fail at the door while the engines behind it are idle
    DOOR_STARVES = "door.starves"  # an engine that is up is never sent anything while others queue
    SERIES_VANISHED = "series.vanished"  # a name is gone for all engines at once, their other series are there
    SERIES_DOUBLED = "series.doubled"  # an engine's counters count everything twice
    SOURCE_BLIND = "source.blind"  # a telemetry source, or most of what it carries, does not speak
    MOST_TARGETS_LOST = "targets.lost"  # most engines vanished from telemetry in the same moment
    XID_RESTART_APP = "xid.restart_app"  # the driver reported an error after which the application must be restarted
    XID_RESET_GPU = "xid.reset_gpu"  # one after which the GPU must be reset
    XID_REBOOT_NODE = "xid.reboot_node"  # one after which the node must be rebooted
    XID_CHECK = "xid.check"  # one that a person must look into
    ECC_UNCORRECTED = "ecc.uncorrected"  # memory errors that could not be corrected, and no XID that tells more
    REMAP_FAILED = "remap.failed"  # a faulty memory row could not be remapped
    REMAP_PENDING = "remap.pending"  # a faulty memory row is remapped at the next reset
    GPU_THROTTLED = "gpu.throttled"  # hardware or heat holds its clock below its peers'
    GPU_CLOCK_LOW = "gpu.clock_low"  # its clock is below its peers' at work, for no reason that it names
    GPU_POWER_LOW = "gpu.power_low"  # it draws far less power than its peers at the same work, and its engine is slower
    GPU_MEMORY_FOREIGN = "gpu.memory_foreign"  # much of its memory is held by somebody who is not its engine
    NODE_NOT_READY = "node.not_ready"  # the node is not ready, and nobody had cordoned it
    NODE_RETURNING = "node.returning"  # taken down by people, or just rebooted: what it shows now is after-effects
    NODE_REJECTS_PODS = "node.rejects_pods"  # ready, and refuses GPU pods
    NODE_GPUS_SHORT = "node.gpus_short"  # ready, and has fewer GPUs to give than it holds
    NODE_CLOCK_OFF = "node.clock_off"  # its clock is off and does not come nearer
    NODE_DISK_READONLY = "node.disk_readonly"  # its disk takes no writes
    NODE_DISK_FULL = "node.disk_full"  # its disk is almost full
    NODE_NETWORK_ERRORS = "node.network_errors"  # many of its packets have errors
    NODE_ENGINES_LOST = "node.engines_lost"  # all of its engines went in the same moment
    SWITCH_ERRORS = "switch.errors"  # most nodes of one switch, or GPUs of one NVLink domain, have errors; others not
    SWITCH_SLOW = "switch.slow"  # most engines behind one switch are slower than their peers elsewhere


@dataclass(frozen=True, slots=True)
class Evidence:
    """One number that shows a symptom: what was measured, what was expected, over which span.

    `says` is a short clause for a person, such as "no engine step for 12 s with 4 requests in flight".
    """

    signal: str
    says: str
    value: float
    expected: float | None = None
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """One symptom on one entity, seen to hold from `since` (Unix seconds) until the window's now.

    `severity` is from 0 (just over the line) to 1 (users surely suffer).
    """

    symptom: Symptom
    entity: Entity
    since: float
    severity: float
    evidence: tuple[Evidence, ...] = ()
