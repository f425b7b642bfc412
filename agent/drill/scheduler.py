"""Drills by the calendar: APScheduler says what is due, the main thread runs it, so that signals and undos work as ever.

One drill at a time; what came due several times meanwhile is run once; nothing is dropped for being late.
"""

from collections.abc import Callable
from datetime import datetime
from threading import Event
from typing import Any

import structlog
from apscheduler import events
from apscheduler.executors.debug import DebugExecutor
from apscheduler.jobstores.memory import MemoryJobStore
from apscheduler.schedulers.base import BaseScheduler

from agent.drill.calendar import CalmTrigger, frozen
from agent.drill.card import Card
from agent.drill.fleet import DrillFleetError
from agent.drill.schedule_file import Schedule, Slot
from agent.drill.store import DrillBusyError
from serving.clock import Clock
from serving.engines.records import RecordUnreadableError

LONGEST_SLEEP_S = 60.0  # the machine's clock may be set, or the machine be suspended
_HEARD = {
    events.EVENT_JOB_EXECUTED: "drill.job_done",
    events.EVENT_JOB_ERROR: "drill.job_failed",
    events.EVENT_JOB_MISSED: "drill.job_missed",
    events.EVENT_JOB_MAX_INSTANCES: "drill.job_still_running",
    events.EVENT_JOB_REMOVED: "drill.job_removed",
}

RunDrill = Callable[[str, int], Card]
"""Runs the drill of that name with that seed, tells people, and returns its card."""


class _Stepped(BaseScheduler):  # type: ignore[misc]  # the library ships no types
    """A scheduler without a thread: whoever owns it asks it to look what is due."""

    def wakeup(self) -> None:
        """Nobody sleeps in here."""

    def shutdown(self, wait: bool = True) -> None:  # noqa: FBT001, FBT002 - the library's signature
        super().shutdown(wait)

    def step(self) -> float | None:
        """Run what is due; seconds until the next, None when nothing ever is."""
        return self._process_jobs()  # type: ignore[no-any-return]


class DrillScheduler:
    """Runs `schedule` until told to stop. `seed` draws jitter and targets."""

    def __init__(self, schedule: Schedule, run: RunDrill, clock: Clock, seed: int) -> None:
        self._schedule = schedule
        self._run = run
        self._clock = clock
        self._seed = seed
        self._turn = 0
        self._stopped_by: BaseException | None = None
        self._log = structlog.get_logger("fleetwarden.drill")
        self._scheduler = self._made()

    def upcoming(self) -> tuple[tuple[str, datetime], ...]:
        """The next time of each slot, the soonest first."""
        jobs = [
            (job.args[0].drill, job.next_run_time) for job in self._scheduler.get_jobs() if job.next_run_time is not None
        ]
        return tuple(sorted(jobs, key=lambda job: job[1]))

    def run_until(self, stop: Event) -> None:
        """Run what is due until `stop` is set. KeyboardInterrupt and SystemExit of a drill go on to the caller."""
        while not stop.is_set():
            wait = self.step()
            if wait is None:
                self._log.warning("drill.nothing_due", says="no drill of this schedule will ever be due again")
                return
            stop.wait(min(wait, LONGEST_SLEEP_S))

    def step(self) -> float | None:
        """Run what is due now; seconds until the next, None when nothing ever is."""
        wait = self._scheduler.step()
        if self._stopped_by is not None:
            raise self._stopped_by
        return wait

    def _made(self) -> _Stepped:
        zone = self._schedule.zone
        scheduler = _Stepped(
            timezone=zone,
            jobstores={"default": MemoryJobStore()},
            executors={"default": DebugExecutor()},
            # Its defaults would drop what comes late without a word.
            job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
        )
        for number, slot in enumerate(self._schedule.drills):
            jitter = self._schedule.jitter_of(slot)
            trigger = CalmTrigger(slot.cron, zone, jitter, self._schedule.freezes, self._seed + number)
            scheduler.add_job(self._due, trigger, args=[slot], id=f"{number + 1}-{slot.drill}", name=slot.drill)
        mask = 0
        for code in _HEARD:
            mask |= code
        scheduler.add_listener(self._hear, mask)
        scheduler.start()
        return scheduler

    def _due(self, slot: Slot) -> None:
        """Run one drill now. The library would swallow what is to end the program; it is kept for `step`."""
        freeze = frozen(self._schedule.freezes, datetime.fromtimestamp(self._clock.now(), self._schedule.zone))
        if freeze is not None:  # it came late: the machine slept, or another drill took long
            self._log.info("drill.skipped", drill=slot.drill, says=f"a freeze: {freeze.because or 'no reason is given'}")
            return
        if self._stopped_by is not None:
            return
        self._turn += 1
        try:
            card = self._run(slot.drill, self._seed + self._turn)
        except (DrillBusyError, DrillFleetError, RecordUnreadableError) as error:
            self._log.warning("drill.skipped", drill=slot.drill, says=str(error))
        except (KeyboardInterrupt, SystemExit) as error:
            self._stopped_by = error
        else:
            self._log.info("drill.ended", drill=slot.drill, run=card.run, verdict=str(card.verdict), because=card.reasons)

    def _hear(self, event: Any) -> None:
        error = getattr(event, "exception", None)
        write = self._log.warning if error is not None or event.code != events.EVENT_JOB_EXECUTED else self._log.info
        write(_HEARD[event.code], job=event.job_id, error=None if error is None else f"{type(error).__name__}: {error}")
