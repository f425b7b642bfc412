"""Episodes: one trial run to its end, with the warden's own loop over a fleet in virtual time.

Detectors, diagnosis, tracking, decisions, runbooks and the executor are those of a live warden; only telemetry, verbs and
the clock are the virtual fleet's. It looks every `INTERVAL_S`, as often as a Prometheus that scrapes every five seconds has
something new, and may do all that its runbooks allow.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from actuators.action import VerbSpec
from actuators.binding import verbs_of
from actuators.virtual import VirtualActuator
from agent.act import Executor
from agent.checkup.cadence import for_cadence
from agent.decision.policy import Policy
from agent.incident import IncidentEvent
from agent.journal.memory import MemoryJournal
from agent.journal.port import Journal, Note
from agent.loop import Loop, Minds
from agent.replay.hands import Bystander
from agent.scoreboard.hands import PromptHands
from agent.scoreboard.judge import Made, judge
from agent.scoreboard.making import Making
from agent.scoreboard.stage import Stage, warmed
from agent.scoreboard.trial import SECONDS_PER_YEAR, TrialResult, TrialSpec
from agent.scoreboard.truth import load_truth
from agent.settings import WardenSettings
from agent.wiring import make_minds
from detectors.catalogue import detect_all
from detectors.parameters import load_parameters
from runbooks.runbook import Autonomy

INTERVAL_S = 5.0
FRESH_READINGS = 3.0  # readings within which a sample still says something about now
SILENCE_S = 60.0
"""A fault that was found, and about which nothing is open any more for so long, is left to people: the trial ends."""


@cache
def verbs() -> Mapping[str, VerbSpec]:
    """What the warden can do in a fleet in virtual time."""
    return verbs_of(VirtualActuator)


@cache
def minds() -> Minds:
    """The product's own judgements, allowed to do everything, for a look every `INTERVAL_S`."""
    settings = WardenSettings(policy=Policy(autonomy=Autonomy.AUTO))
    made = make_minds(settings, None, Bystander(verbs()))
    parameters = for_cadence(load_parameters(settings.detectors), INTERVAL_S)
    policy = made.policy.model_copy(update={"freshness": max(made.policy.freshness, FRESH_READINGS * INTERVAL_S)})
    return replace(made, detect=lambda window: detect_all(window, parameters), policy=policy)


def warden_over(stage: Stage, journal: Journal, actuator: VirtualActuator) -> Loop:
    """The product's own loop over a fleet in virtual time, with hands that are done at once."""
    clock = stage.fleet.clock
    return Loop(stage, minds(), journal, actuator, PromptHands(Executor(journal, actuator, clock)), clock)


@dataclass(eq=False)
class Episode:
    """One trial under way."""

    spec: TrialSpec
    stage: Stage
    journal: MemoryJournal = field(default_factory=MemoryJournal)
    steps: int = 0
    failures: dict[str, None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        fleet = self.stage.fleet
        self.making = Making(self.spec, fleet)
        self.loop = warden_over(self.stage, self.journal, VirtualActuator(fleet))
        self.began = fleet.now

    def run(self) -> None:
        """Look, again and again, until nothing more is to come."""
        fleet = self.stage.fleet
        while not self._over(fleet.now):
            self.making.until(fleet.now + INTERVAL_S)
            report = self.loop.step(fleet.topology, fleet.now)
            self.failures.update(dict.fromkeys(f"{failed.detector}: {failed.error}" for failed in report.detection.failed))
            self.steps += 1

    def events(self) -> Mapping[str, Sequence[IncidentEvent]]:
        """The record, by incident."""
        found: dict[str, list[IncidentEvent]] = {}
        for entry in self.journal.events():
            if not isinstance(entry.event, Note):
                found.setdefault(entry.event.incident, []).append(entry.event)
        return found

    def _over(self, now: float) -> bool:
        """Whether nothing more is to come: time is up, or all was repaired, or what was found is left to people."""
        if now - self.began >= self.spec.lasts + self.spec.after:
            return True
        if not self.spec.kind.faulty or self.journal.incidents(open_only=True) or not self.making.all_begun():
            return False
        ended = [incident.ended_at for incident in self.journal.incidents() if incident.ended_at is not None]
        quiet = now - max(ended, default=now)
        if self.making.all_cured():
            return bool(ended) and quiet >= INTERVAL_S
        return len(ended) >= len(self.spec.faults) and quiet >= SILENCE_S


def run_trial(spec: TrialSpec) -> TrialResult:
    """Run one trial and judge it. What breaks on the way is said in the result: one trial must not end a thousand others."""
    began = time.process_time()
    try:
        return lived(spec, began)[1]
    except Exception as error:  # noqa: BLE001 - see above
        names = tuple(fault.name for fault in spec.faults)
        says = f"{type(error).__name__}: {error}"
        return TrialResult(spec.number, spec.kind, names, (), (), (), (), 0.0, 0.0, 0.0, 0.0, 0.0, 0, says)


def begun(spec: TrialSpec) -> Episode:
    """The trial on a copy of its warm fleet, not yet run."""
    return Episode(spec, warmed(spec.fleet, INTERVAL_S).copied(spec.seed))


def lived(spec: TrialSpec, began: float = 0.0) -> tuple[Episode, TrialResult]:
    """One trial run to its end, with all that was recorded, and judged. `began`: CPU seconds that were spent before it."""
    episode = begun(spec)
    fleet = episode.stage.fleet
    before = users(episode.stage)
    episode.run()
    truth = load_truth()
    made: tuple[Made, ...] = episode.making.made(truth)
    judged = judge(episode.events(), made, verbs(), truth.isolates)
    ok, failed = (now - then for now, then in zip(users(episode.stage), before, strict=True))
    seconds = fleet.now - episode.began
    result = TrialResult(
        number=spec.number,
        kind=spec.kind,
        names=tuple(fault.name for fault in spec.faults),
        faults=judged.faults,
        false_incidents=judged.false_incidents,
        false_actions=judged.false_actions,
        destructive_actions=judged.destructive_actions,
        ok=ok,
        failed=failed,
        virtual_seconds=seconds,
        gpu_years=seconds * len(fleet.plan.gpus) / SECONDS_PER_YEAR,
        cpu_seconds=time.process_time() - began,
        steps=episode.steps,
        error=f"a detector failed: {next(iter(episode.failures))}" if episode.failures else "",
    )
    return episode, result


def users(stage: Stage) -> tuple[float, float]:
    """How many requests were answered and how many were not, since the fleet began."""
    return stage.fleet.door.answered, stage.fleet.door.failed
