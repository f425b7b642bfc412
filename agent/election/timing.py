"""The durations of an election, and what must hold between them."""

import math
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
        wrong = "; ".join(problems(self.lease, self.renew, self.retry, self.request))
        if wrong:
            raise ValueError(wrong)

    @property
    def safe(self) -> float:
        """Seconds after a renewal was sent within which nobody else can lead, whatever the other clock's pace."""
        return self.lease * (1 - DRIFT)

    @property
    def slack(self) -> float:
        """Seconds that a side effect may take that was begun at the last moment of a mandate."""
        return self.safe - self.renew


def problems(lease: float, renew: float, retry: float, request: float) -> Iterator[str]:
    """What does not hold between the durations of a Timing, each with its why."""
    if request >= retry:
        yield (
            f"request of {request:g} s is not shorter than retry of {retry:g} s: a request without answer must be given up "
            "before the next one is due"
        )
    tries = 2 * retry * (1 + JITTER) + request
    if tries > renew:
        yield (
            f"renew of {renew:g} s is shorter than {tries:g} s, which two rests of {retry:g} s (and a fifth) and a request "
            f"of {request:g} s take: one lost answer would cost the leadership"
        )
    least = (renew + request) / (1 - DRIFT)
    if lease < least:
        yield (
            f"lease of {lease:g} s leaves a leader that stopped after renew of {renew:g} s less than {request:g} s "
            f"(request) for what it began, as clocks may differ by {DRIFT:.0%}: make it {math.ceil(least * 10) / 10:g} s "
            "or more"
        )
