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
    CLIENTS_LEAVING = "clients.leaving"  # clients give up
    REQUESTS_FAILING = "requests.failing"  # answers fail at the door
    SOURCE_BLIND = "source.blind"  # a telemetry source, or most of what it carries, does not speak
    MOST_TARGETS_LOST = "targets.lost"  # most engines vanished from telemetry in the same moment


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
