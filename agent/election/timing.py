"""The durations of an election, and what must hold between them."""

from collections.abc import Iterator
from dataclasses import dataclass

JITTER = 0.2  # a rest is this share shorter or longer by chance, so that wardens do not ask in step
DRIFT = 0.05  # by what share the clocks of two machines may differ in pace; quartz is a thousand times better


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds. A crashed leader is replaced within `lease`, two rests of `retry` and two requests: 20 s with the defaults.

    `lease`: a record that did not change for so long is anyone's. `renew`: a leader that could not renew for so long stops.
    `retry`: between two looks or renewals. `request`: the most that one request to the store may take.
    """

    lease: float = 12.0
    renew: float = 8.0
    retry: float = 2.0
    request: float = 1.5

    def __post_init__(self) -> None:
        problem = next(self.problems(), None)
        if problem is not None:
            raise ValueError(problem)

    def problems(self) -> Iterator[str]:
        """What does not hold between the durations, each with its why."""
        if self.request >= self.retry:
            yield (
                f"request of {self.request:g} s is not shorter than retry of {self.retry:g} s: a request without answer "
                "must be given up before the next one is due"
            )
        tries = 2 * self.retry * (1 + JITTER) + self.request
        if tries > self.renew:
            yield (
                f"renew of {self.renew:g} s is shorter than {tries:g} s, which two rests of {self.retry:g} s (and a fifth) "
                f"and a request of {self.request:g} s take: one lost answer would cost the leadership"
            )
        if self.safe - self.renew < self.request:
            yield (
                f"lease of {self.lease:g} s leaves a leader that stopped after renew of {self.renew:g} s less than "
                f"{self.request:g} s (request) for what it began, as clocks may differ by {DRIFT:.0%}: make it "
                f"{self.least_lease():.1f} s or more"
            )

    @property
    def safe(self) -> float:
        """Seconds after a renewal was sent within which nobody else can lead, whatever the other clock's pace."""
        return self.lease * (1 - DRIFT)

    @property
    def slack(self) -> float:
        """Seconds that a side effect may take that was begun at the last moment of a mandate."""
        return self.safe - self.renew

    def least_lease(self) -> float:
        """The shortest lease that goes with `renew` and `request`."""
        return (self.renew + self.request) / (1 - DRIFT)
