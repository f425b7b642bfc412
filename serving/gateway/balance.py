"""Which engine gets the next request: the lesser loaded of two.

The power of two random choices (Mitzenmacher, 2001) keeps the largest load near the mean at a constant cost, and unlike
"the least loaded of all" does not send every request of a burst to the same engine.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random


@dataclass(frozen=True, slots=True)
class Load:
    """One candidate. `in_flight`: requests sent and not finished. `weight` > 0: its share relative to the others."""

    name: str
    in_flight: int
    weight: float = 1.0

    @property
    def pressure(self) -> float:
        """Requests in flight for each unit of weight."""
        return self.in_flight / self.weight


def choose(candidates: Sequence[Load], rng: Random) -> str | None:
    """The name of the engine that gets the next request, or None without candidates.

    The first of the pair is drawn in proportion to weight, the second evenly from the others, and the first wins a tie: so
    an idle fleet is shared by weight, and a busy one evens out the pressure.
    """
    if not candidates:
        return None
    if len(candidates) == 1:
        return candidates[0].name
    first = rng.choices(range(len(candidates)), [load.weight for load in candidates])[0]
    second = rng.randrange(len(candidates) - 1)
    one, other = candidates[first], candidates[second + (second >= first)]
    return other.name if other.pressure < one.pressure else one.name
