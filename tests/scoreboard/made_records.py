"""Records of a warden made by hand: diagnoses, actions and ends, in the order in which a loop writes them."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from actuators.action import Action, Outcome, OutcomeStatus
from agent.diagnosis.diagnosis import Diagnosis
from agent.incident import (
    AttemptStarted,
    Ended,
    Ending,
    Finished,
    IncidentEvent,
    IncidentState,
    Intended,
    Opened,
    Rediagnosed,
    StepPassed,
    VerificationStarted,
)
from serving.fleet.entity import Entity

BEGAN = 1_800_000_000.0


@dataclass
class Story:
    """One incident on `entity`; times are seconds since BEGAN."""

    entity: str
    opened: float
    cause: str
    enough: bool = True
    events: list[IncidentEvent] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.id = f"i-{self.entity}-{self.opened}-{self.cause}"
        self.events.append(Opened(self.id, BEGAN + self.opened, self._diagnosis(self.cause, enough=self.enough)))

    def then(self, at: float, cause: str, *, enough: bool = True) -> "Story":
        """It is taken for something else."""
        self.events.append(Rediagnosed(self.id, BEGAN + at, self._diagnosis(cause, enough=enough)))
        return self

    def acts(self, at: float, *verbs: str, on: str = "", took: float = 1.0) -> "Story":
        """One attempt with these steps after each other, `took` seconds each, all done."""
        self.events.append(AttemptStarted(self.id, BEGAN + at, 1, "book"))
        for number, verb in enumerate(verbs):
            begins = BEGAN + at + number * took
            key, step = f"{self.id}-{number}", f"step-{number}"
            action = Action(verb, Entity.parse(on or self.entity))
            self.events.append(Intended(self.id, begins, key, step, 1, action))
            self.events.append(Finished(self.id, begins + took, key, Outcome(OutcomeStatus.DONE, "done")))
            self.events.append(StepPassed(self.id, begins + took, step, "passed"))
        return self

    def resolved(self, at: float) -> "Story":
        """Verified, and over."""
        self.events.append(VerificationStarted(self.id, BEGAN + at - 1.0))
        self.events.append(Ended(self.id, BEGAN + at, IncidentState.RESOLVED, Ending.REPAIRED, "well"))
        return self

    def escalated(self, at: float) -> "Story":
        """Left to people."""
        self.events.append(Ended(self.id, BEGAN + at, IncidentState.ESCALATED, Ending.GAVE_UP, "a person must look"))
        return self

    def _diagnosis(self, cause: str, *, enough: bool) -> Diagnosis:
        return Diagnosis(cause, Entity.parse(self.entity), 0.9, BEGAN + self.opened, (), enough=enough)


def record(*stories: Story) -> dict[str, Sequence[IncidentEvent]]:
    """The events of a journal, by incident."""
    return {story.id: story.events for story in stories}
