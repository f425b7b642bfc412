"""What every actuator of a cluster holds: the API, the map, the clock, and the permission to write."""

from collections.abc import Callable
from dataclasses import dataclass

from actuators.action import Outcome
from actuators.kubernetes.outcomes import failed
from serving.clock import Clock
from serving.kubernetes.client import ClusterClient
from serving.kubernetes.cluster_map import ClusterMap

Permit = Callable[[float], int | None]
"""Whether this warden may write for so many seconds from now: the term in which it leads, None when it must not."""


def sole_writer(_seconds: float) -> int | None:
    """The permit of a warden that has no rivals."""
    return 0


@dataclass(frozen=True, slots=True)
class Access:
    """`map` gives the newest map. `namespaces` are those that the fleet lies in; empty: any.

    `deadline_s` bounds each call. `patience_s` is how long an action may wait in all for an API server that asks for
    patience: an action is short, and what needs longer is tried again by its runbook.
    """

    client: ClusterClient
    map: Callable[[], ClusterMap]
    clock: Clock
    namespaces: tuple[str, ...] = ()
    permit: Permit = sole_writer
    deadline_s: float = 5.0
    patience_s: float = 5.0

    def term(self) -> int | Outcome:
        """The term to write in, or the failure that says that nothing may be written. Ask before every write."""
        term = self.permit(self.deadline_s)
        return failed("another warden leads, or may lead before this is done; nothing was sent") if term is None else term

    def wait(self, asked: float | None, waited: float) -> float | None:
        """Wait as a server asks, if what is left of the patience allows it: seconds waited in all, or None."""
        seconds = 1.0 if asked is None else asked
        if waited + seconds > self.patience_s:
            return None
        self.clock.sleep(seconds)
        return waited + seconds
