"""Mandate and Elector: who may act, in which term, and for how long."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Mandate:
    """The right to act as the only writer. Times are readings of the holder's own monotonic clock, in seconds.

    `until`: nothing is begun from then on. `expires`: nobody else can lead before; whatever was begun must have ended by
    then. Both move on with each renewal. `term` grows with every new mandate in the cell, whoever gets it.
    """

    term: int
    until: float
    expires: float

    def covers(self, now: float, seconds: float) -> bool:
        """Whether something that takes at most `seconds` may begin at `now`."""
        return now < self.until and now + seconds <= self.expires


@dataclass(frozen=True, slots=True)
class Standing:
    """How an elector stands, for people: the leader as last seen (empty: nobody), its term, and what is wrong, if so."""

    leading: bool
    leader: str
    term: int
    trouble: str = ""


class Elector(Protocol):
    """Tells whether this warden is the one that acts. Safe to use from several threads; none of these block on a network."""

    @property
    def identity(self) -> str:
        """The name of this warden among its fellows, another one for each process."""
        ...

    def mandate(self) -> Mandate | None:
        """The mandate, if this warden leads now. Ask again before every side effect: a process may sleep at any point."""
        ...

    def standing(self) -> Standing:
        """How things stand, for metrics and the readiness page."""
        ...

    def resign(self, term: int, floor: int = 0) -> None:
        """Stop leading in `term`, since somebody was seen to write in a later term, `floor`. Does not ask the store."""
        ...

    def close(self) -> None:
        """Give the mandate back, so that another need not wait for its end, and stop. Waits a moment for the store."""
        ...


def term_for(elector: Elector, now: float, seconds: float) -> int | None:
    """The term in which something that takes at most `seconds` may begin at `now`, a reading of the elector's clock.

    None when nothing may be begun.
    """
    mandate = elector.mandate()
    return mandate.term if mandate is not None and mandate.covers(now, seconds) else None


def still_leads(elector: Elector, term: int, now: float, seconds: float) -> bool:
    """Whether `elector` still leads in `term` for at least `seconds` from `now`, a reading of its monotonic clock."""
    return term_for(elector, now, seconds) == term
