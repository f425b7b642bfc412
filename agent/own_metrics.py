"""What the warden says of itself to Prometheus: names, labels and how each is fed.

Every name begins with `fleetwarden_`. Labels take few, known values, never an incident's id or a URL. Safe to feed and read
from several threads.
"""

import platform
from collections import Counter as Tally
from collections.abc import Iterable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, ProcessCollector, generate_latest

from actuators.action import OutcomeStatus
from agent.decision.decision import Decision
from agent.incident import Incident
from detectors.finding import Finding
from serving.telemetry.window import SourceStatus

STEP_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
BREAKER_STATES = ("closed", "open", "half_open")


class OwnMetrics:
    """The warden's own metrics, in a registry of their own. `version` is the distribution's."""

    def __init__(self, version: str) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self._steps = Counter(
            "fleetwarden_steps", "Steps of the loop, by result: ok or failed", ["result"], registry=registry
        )
        self._seconds = Histogram(
            "fleetwarden_step_seconds",
            "Time that each stage of a step took",
            ["stage"],
            buckets=STEP_BUCKETS,
            registry=registry,
        )
        self._last = Gauge("fleetwarden_last_step_timestamp_seconds", "When a step last came to its end", registry=registry)
        self._late = Counter("fleetwarden_late_ticks", "Steps that began later than they were due", registry=registry)
        self._source_up = Gauge(
            "fleetwarden_source_up", "1 when a telemetry source answered in time", ["source"], registry=registry
        )
        self._source_age = Gauge(
            "fleetwarden_source_age_seconds",
            "Since a telemetry source last answered; +Inf: never",
            ["source"],
            registry=registry,
        )
        self._findings = Gauge("fleetwarden_findings", "Findings of the last step", ["symptom"], registry=registry)
        self._open = Gauge(
            "fleetwarden_incidents_open", "Incidents that have not ended", ["cause", "state"], registry=registry
        )
        self._waiting = Gauge(
            "fleetwarden_waiting_for_people",
            "Incidents that only a person can bring on: an approval is asked for, or the warden gave up",
            ["with"],
            registry=registry,
        )
        self._decisions = Counter("fleetwarden_decisions", "Decisions written", ["verdict", "reason"], registry=registry)
        self._operations = Counter(
            "fleetwarden_operations", "Operations by how they came out", ["verb", "outcome"], registry=registry
        )
        self._breaker = Gauge("fleetwarden_breaker_state", "1 for the state the breaker is in", ["state"], registry=registry)
        self._paused = Gauge("fleetwarden_paused", "1 while a person has paused the warden", registry=registry)
        self._leader = Gauge("fleetwarden_leader", "1 while this warden is the one that acts", registry=registry)
        self._term = Gauge(
            "fleetwarden_term", "The term of the leader as this warden knows it; 0: none is known", registry=registry
        )
        self._notices = Counter(
            "fleetwarden_notices", "Notices by what became of them", ["sink", "result"], registry=registry
        )
        self._detector = Counter("fleetwarden_detector_failures", "Times a detector broke", ["detector"], registry=registry)
        build = Info("fleetwarden_build", "What runs here", registry=registry)
        build.info({"version": version, "python": platform.python_version()})
        self.breaker(BREAKER_STATES[0])
        self.waiting(approvals=0, escalations=0)
        for result in ("ok", "failed"):  # present from the start, so that a rate over them is 0 and not missing
            self._steps.labels(result)

    def stage(self, stage: str, seconds: float) -> None:
        """A stage of a step (observe, detect, diagnose, decide, act, verify, report) took `seconds`."""
        self._seconds.labels(stage).observe(seconds)

    def stepped(self, now: float, seconds: float) -> None:
        """A step that took `seconds` in all came to its end at `now` (Unix seconds)."""
        self._steps.labels("ok").inc()
        self._seconds.labels("all").observe(seconds)
        self._last.set(now)

    def step_failed(self) -> None:
        """A step ended in an error."""
        self._steps.labels("failed").inc()

    def late(self, ticks: int = 1) -> None:
        """`ticks` steps began later than they were due, or were left out."""
        self._late.inc(ticks)

    def sources(self, statuses: Iterable[SourceStatus], now: float) -> None:
        """How the telemetry sources fared in a step."""
        known = {status.source.name: status for status in statuses}
        _set(self._source_up, {(name,): float(not status.error) for name, status in known.items()})
        ages = {
            (name,): float("inf") if status.answered_at is None else max(0.0, now - status.answered_at)
            for name, status in known.items()
        }
        _set(self._source_age, ages)

    def findings(self, findings: Iterable[Finding]) -> None:
        """What the detectors found in a step."""
        _set(self._findings, Tally((finding.symptom.value,) for finding in findings))

    def incidents(self, incidents: Iterable[Incident]) -> None:
        """All incidents that have not ended; ended ones among them are left out."""
        _set(self._open, Tally((incident.cause, incident.state.value) for incident in incidents if not incident.ended))

    def waiting(self, *, approvals: int, escalations: int) -> None:
        """How many incidents wait for an answer, and how many the warden gave up that are not over."""
        _set(self._waiting, {("approval",): float(approvals), ("escalation",): float(escalations)})

    def decided(self, decision: Decision) -> None:
        """A decision was written."""
        self._decisions.labels(decision.verdict.value, decision.reason.value).inc()

    def operated(self, verb: str, outcome: OutcomeStatus) -> None:
        """An operation came out."""
        self._operations.labels(verb, outcome.value).inc()

    def breaker(self, state: str) -> None:
        """The breaker is `closed`, `open` or `half_open`."""
        _set(self._breaker, {(known,): float(known == state) for known in dict.fromkeys((*BREAKER_STATES, state))})

    def paused(self, *, paused: bool) -> None:
        """Whether a person has paused the warden."""
        self._paused.set(float(paused))

    def leads(self, term: int, *, leading: bool) -> None:
        """Whether this warden is the one that acts, and the term of whoever is."""
        self._leader.set(float(leading))
        self._term.set(term)

    def notified(self, sink: str, result: str) -> None:
        """What became of a notice; fits `Dispatcher(counted=...)`."""
        self._notices.labels(sink, result).inc()

    def detector_failed(self, detector: str) -> None:
        """A detector broke; the others went on."""
        self._detector.labels(detector).inc()

    def exposition(self) -> bytes:
        """Everything in the Prometheus text format."""
        return generate_latest(self.registry)


def _set(gauge: Gauge, values: Mapping[tuple[str], float] | Mapping[tuple[str, str], float]) -> None:
    """Make `values`, by label values, all that `gauge` holds. New ones come before old ones go, so no scrape sees a gap."""
    gone = [tuple(labels) for labels in gauge._metrics if tuple(labels) not in values]  # noqa: SLF001 - no public way
    for labels, value in values.items():
        gauge.labels(*labels).set(value)
    for old in gone:
        gauge.remove(*old)
