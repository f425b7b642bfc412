"""Incidents to report on: whole lives as the loop writes them, at a fixed night."""

from dataclasses import dataclass, field

from actuators.action import Action, Outcome, OutcomeStatus
from agent.decision.decision import Decision, Reason, Verdict
from agent.diagnosis.diagnosis import Diagnosis, Rival
from agent.incident import (
    ApprovalAnswered,
    ApprovalAsked,
    AttemptStarted,
    Decided,
    Ended,
    Ending,
    Finished,
    IncidentEvent,
    IncidentState,
    Intended,
    Opened,
    StepPassed,
    VerificationStarted,
    fold,
)
from agent.report.story import Story, story
from detectors.finding import Evidence, Finding, Symptom
from serving.fleet.entity import Entity, EntityKind

NIGHT = 1_795_921_924.0  # 2026-11-29 03:12:04 UTC
SIM_2 = Entity.engine("sim-2")

HUNG = Diagnosis(
    cause="engine.hung",
    entity=SIM_2,
    score=0.91,
    since=NIGHT,
    explains=(
        Finding(
            Symptom.STEPS_FROZEN,
            SIM_2,
            NIGHT,
            0.9,
            (
                Evidence("engine.steps", "no engine step for 12 s with 4 requests in flight", 0.0, 21.0, "steps/s"),
                Evidence("scrape.up", "its /metrics answered all the while", 1.0),
            ),
        ),
        Finding(
            Symptom.REQUESTS_FAILING,
            Entity(EntityKind.GATEWAY, "door"),
            NIGHT + 8,
            0.4,
            (Evidence("door.finished.timeout", "3 requests to it ran into their time limit", 3.0),),
        ),
    ),
    against=("open files did not climb",),
    missing=("trace spans",),
    rivals=(
        Rival("engine.frozen_gauges", SIM_2, 0.42, "requests were in flight at the door"),
        Rival("overload", Entity(EntityKind.MODEL, "sim"), 0.11, "its three peers answered <200 ms> & kept their pace"),
    ),
)

KV = Diagnosis(
    cause="engine.kv_pressure",
    entity=SIM_2,
    score=0.74,
    since=NIGHT - 40,
    explains=(
        Finding(
            Symptom.PREEMPTING,
            SIM_2,
            NIGHT - 40,
            0.6,
            (Evidence("engine.preemptions", "27 preemptions in the last minute, its peers had none", 27.0, 0.0),),
        ),
        Finding(
            Symptom.KV_FULL, SIM_2, NIGHT - 40, 0.5, (Evidence("engine.kv_usage", "97 % of KV blocks in use", 0.97, 0.9),)
        ),
    ),
    rivals=(Rival("overload", Entity(EntityKind.MODEL, "sim"), 0.5, "arrivals are as before"),),
)


def done(detail: str = "") -> Outcome:
    return Outcome(OutcomeStatus.DONE, detail)


def failed(detail: str) -> Outcome:
    return Outcome(OutcomeStatus.FAILED, detail)


@dataclass
class Life:
    """Writes an incident's events with their times counted from the night's start."""

    id: str
    diagnosis: Diagnosis
    opened: float = 12.0
    events: list[IncidentEvent] = field(default_factory=list)
    attempt: int = 0

    def __post_init__(self) -> None:
        self.events.append(Opened(self.id, NIGHT + self.opened, self.diagnosis))

    def decide(self, at: float, verdict: Verdict, reason: Reason, says: str, action: Action | None = None) -> "Life":
        self.events.append(Decided(self.id, NIGHT + at, Decision(verdict, reason, says, action=action)))
        return self

    def ask(self, at: float, expires: float, says: str) -> "Life":
        self.events.append(ApprovalAsked(self.id, NIGHT + at, NIGHT + expires, says))
        return self

    def answer(self, at: float, *, approved: bool, by: str = "maria") -> "Life":
        self.events.append(ApprovalAnswered(self.id, NIGHT + at, approved, by))
        return self

    def begin(self, at: float, runbook: str) -> "Life":
        self.attempt += 1
        self.events.append(AttemptStarted(self.id, NIGHT + at, self.attempt, runbook))
        return self

    def act(self, at: float, seconds: float, verb: str, outcome: Outcome, target: Entity = SIM_2) -> "Life":
        step = f"{verb}-{self.attempt}".replace(".", "-")
        key = f"{self.id}/{self.attempt}/{step}"
        self.events.append(Intended(self.id, NIGHT + at, key, step, self.attempt, Action(verb, target)))
        self.events.append(Finished(self.id, NIGHT + at + seconds, key, outcome))
        if self.attempt:
            self.events.append(StepPassed(self.id, NIGHT + at + seconds, step, "as expected"))
        return self

    def verify(self, at: float) -> "Life":
        self.events.append(VerificationStarted(self.id, NIGHT + at))
        return self

    def end(self, at: float, state: IncidentState, ending: Ending, says: str, cost: str = "") -> "Life":
        self.events.append(Ended(self.id, NIGHT + at, state, ending, says, cost))
        return self

    def story(self, advice: str = "") -> Story:
        return story(fold(self.events), self.events, advice)


def repaired_hang() -> Life:
    life = Life("inc-7", HUNG).act(12.2, 5, "engine.canary", failed("no answer within 5 s")).begin(17.4, "engine-hung")
    life.act(17.5, 0.2, "door.drain", done("in rotation -> drained, 4 requests in flight"))
    life.act(20, 14, "process.restart", done("process 4711 -> 4802, answers after 14 s"))
    life.act(35, 0.1, "door.undrain", done("drained -> in rotation")).verify(35.3)
    says = "for 20 s first tokens within 0.21 s (peers 0.19 s), 38 of 38 requests answered"
    cost = "7 requests failed and 3 waited longer than 10 s"
    return life.end(56, IncidentState.RESOLVED, Ending.REPAIRED, says, cost)


def escalated_hang() -> Life:
    life = Life("inc-8", HUNG).begin(14, "engine-hung").act(14.1, 0.2, "door.drain", done("in rotation -> drained"))
    life.act(
        16, 60, "process.restart", failed("the new process ended at once with exit status 1: CUDA error <unknown> & more")
    )
    says = "attempt 1 of 1 failed: process.restart on engine sim-2"
    return life.end(77, IncidentState.ESCALATED, Ending.GAVE_UP, says, "11 requests failed before the engine was drained")


def approval_request() -> Life:
    drain = Action("door.drain", SIM_2)
    life = Life("inc-9", KV, opened=5)
    life.ask(6, 906, "engine-kv-pressure may run only with approval in this cell")
    return life.decide(
        6, Verdict.ASK, Reason.NEEDS_APPROVAL, "engine-kv-pressure may run only with approval in this cell", drain
    )


def recommendation() -> Life:
    says = "autonomy in this cell is recommend; engine-hung would begin with door.drain on engine sim-2"
    return Life("inc-10", HUNG).decide(13, Verdict.REFUSE, Reason.AUTONOMY_RECOMMEND, says, Action("door.drain", SIM_2))


ADVICE = "Read the engine's log. If the same node loses engines again, take the node out; else start the engine by hand"
LIVES = {
    "repaired-hang": (repaired_hang, ""),
    "escalation": (escalated_hang, ADVICE),
    "approval-request": (approval_request, ""),
    "recommendation": (recommendation, ""),
}
