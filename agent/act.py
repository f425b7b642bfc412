"""The executor: intent on disk, then the world, then the outcome on disk.

A warden may die at any point in between. What it intended is looked up when it comes back, never repeated blindly: done is
written as done; what never touched the world is withdrawn, so that its step is due again under a new key; what cannot be
told yet is looked up again later.

Only the leader acts. Whether it still leads, in the same term and for as long as one touch of the world takes, is asked
right before each touch; a warden that slept in between finds that out before it does anything.

Does not belong here: deciding what to do, and when an unknown outcome is a person's business (agent.decision); how a thing
is done (actuators).
"""

from dataclasses import dataclass
from threading import Lock

from actuators.action import Actuator, Outcome, OutcomeStatus
from agent.decision.decision import Decision, Reason, Verdict
from agent.decision.steps import step_key
from agent.election.always import AlwaysLeader
from agent.election.mandate import Elector, still_leads, term_for
from agent.incident import (
    AttemptStarted,
    Decided,
    Finished,
    Incident,
    IncidentEvent,
    Intended,
    Operation,
    Withdrawn,
)
from agent.journal.port import PAUSE, Journal, KeyTakenError, OutOfOrderError, Switch
from serving.clock import Clock


@dataclass(frozen=True, slots=True)
class ExecutorParameters:
    """How long to wait, and how often.

    `settle`: seconds after an intent before "it never happened" is believed: what a dead warden sent may still be on its
    way. `withdrawals`: how often one step of an attempt may be withdrawn before it counts as failed. `touch`: seconds that
    one touch of the world may take, which a mandate must cover.
    """

    settle: float = 2.0
    withdrawals: int = 3
    touch: float = 2.0


def _times_withdrawn(incident: Incident, attempt: int, step: str) -> int:
    return sum(1 for operation in incident.withdrawn if (operation.attempt, operation.step) == (attempt, step))


class Executor:
    """Does what was decided, and finds out what became of what a warden before it began.

    `actuators` is one Actuator for all verbs (actuators.registry.ActuatorRegistry). Without an elector nobody else acts.
    """

    def __init__(
        self,
        journal: Journal,
        actuators: Actuator,
        clock: Clock,
        parameters: ExecutorParameters = ExecutorParameters(),
        elector: Elector | None = None,
    ) -> None:
        self._elector = elector or AlwaysLeader()
        self._journal = journal
        self._actuators = actuators
        self._clock = clock
        self._parameters = parameters
        self._lock = Lock()
        self._in_flight: set[str] = set()

    def perform(
        self, incident: Incident, decision: Decision, *, attempt: int, runbook: str, now: float
    ) -> tuple[IncidentEvent, ...]:
        """Do the decision's action as its step of that attempt of the runbook; returns the events it wrote.

        Writes the decision when it is a new one, AttemptStarted when the attempt is, Intended, and, once the world was
        touched, Finished. Attempt 0 is a harmless probe before any attempt. While the big red button is on nothing is
        touched: what was intended is withdrawn. Touches nothing, and returns what it wrote so far, when the journal tells
        that the incident went on in the meantime, or when this warden does not lead (any more). Raises ValueError when the
        decision is not to act, JournalError when the journal cannot be used (DeposedError: another warden writes); before
        the intent is written that means that nothing was touched.
        """
        if decision.verdict is not Verdict.ACT or decision.action is None or decision.step is None:
            raise ValueError(f"only a decision to act, with its step and action, can be performed, not {decision}")
        term = self._term()
        fresh = self._journal.incident(incident.id)
        if fresh is None or term is None:
            return ()
        key = step_key(fresh, attempt, decision.step)
        if not self._claim(key):
            return ()
        written: list[IncidentEvent] = []
        try:
            intent = Intended(fresh.id, now, key, decision.step, attempt, decision.action)
            if self._reserve(fresh, decision, intent, runbook, written):
                self._carry_out(intent, term, written)
        except (KeyTakenError, OutOfOrderError):
            return tuple(written)
        finally:
            self._release(key)
        return tuple(written)

    def recover(self, now: float) -> tuple[IncidentEvent, ...]:
        """Look up every operation whose outcome is not known; returns the events it wrote.

        Call it when the warden starts, before anything is decided, and then once a step: it costs nothing when nothing
        is pending. Operations that another thread is performing are left alone.
        """
        written: list[IncidentEvent] = []
        for incident in self._journal.standing():
            operation = incident.pending
            if operation is None or self._term() is None or not self._claim(operation.key):
                continue
            try:
                self._look_up(incident, operation, now, written)
            except OutOfOrderError:
                continue  # somebody else found out first
            finally:
                self._release(operation.key)
        return tuple(written)

    def _reserve(
        self, fresh: Incident, decision: Decision, intent: Intended, runbook: str, written: list[IncidentEvent]
    ) -> bool:
        pause = self._journal.switch(PAUSE)
        told = paused(decision, pause) if pause.on else decision
        if told != fresh.decision:
            self._write(Decided(fresh.id, intent.at, told), written)
        if pause.on:
            return False
        if intent.attempt > fresh.attempt:
            self._write(AttemptStarted(fresh.id, intent.at, intent.attempt, runbook), written)
        self._write(intent, written)
        return True

    def _carry_out(self, intent: Intended, term: int, written: list[IncidentEvent]) -> None:
        pause = self._journal.switch(PAUSE)
        if pause.on:
            self._write(Withdrawn(intent.incident, self._now(intent.at), intent.key, _paused_by(pause)), written)
            return
        if not still_leads(self._elector, term, self._clock.monotonic(), self._parameters.touch):
            over = f"the leadership of {self._elector.identity} in term {term} ended before anything was touched"
            self._write(Withdrawn(intent.incident, self._now(intent.at), intent.key, over), written)
            return
        outcome = self._touch(intent)
        self._write(Finished(intent.incident, self._now(intent.at), intent.key, outcome), written)

    def _touch(self, intent: Intended) -> Outcome:
        try:
            return self._actuators.apply(intent.action, intent.key)
        except Exception as error:  # noqa: BLE001 - an actuator promises not to raise; one that does may have touched the world
            return Outcome(OutcomeStatus.UNKNOWN, f"{intent.action.verb} raised {type(error).__name__}: {error}")

    def _look_up(self, incident: Incident, operation: Operation, now: float, written: list[IncidentEvent]) -> None:
        found = self._found(operation)
        if found.status is OutcomeStatus.DONE:
            self._write(Finished(incident.id, now, operation.key, found), written)
        elif found.status is OutcomeStatus.FAILED and now - operation.intended_at >= self._parameters.settle:
            self._write(self._never_happened(incident, operation, found, now), written)
        elif operation.outcome is None and found.status is OutcomeStatus.UNKNOWN:
            self._write(Finished(incident.id, now, operation.key, found), written)

    def _found(self, operation: Operation) -> Outcome:
        try:
            return self._actuators.look_up(operation.action, operation.key)
        except Exception as error:  # noqa: BLE001 - an actuator promises not to raise; one that does told nothing
            return Outcome(OutcomeStatus.UNKNOWN, f"looking it up raised {type(error).__name__}: {error}")

    def _never_happened(self, incident: Incident, operation: Operation, found: Outcome, now: float) -> IncidentEvent:
        before = _times_withdrawn(incident, operation.attempt, operation.step)
        if found.permanent or before >= self._parameters.withdrawals:
            return Finished(incident.id, now, operation.key, found)
        return Withdrawn(incident.id, now, operation.key, f"looked up: {found.detail}")

    def _write(self, event: IncidentEvent, written: list[IncidentEvent]) -> None:
        self._journal.append(event)
        written.append(event)

    def _term(self) -> int | None:
        """The term in which something may be begun now."""
        return term_for(self._elector, self._clock.monotonic(), self._parameters.touch)

    def _now(self, at_least: float) -> float:
        """The time after an action; a clock set back meanwhile must not end it before it began."""
        return max(at_least, self._clock.now())

    def _claim(self, key: str) -> bool:
        with self._lock:
            if key in self._in_flight:
                return False
            self._in_flight.add(key)
            return True

    def _release(self, key: str) -> None:
        with self._lock:
            self._in_flight.discard(key)


def paused(decision: Decision, pause: Switch) -> Decision:
    """The decision that the big red button makes of a decision to act."""
    return Decision(Verdict.WAIT, Reason.PAUSED, _paused_by(pause), decision.step, decision.action)


def _paused_by(pause: Switch) -> str:
    because = f": {pause.why}" if pause.why else ""
    return f"paused by {pause.by}{because}"
