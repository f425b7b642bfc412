"""The order of a drill: gate, write down, inject, watch, always undo, verify, score, record.

Whatever happens between the first injection and the undo (an exception, Ctrl-C, SIGTERM) the undo is carried out; after a
kill the record says what `recover` has to undo. Does not belong here: judging (gate, judge), reaching a fleet (fleet).
"""

import uuid
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from agent.drill import gate, judge
from agent.drill.card import Card, FaultRow, Verdict
from agent.drill.fleet import DrillFleet, DrillFleetError, InjectionError
from agent.drill.gate import Aim, Look
from agent.drill.judge import Plan, Verbs
from agent.drill.recovery import recover, undo_all
from agent.drill.scoring import Course, Stop, card_of
from agent.drill.store import DrillStore, RunRecord
from agent.drill.users import Failures, Users
from agent.drill.wording import finished_note, started_note
from agent.journal.port import Note
from runbooks.conditions import Truth
from runbooks.drill import Drill, FaultOrder
from runbooks.drill_conditions import condition

POLL_S = 1.0
PROGRESS_S = 15.0

Say = Callable[[str], None]
Guarded = Callable[[], AbstractContextManager[None]]
"""Entered around an undo, so that a second Ctrl-C does not cut it off."""


@dataclass(frozen=True, slots=True)
class Means:
    """What a run needs beside its fleet. `say` gets one line for a person at each turn; `undoing` guards the undo."""

    store: DrillStore
    verbs: Verbs
    say: Say
    undoing: Guarded = nullcontext


def run_drill(drill: Drill, fleet: DrillFleet, means: Means, seed: int = 0) -> Card:
    """Run `drill` to its end, record it, and return its card.

    Raises DrillBusyError while another one is under way, and DrillFleetError when the fleet cannot be seen before anything
    is broken. KeyboardInterrupt and SystemExit go on to the caller once everything is undone and recorded.
    """
    with means.store.lock():
        left = recover(fleet, means.store, means.say)
        if left is not None and not left.undone:
            raise DrillFleetError(f"drill {left.run} left something that cannot be undone; see `fleetwarden fault list`")
        return _Run(drill, fleet, means, seed).go()


def rehearse(drill: Drill, fleet: DrillFleet, seed: int = 0) -> tuple[tuple[Aim, ...], tuple[str, ...]]:
    """What the drill would break now, and why it could not begin now. Breaks nothing, and waits for nothing.

    Conditions over a span of users' answers cannot be read in one look; they are left out.
    """
    users = Users()
    sight = fleet.sight()
    users.add(fleet.clock.now(), fleet.users())
    look = Look(fleet.clock.now(), sight, users.lately())
    unfit = gate.unfit(drill, fleet.kind, sight)
    bare = drill.model_copy(update={"steady": drill.steady.model_copy(update={"require": []})})
    try:
        chosen = _aims(drill, fleet, seed)
    except ValueError as missing:
        return (), (*unfit, *gate.unsteady(bare, look), str(missing))
    return chosen, (*unfit, *gate.unsteady(bare, look), *gate.no_headroom(drill, sight, chosen))


class _Run:
    """One drill from its gate to its card."""

    def __init__(self, drill: Drill, fleet: DrillFleet, means: Means, seed: int) -> None:
        self._drill = drill
        self._fleet = fleet
        self._means = means
        self._seed = seed
        self._users = Users()
        self._failures: Failures | None = None
        self._plan = Plan(drill, (), ())
        self._faults: list[FaultRow] = []
        self._said = float("-inf")
        self._course = Course(_run_id(drill), drill, fleet.kind, fleet.clock.now())

    def go(self) -> Card:
        not_steady = self._await_steady()
        if not_steady:
            return self._finish(Stop(Verdict.NOT_STEADY, not_steady))
        try:
            chosen = _aims(self._drill, self._fleet, self._seed)
        except ValueError as missing:
            return self._finish(Stop(Verdict.NOT_STEADY, (str(missing),)))
        cramped = gate.no_headroom(self._drill, self._fleet.sight(), chosen)
        if cramped:
            return self._finish(Stop(Verdict.NOT_STEADY, cramped))
        return self._finish(self._broken(chosen))

    def _broken(self, chosen: tuple[Aim, ...]) -> Stop:
        """Inject, watch and undo. What interrupts the watch goes on to the caller after the undo and the record."""
        around = frozenset().union(*(self._fleet.around(aim.target) for aim in chosen))
        self._plan = Plan(self._drill, chosen, (None,) * len(chosen), around)
        self._faults = [
            FaultRow(
                key=f"{self._course.run}-{number + 1}",
                fault=aim.order.fault,
                target=str(aim.target),
                parameters=dict(aim.order.parameters),
            )
            for number, aim in enumerate(chosen)
        ]
        course = self._course
        began = self._fleet.clock.now()
        self._means.store.begin(
            RunRecord(run=course.run, drill=self._drill, fleet=course.fleet, began_at=began, faults=tuple(self._faults))
        )
        try:
            self._note(started_note(course.run, self._drill, chosen, began))
            self._failures = Failures(self._fleet.users())
            stop = self._watch()
        except BaseException as error:
            with self._means.undoing():
                self._undo()
                self._finish(Stop(Verdict.INTERRUPTED, (f"the drill was interrupted: {_named(error)}",)))
            raise
        with self._means.undoing():
            self._undo()
        return stop

    def _await_steady(self) -> tuple[str, ...]:
        """Why the fleet did not become steady in time; empty once it is."""
        clock, steady = self._fleet.clock, self._drill.steady
        sight = self._fleet.sight()
        unfit = gate.unfit(self._drill, self._fleet.kind, sight)
        if unfit:
            return unfit
        self._means.say(f"waiting until the fleet is steady for {steady.hold:g} s")
        until, since = clock.monotonic() + steady.within, clock.monotonic()
        self._said = clock.monotonic()  # how users are served takes two looks to tell: nothing to be told of before
        while True:
            why = gate.unsteady(self._drill, self._look())
            if why:
                since = clock.monotonic()
                self._progress(f"not steady: {'; '.join(why)}")
            elif clock.monotonic() - since >= steady.hold:
                return ()
            if clock.monotonic() >= until:
                return why or (f"it was not steady for {steady.hold:g} s on end within {steady.within:g} s",)
            clock.sleep(POLL_S)

    def _watch(self) -> Stop:
        clock, limit = self._fleet.clock, self._drill.limits.watch
        start = clock.monotonic()
        while True:
            try:
                self._make_and_end(clock.monotonic() - start)
                stop = self._judged(self._look())
            except InjectionError as error:
                return Stop(Verdict.ABORTED, (f"a fault could not be made: {error}",))
            except DrillFleetError as error:
                return Stop(Verdict.ABORTED, (f"nobody can see what happens: {error}",))
            if stop is not None:
                return stop
            if clock.monotonic() - start >= limit:
                return Stop(None, ())
            clock.sleep(POLL_S)

    def _judged(self, look: Look) -> Stop | None:
        """Why the watch is over, if it is."""
        matched = self._course.matched = judge.match(self._plan, self._fleet.histories(self._course.began_at))
        real = judge.stranger(self._plan, matched) or gate.stale(look) or self._condition(look)
        real = real or gate.beyond(self._drill, look.sight, self._plan.aims)
        if real is not None:
            return Stop(Verdict.ABORTED, (real,))
        wrong = judge.trespass(self._plan, matched, self._means.verbs) or judge.misjudged(
            matched, look.now, self._means.verbs
        )
        if wrong is not None:
            return Stop(Verdict.FAILED, (wrong,))
        self._tell(look)
        return Stop(None, ()) if judge.complete(self._plan, matched) else None

    def _condition(self, look: Look) -> str | None:
        known = gate.facts(look)
        for each in self._drill.abort:
            answer = condition(each.when).holds(known)
            if answer.truth is Truth.TRUE:
                return f"{each.because}: {answer.why}"
        return None

    def _make_and_end(self, elapsed: float) -> None:
        """Make the faults that are due, and undo those that have lasted long enough."""
        for number, aim in enumerate(self._plan.aims):
            injected, row = self._plan.injected[number], self._faults[number]
            if injected is None and elapsed >= aim.order.after:
                self._inject(number, aim)
            elif _is_over(aim.order, injected, self._fleet.clock.now()) and row.undone is None:
                with self._means.undoing():
                    self._undo([number])

    def _inject(self, number: int, aim: Aim) -> None:
        self._means.say(f"breaking {aim.target}: {aim.order.fault}")
        at = self._fleet.clock.now()
        self._plan = self._plan.with_injected(number, at)  # first: what came in between is its effect
        self._fleet.inject(self._faults[number].key, aim.order, aim.target)
        self._faults[number] = self._faults[number].model_copy(update={"injected_at": at})

    def _undo(self, which: Sequence[int] | None = None) -> None:
        """Undo what is not undone yet; what was never made is left out."""
        numbers = range(len(self._faults)) if which is None else which
        due = [n for n in numbers if self._plan.injected[n] is not None and self._faults[n].undone is not True]
        undone = undo_all(self._fleet, [self._faults[n] for n in due], self._means.say)
        for number, row in zip(due, undone, strict=True):
            self._faults[number] = row
        if all(row.undone is not False for row in self._faults) and which is None:
            self._means.store.end()

    def _look(self) -> Look:
        clock, counts = self._fleet.clock, self._fleet.users()
        now = clock.now()
        self._users.add(now, counts)
        if self._failures is not None:
            self._failures.add(counts)
        failed = self._failures.total if self._failures is not None else 0.0
        began = self._plan.began
        return Look(now, self._fleet.sight(), self._users.lately(), failed, now - began if began is not None else 0.0)

    def _finish(self, stop: Stop) -> Card:
        """Verify that the fleet is steady again, score and record."""
        course, clock, told_to_end = self._course, self._fleet.clock, None
        course.plan, course.faults = self._plan, tuple(self._faults)
        if self._plan.began is not None:
            course.failed = self._failures.total if self._failures is not None else None
            if stop.verdict in {None, Verdict.FAILED}:  # otherwise there is something more urgent than this drill
                course.matched = judge.match(self._plan, self._fleet.histories(course.began_at))
                try:
                    course.steady_again_after = self._steady_again()
                except (KeyboardInterrupt, SystemExit) as error:  # nothing is broken any more: only the card is short
                    told_to_end, course.unsteady = error, ("nobody waited for it to the end",)
        card = card_of(course, stop, self._means.verbs, clock.now())
        self._means.store.add(card)
        self._note(finished_note(card))
        if told_to_end is not None:
            raise told_to_end
        return card

    def _note(self, note: Note) -> None:
        """The record of the warden is only told: a drill does not hang on it."""
        try:
            self._fleet.note(note)
        except DrillFleetError as error:
            self._means.say(f"the warden's journal was not told: {error}")

    def _steady_again(self) -> float | None:
        """Seconds from the undo until the fleet was steady again; None when it was not in time."""
        clock, began = self._fleet.clock, self._fleet.clock.monotonic()
        self._means.say("waiting until the fleet is steady again")
        while True:
            try:
                why = gate.unsteady(self._drill, self._look())
            except DrillFleetError as error:
                why = (str(error),)
            waited = clock.monotonic() - began
            if not why:
                return waited
            if waited >= self._drill.limits.recover:
                self._course.unsteady = why
                return None
            self._progress(f"not steady yet: {'; '.join(why)}")
            clock.sleep(POLL_S)

    def _tell(self, look: Look) -> None:
        for history in self._course.matched.wanted.values():
            incident = history.incident
            if self._course.is_news(incident.id, incident.state):
                self._means.say(f"{look.elapsed:.0f} s: {incident.cause} on {incident.entity} is {incident.state}")
        self._progress(f"{look.elapsed:.0f} s: watching; {look.failed:.0f} user requests failed")

    def _progress(self, line: str) -> None:
        """A sign of life every so often."""
        now = self._fleet.clock.monotonic()
        if now - self._said >= PROGRESS_S:
            self._said = now
            self._means.say(line)


def _aims(drill: Drill, fleet: DrillFleet, seed: int) -> tuple[Aim, ...]:
    kinds = {kind for order in drill.faults if (kind := gate.kind_of(order.target)) is not None}
    return gate.aims(drill, fleet.sight(), {kind: fleet.entities(kind) for kind in kinds}, seed)


def _is_over(order: FaultOrder, injected: float | None, now: float) -> bool:
    return injected is not None and order.lasts is not None and now - injected >= order.lasts


def _run_id(drill: Drill) -> str:
    return f"{drill.name}-{uuid.uuid4().hex[:6]}"


def _named(error: BaseException) -> str:
    if isinstance(error, KeyboardInterrupt):
        return "Ctrl-C"
    if isinstance(error, SystemExit):
        return "it was told to stop"
    return f"{type(error).__name__}: {error}"
