"""Hands that do nothing: the part of agent.hands in a replay, where every action is only noted as one that would be done.

The recorded world goes on unrepaired, so it says nothing about whether a repair would have helped, and a repair is neither
judged nor repeated here. It is taken to be under way for as long as one usually takes, so that budgets, the breaker and the
limit on repairs at once hold what they would hold; then it is over, and its incident stands for its cause, blamed no more,
until the recorded symptoms stay away.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from actuators.action import Action, Outcome, OutcomeStatus, VerbSpec
from agent.decision.decision import Decision
from agent.hands import Written
from agent.incident import AttemptStarted, Decided, Ended, Ending, Incident, IncidentEvent, IncidentState
from agent.journal.port import Journal
from serving.clock import Clock

NOTHING = Outcome(OutcomeStatus.FAILED, "a replay touches nothing and asks nothing", permanent=True)


@dataclass(frozen=True, slots=True)
class Pretence:
    """How long, in seconds, what is not done is taken to last.

    `repair`: draining, a restart and its verification; engines need one to some minutes for that. `probe`: a canary.
    """

    repair: float = 120.0
    probe: float = 15.0


class Bystander:
    """An actuator that knows every verb and does none."""

    def __init__(self, verbs: Mapping[str, VerbSpec]) -> None:
        self._verbs = verbs

    @property
    def verbs(self) -> Mapping[str, VerbSpec]:
        return self._verbs

    def rehearse(self, action: Action) -> Outcome:  # noqa: ARG002 - the port's signature
        return NOTHING

    def apply(self, action: Action, key: str) -> Outcome:  # noqa: ARG002 - the port's signature
        return NOTHING

    def look_up(self, action: Action, key: str) -> Outcome:  # noqa: ARG002 - the port's signature
        return NOTHING


class IdleHands:
    """Notes each decision to act in the journal and lets its time pass. `clock` stands at the recorded moment."""

    def __init__(self, journal: Journal, lasts: Mapping[str, float], clock: Clock, pretence: Pretence = Pretence()) -> None:
        self._journal = journal
        self._lasts = lasts
        self._clock = clock
        self._pretence = pretence
        self._until: dict[str, float] = {}

    def perform(self, incident: Incident, decision: Decision, *, attempt: int, runbook: str, now: float) -> Written:
        """Write that the action would be done and that a run of its runbook began; touch nothing."""
        self._until[incident.id] = now + self._lasts.get(runbook, self._pretence.repair)
        return self._written(Decided(incident.id, now, decision), AttemptStarted(incident.id, now, attempt, runbook))

    def finished(self) -> Written:
        """End the incidents whose repair would be over by now."""
        now = self._clock.now()
        over = [incident for incident, until in self._until.items() if until <= now]
        for incident in over:
            del self._until[incident]
        says = "it would have been acted upon; what became of it cannot be seen in a recording"
        return self._written(*(Ended(incident, now, IncidentState.SUPPRESSED, Ending.MERGED, says) for incident in over))

    def busy(self, incident: str) -> bool:
        return incident in self._until

    def recover(self, now: float) -> Written:  # noqa: ARG002 - the port's signature
        return ()

    def _written(self, *events: IncidentEvent) -> Written:
        for event in events:
            self._journal.append(event)
        return events
