"""Passive ejection: an engine whose answers fail is left out for a while that grows each time it fails again.

A state machine over values that takes `now`. In service -> (failures in a row) -> ejected until a time -> on
trial, where one more failure ejects it again and one answer clears it.
"""

from dataclasses import dataclass, replace
from enum import StrEnum


class Failure(StrEnum):
    """How a try failed, as far as the engine is to blame."""

    CONNECTION = "connection"
    TIMEOUT = "timeout"
    SERVER_ERROR = "server_error"


@dataclass(frozen=True, slots=True)
class EjectionPolicy:
    """When an engine is left out and for how long (seconds).

    A refused connection fails in a millisecond, so a dead engine always looks idle and draws traffic: two in a row suffice.
    Errors and timeouts come from busy engines too, so five. An ejection that began `forget_s` after the last one ended
    starts small again. `most_s` bounds how long an engine that came back waits for its trial, which costs one retried try.
    """

    connection_failures: int = 2
    failures: int = 5
    base_s: float = 5.0
    factor: float = 2.0
    most_s: float = 30.0
    forget_s: float = 300.0


@dataclass(frozen=True, slots=True)
class Health:
    """What the door has seen of one engine. `until`: ejected until then. `times`: ejections on end, not yet forgotten."""

    in_a_row: int = 0
    connections_in_a_row: int = 0
    until: float = float("-inf")
    times: int = 0
    on_trial: bool = False

    def ejected(self, now: float) -> bool:
        """Whether the engine is left out at `now`."""
        return now < self.until


def after_answer(health: Health) -> Health:
    """An answer came (any status below 500): failures in a row are over, and so is a trial."""
    if health.in_a_row == 0 and not health.on_trial:
        return health
    return replace(health, in_a_row=0, connections_in_a_row=0, on_trial=False)


def after_failure(health: Health, failure: Failure, now: float, policy: EjectionPolicy, *, last: bool) -> Health:
    """A try failed. `last`: no other engine of the model is in service, so this one is not ejected (fail open)."""
    if health.ejected(now):
        return health  # a try sent before the ejection came back: nothing new
    in_a_row = health.in_a_row + 1
    connections = health.connections_in_a_row + 1 if failure is Failure.CONNECTION else 0
    counted = replace(health, in_a_row=in_a_row, connections_in_a_row=connections)
    over = connections >= policy.connection_failures or in_a_row >= policy.failures or health.on_trial
    if last or not over:
        return counted
    times = 1 if now - health.until > policy.forget_s else health.times + 1
    seconds = min(policy.most_s, policy.base_s * policy.factor ** (times - 1))
    return Health(until=now + seconds, times=times, on_trial=True)
