"""The loop's runner: when a step runs, what catches it, what is measured and written of it. The work itself is agent.loop.

APScheduler keeps the pace; a step that is late or left out is counted, never silently dropped.
"""

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import structlog
from apscheduler.events import EVENT_JOB_MAX_INSTANCES, EVENT_JOB_MISSED, JobEvent
from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler

from agent import status as page
from agent.decision.breaker import BreakerState
from agent.decision.consent import waits_for_answer
from agent.election.office import Office
from agent.incident import Decided, Finished, IncidentEvent
from agent.journal.port import DeposedError, Journal, JournalError
from agent.loop import Loop, StepReport
from agent.own_http import Health
from agent.own_metrics import OwnMetrics
from serving.clock import Clock, SystemClock
from serving.fleet.topology import Topology

HOUSEKEEPING_S = 3_600.0
KEEP_S = 30 * 86_400.0  # a month of history is what people look back on


@dataclass(frozen=True, slots=True)
class Pace:
    """How often, in seconds, and where the status page is written. `keep` is how long the journal remembers what is over."""

    interval: float
    state_dir: Path
    keep: float = KEEP_S


class Runner:
    """Runs one Loop until told to stop. No exception of a step ends it. Who does not lead only looks."""

    def __init__(
        self,
        loop: Loop,
        topology: Callable[[], Topology],
        journal: Journal,
        metrics: OwnMetrics,
        health: Health,
        office: Office,
        clock: Clock,
        pace: Pace,
        names: tuple[str, str],
    ) -> None:
        self._loop = loop
        self._topology = topology
        self._journal = journal
        self._metrics = metrics
        self._health = health
        self._office = office
        self._clock = clock
        self._pace = pace
        self._fleet, self._autonomy = names
        self._log = structlog.get_logger("fleetwarden.loop")

    def run(self, stop: threading.Event) -> None:
        """Step at the pace until `stop` is set, then wait for the step under way."""
        scheduler = BackgroundScheduler(
            executors={"default": ThreadPoolExecutor(2)},
            job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
            timezone=UTC,
        )
        scheduler.add_listener(self._late, EVENT_JOB_MAX_INSTANCES | EVENT_JOB_MISSED)
        first = datetime.fromtimestamp(SystemClock().now(), tz=UTC)  # the scheduler's own clock
        scheduler.add_job(self.tick, "interval", seconds=self._pace.interval, id="step", next_run_time=first)
        scheduler.add_job(self.housekeep, "interval", seconds=HOUSEKEEPING_S, id="housekeeping")
        scheduler.start()
        stop.wait()
        scheduler.shutdown(wait=True)

    def tick(self) -> StepReport | None:
        """One step, whatever it raises. None when it failed, or when another warden leads."""
        began = self._clock.monotonic()
        try:
            report = self._step()
        except DeposedError as error:
            self._office.deposed(error)
            self._metrics.step_failed()
            return None
        except Exception as error:  # noqa: BLE001 - no exception of a step may end the loop
            self._metrics.step_failed()
            self._health.failed(f"{type(error).__name__}: {error}")
            self._log.exception("step failed; the next one follows as usual")
            return None
        finally:
            self._tell_standing()
        self._health.stepped()
        if report is None:
            self._metrics.stepped(self._clock.now(), self._clock.monotonic() - began)
            return None
        self._measure(report, self._clock.monotonic() - began)
        self._write_page(report)
        return report

    def housekeep(self) -> None:
        """Let the journal forget what was over long ago, if it is ours to do."""
        if not self._office.holds():
            return
        try:
            forgotten = self._journal.prune(self._clock.now() - self._pace.keep)
        except JournalError as error:
            self._log.warning("the journal could not be pruned", error=str(error))
            return
        self._log.info("pruned the journal", incidents=forgotten)

    def _step(self) -> StepReport | None:
        """The whole step of a leader. A follower only looks, so that it can judge at once should it take over."""
        now = self._clock.now()
        if self._office.enter(now):
            return self._loop.step(self._topology(), now)
        window = self._loop.follow(self._topology(), now)
        self._metrics.sources(window.sources, now)
        self._metrics.findings(())  # what was found and is open is for the leader to say
        self._metrics.incidents(())
        self._metrics.waiting(approvals=0, escalations=0)
        return None

    def _tell_standing(self) -> None:
        standing = self._office.standing()
        self._metrics.leads(standing.term, leading=standing.leading)

    def _late(self, event: JobEvent) -> None:
        if event.job_id == "step":
            self._metrics.late()

    def _measure(self, report: StepReport, seconds: float) -> None:
        now = self._clock.now()
        self._metrics.stepped(now, seconds)
        for stage, spent in report.seconds.items():
            self._metrics.stage(stage, spent)
        self._metrics.sources(report.window.sources, now)
        self._metrics.findings(report.detection.findings)
        for failure in report.detection.failed:
            self._metrics.detector_failed(failure.detector)
            self._log.warning("a detector failed; the others went on", detector=failure.detector, error=failure.error)
        self._metrics.incidents(report.incidents)
        approvals = sum(waits_for_answer(incident, report.state) for incident in report.incidents)
        self._metrics.waiting(approvals=approvals, escalations=report.escalated)
        self._metrics.breaker(report.state.breaker.state)
        self._metrics.paused(paused=report.state.switches.paused is not False)
        self._count(report.events)

    def _count(self, events: Iterable[IncidentEvent]) -> None:
        for event in events:
            if isinstance(event, Decided):
                self._metrics.decided(event.decision)
            elif isinstance(event, Finished) and (incident := self._journal.incident(event.incident)) is not None:
                verb = next(operation.action.verb for operation in incident.operations if operation.key == event.key)
                self._metrics.operated(verb, event.outcome.status)

    def _write_page(self, report: StepReport) -> None:
        switches, breaker = report.state.switches, report.state.breaker
        seen = page.FleetStatus(
            at=report.window.now,
            fleet=self._fleet,
            autonomy=self._autonomy,
            paused="" if switches.paused is False else (switches.paused_by or "the switch cannot be read"),
            breaker="" if breaker.state is BreakerState.CLOSED else f"{breaker.state}, {breaker.says}",
            engines=page.engine_rows(report.window, report.incidents),
            incidents=page.incident_rows(report.incidents),
            sources=page.source_rows(report.window),
        )
        try:
            page.write(seen, self._pace.state_dir)
        except OSError as error:
            self._log.warning("the status page could not be written", error=str(error))
