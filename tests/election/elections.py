"""Elections in simulated time: candidates whose clocks run at paces of their own, over a store that loses and delays."""

import heapq
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from agent.election.machine import (
    Look,
    Record,
    Refused,
    Rest,
    Rested,
    Saw,
    Seen,
    Silence,
    State,
    Wish,
    Write,
    Wrote,
    advance,
)
from agent.election.mandate import Mandate
from agent.election.timing import DRIFT, Timing

Chance = Callable[[], float]  # the next number from 0 to 1


@dataclass
class SharedRecord:
    """A store that keeps its promise: a write goes through only over the version that is there."""

    record: Record | None = None
    version: int = 0

    def saw(self) -> Saw:
        return Saw(self.record, str(self.version))

    def write(self, record: Record, version: str | None) -> str | None:
        if version != (None if self.record is None else str(self.version)):
            return None
        self.record, self.version = record, self.version + 1
        return str(self.version)


@dataclass
class Runner:
    """One candidate. `pace`: seconds of its clock in a true second; `offset`: what its clock shows at true time 0."""

    state: State
    pace: float
    offset: float
    wish: Wish = field(default_factory=Look)
    crashed: bool = False

    def clock(self, true: float) -> float:
        return self.offset + true * self.pace

    def true(self, reading: float) -> float:
        return (reading - self.offset) / self.pace


@dataclass(frozen=True)
class Reign:
    """A mandate in true time: from when it was held, and until when at most it may act, as known last."""

    holder: str
    term: int
    begins: float
    ends: float


class Election:
    """Some candidates over one record. `chance` decides everything that chance decides; `trouble` how often it strikes."""

    def __init__(self, count: int, chance: Chance, timing: Timing, trouble: float) -> None:
        self.timing, self.chance, self.trouble = timing, chance, trouble
        self.store, self.true = SharedRecord(), 0.0
        self.runners = [Runner(State(f"w{i}"), 1 + DRIFT * (chance() - 0.5), 1000 * chance()) for i in range(count)]
        self.reigns: dict[tuple[str, int], Reign] = {}
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        for runner in self.runners:
            self._at(chance(), lambda runner=runner: self._begin(runner))

    def run(self, until: float) -> None:
        while self._events and self._events[0][0] <= until:
            self.true, _, happens = heapq.heappop(self._events)
            happens()
        self.true = until

    def leaders(self) -> list[Runner]:
        return [runner for runner in self.runners if not runner.crashed and self._leads(runner)]

    def _leads(self, runner: Runner) -> bool:
        mandate = runner.state.mandate
        return mandate is not None and mandate.covers(runner.clock(self.true), 0.0)

    def _at(self, seconds: float, happens: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.true + seconds, next(self._order), happens))

    def _strikes(self) -> bool:
        return self.chance() < self.trouble

    def _begin(self, runner: Runner) -> None:
        if runner.crashed:
            return
        match runner.wish:
            case Rest(seconds):
                self._at(seconds * (0.8 + 0.4 * self.chance()) / runner.pace, lambda: self._take(runner, Rested()))
            case Look():
                lost = self._strikes()
                takes = self.timing.request if lost else self.chance() * self.timing.request
                self._at(takes * self.chance(), lambda: self._read(runner, takes, lost=lost))
            case Write(record, version):
                self._write(runner, record, version)

    def _read(self, runner: Runner, takes: float, *, lost: bool) -> None:
        seen = Silence("no answer") if lost else self.store.saw()
        self._at(takes * self.chance(), lambda: self._take(runner, seen))

    def _write(self, runner: Runner, record: Record, version: str | None) -> None:
        sent_at, takes = runner.clock(self.true), self.chance() * self.timing.request
        lost, arrives = self._strikes(), takes * self.chance()
        if lost:  # the answer is lost; the request may arrive much later, or never
            if self.chance() < 0.7:
                self._at(arrives * (1 + 20 * self.chance()), lambda: self.store.write(record, version) and None)
            self._at(self.timing.request, lambda: self._take(runner, Silence("no answer")))
            return

        def lands() -> None:
            written = self.store.write(record, version)
            seen = Refused() if written is None else Wrote(record, written, sent_at)
            self._at(takes - arrives, lambda: self._take(runner, seen))

        self._at(arrives, lands)

    def _take(self, runner: Runner, seen: Seen) -> None:
        if self._strikes():  # the process sleeps before it hears of it
            self._at(30 * self.chance(), lambda: self._take_now(runner, seen))
        else:
            self._take_now(runner, seen)

    def _take_now(self, runner: Runner, seen: Seen) -> None:
        runner.state, runner.wish = advance(runner.state, seen, runner.clock(self.true), self.timing)
        if runner.state.mandate is not None and not runner.crashed:
            self._note(runner, runner.state.mandate)
        self._begin(runner)

    def _note(self, runner: Runner, mandate: Mandate) -> None:
        key, ends = (runner.state.me, mandate.term), runner.true(mandate.expires)
        known = self.reigns.get(key)
        begins = self.true if known is None else known.begins
        if ends > self.true:
            self.reigns[key] = Reign(runner.state.me, mandate.term, begins, ends)


def overlaps(reigns: Iterator[Reign] | list[Reign]) -> list[tuple[Reign, Reign]]:
    """Pairs of reigns of different candidates that share a moment, or whose terms are not in the order of time."""
    ordered = sorted(reigns, key=lambda reign: reign.begins)
    return [
        (one, other)
        for one, other in itertools.combinations(ordered, 2)
        if one.holder != other.holder and (one.ends > other.begins or one.term >= other.term)
    ]
