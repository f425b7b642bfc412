"""The front door in a drain: engines are taken out of rotation before their pods go, and put back once they are gone.

Which engines a drain took out is the door's own memory, by operation keys that are the same in every pass of one attempt; so
nothing is forgotten when the warden, or the node with all that is written on it, is gone. Engines bear
the door's names here.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from actuators.action import Action, OutcomeStatus
from actuators.door import DoorActuator, Seat
from serving.fleet.entity import Entity
from serving.gateway.orders import WARDEN


@dataclass(frozen=True, slots=True)
class Rotation:
    """The engines of one drain at the front door. `drain`: the name of the drain, the same in all its passes."""

    door: DoorActuator
    drain: str

    def take_out(self, engines: Iterable[str]) -> str | None:
        """Send these engines nothing new. Why that cannot be done now; None when it is done.

        An engine that the door does not know gets nothing from it, and one that a person drained stays theirs.
        """
        seats = self.door.seats()
        if seats is None:
            return "the front door cannot be asked"
        for engine in map(self.door.name_of, engines):
            if engine in seats:
                done = self.door.apply(Action("door.drain", Entity.engine(engine)), self._key(engine))
                if done.status is not OutcomeStatus.DONE and not done.permanent:
                    return done.detail
        return None

    def in_flight(self, engines: Iterable[str]) -> int:
        """Requests that these engines have not finished; 0 when the door cannot be asked."""
        seats: Mapping[str, Seat] = self.door.seats() or {}
        return sum(seats[name].in_flight for name in map(self.door.name_of, engines) if name in seats)

    def put_back(self) -> str | None:
        """Give back every engine that this drain took out, once. Why that cannot be done now; None when it is done."""
        seats = self.door.seats()
        if seats is None:
            return "the front door cannot be asked"
        for engine, seat in seats.items():
            if seat.drained_by == WARDEN and self._taken_out(engine):
                done = self.door.apply(Action("door.undrain", Entity.engine(engine)), f"{self._key(engine)}/back")
                if done.status is not OutcomeStatus.DONE and not done.permanent:
                    return done.detail
        return None

    def _taken_out(self, engine: str) -> bool:
        """Whether it was this drain that took the engine out, and it has not been given back since."""
        taken = self.door.look_up(Action("door.drain", Entity.engine(engine)), self._key(engine))
        back = self.door.look_up(Action("door.undrain", Entity.engine(engine)), f"{self._key(engine)}/back")
        ours = taken.status is OutcomeStatus.DONE and taken.before.get("drained") is False
        return ours and back.status is OutcomeStatus.FAILED

    def _key(self, engine: str) -> str:
        return f"{self.drain}/{engine}"
