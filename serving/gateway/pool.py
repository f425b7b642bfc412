"""The pool: the door's engines with what is in flight on each, what was ordered of it, and how its answers went."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random

from serving.fleet.topology import EngineFacts, Topology
from serving.gateway.balance import Load, choose
from serving.gateway.ejection import EjectionPolicy, Failure, Health, after_answer, after_failure
from serving.gateway.metrics import EngineTally
from serving.gateway.orders import Orders, Standing

CLIENT_CLOSED = "client_closed"


@dataclass(slots=True)
class Seat:
    """One engine's place in the pool. Changes as requests come and go."""

    facts: EngineFacts
    tally: EngineTally
    health: Health = field(default_factory=Health)


@dataclass(slots=True)
class Try:
    """One request sent to one engine. `result` is what it counts as when it ends; until told otherwise the client left.

    `first_byte_at`: when a streamed answer began, in the event loop's seconds.
    """

    seat: Seat
    result: str = CLIENT_CLOSED
    first_byte_at: float | None = None


class Pool:
    """The engines by model. `orders` is replaced whole when an order is carried out."""

    def __init__(self, topology: Topology, orders: Orders, policy: EjectionPolicy, rng: Random) -> None:
        self.orders = orders
        self._policy = policy
        self._rng = rng
        self._seats: dict[str, Seat] = {}
        self._unready: frozenset[str] = frozenset()
        self.replace_engines(topology)

    def replace_engines(self, topology: Topology, unready: Collection[str] = ()) -> None:
        """Take a changed map. Engines that stay keep their counts; one that moved to another URL starts in good health.

        `unready` are engines of which somebody says that they do not serve now.
        """
        self._unready = frozenset(unready)
        kept: dict[str, Seat] = {}
        for engine in topology.engines:
            facts, seat = topology.facts(engine), self._seats.get(engine.name)
            if seat is None or seat.facts.model != facts.model:
                seat = Seat(facts, EngineTally(facts.name, facts.model))
            elif seat.facts != facts:
                seat.facts, seat.health = facts, Health()
            kept[engine.name] = seat
        self._seats = kept

    @property
    def seats(self) -> Collection[Seat]:
        """All engines, in the order of the map."""
        return self._seats.values()

    @property
    def models(self) -> tuple[str, ...]:
        """The models served, in the order of the map."""
        return tuple(dict.fromkeys(seat.facts.model for seat in self.seats))

    def seat(self, engine: str) -> Seat | None:
        """The engine called `engine`, if it is in the pool."""
        return self._seats.get(engine)

    def standing(self, seat: Seat) -> Standing:
        """What has been ordered of an engine."""
        return self.orders.standing(seat.facts.name)

    def pick(self, model: str | None, now: float, tried: Collection[str] = ()) -> Seat | None:
        """The engine for the next try (of any model when None), or None when all are drained or tried.

        Ejected engines and those not ready are left out while another remains; when none does, all are tried (fail open).
        """
        open_seats = [seat for seat in self._in_rotation(model) if seat.facts.name not in tried]
        sound = [seat for seat in open_seats if not seat.health.ejected(now) and seat.facts.name not in self._unready]
        loads = [Load(s.facts.name, s.tally.in_flight, self.standing(s).weight) for s in sound or open_seats]
        name = choose(loads, self._rng)
        return None if name is None else self._seats[name]

    @contextmanager
    def sending(self, seat: Seat) -> Iterator[Try]:
        """Count one try: started now, in flight within, finished with `result` at the end, however it ends."""
        seat.tally.started += 1
        seat.tally.in_flight += 1
        one = Try(seat)
        try:
            yield one
        finally:
            seat.tally.in_flight -= 1
            seat.tally.finished[one.result] += 1

    def answered(self, seat: Seat) -> None:
        """An engine answered."""
        seat.health = after_answer(seat.health)

    def failed(self, seat: Seat, failure: Failure, now: float) -> None:
        """A try failed and the engine is to blame. The last sound engine of a model is never ejected."""
        others = (other for other in self._in_rotation(seat.facts.model) if other is not seat)
        last = all(other.health.ejected(now) for other in others)
        seat.health = after_failure(seat.health, failure, now, self._policy, last=last)

    def forgive(self, engine: str) -> None:
        """Forget an engine's failures: somebody vouches for it."""
        if (seat := self._seats.get(engine)) is not None:
            seat.health = Health()

    def _in_rotation(self, model: str | None) -> Iterator[Seat]:
        for seat in self.seats:
            if (model is None or seat.facts.model == model) and self.standing(seat).drained_by is None:
                yield seat
