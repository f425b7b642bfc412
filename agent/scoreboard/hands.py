"""Hands in virtual time: an action is over when it returns, because virtual things take orders at once.

What an order needs to take effect (a start-up, a boot) is the fleet's own time, and the runbook waits for it as always.
"""

from agent.act import Executor
from agent.decision.decision import Decision
from agent.hands import Written
from agent.incident import Incident


class PromptHands:
    """Performs decisions through an Executor, at once."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    def perform(self, incident: Incident, decision: Decision, *, attempt: int, runbook: str, now: float) -> Written:
        return self._executor.perform(incident, decision, attempt=attempt, runbook=runbook, now=now)

    def finished(self) -> Written:
        return ()

    def busy(self, incident: str) -> bool:  # noqa: ARG002 - the port's signature
        return False

    def recover(self, now: float) -> Written:
        return self._executor.recover(now)
