"""The election as a pure state machine: (state, what was seen, now) -> (state, what to do next).

`now` and all times are readings of this process's own monotonic clock; no two machines' clocks are ever compared. A
candidate takes a record only after it saw it unchanged for the whole lease, and only by a write that is refused if it
changed. A leader counts its mandate from before its renewal was sent, so it ends before anybody can have waited so long.
"""

import math
from dataclasses import dataclass, replace

from agent.election.mandate import Mandate
from agent.election.timing import Timing


@dataclass(frozen=True, slots=True)
class Record:
    """What the shared store holds. An empty `holder` means that it was given back. `renewals` counts within a term.

    `lease`: whole seconds, by its holder's settings; whoever waits, waits for the longer of that and its own.
    """

    holder: str
    term: int
    renewals: int
    lease: int


@dataclass(frozen=True, slots=True)
class Saw:
    """The store was read: the record with the store's version of it, or None where there is none yet."""

    record: Record | None
    version: str


@dataclass(frozen=True, slots=True)
class Wrote:
    """A write went through. `sent_at` is from before it was sent."""

    record: Record
    version: str
    sent_at: float


@dataclass(frozen=True, slots=True)
class Refused:
    """A write was refused, because the record had changed."""


@dataclass(frozen=True, slots=True)
class Silence:
    """No answer, or none that helps: a read told nothing, a write may or may not have gone through."""

    why: str


@dataclass(frozen=True, slots=True)
class Rested:
    """The rest is over."""


@dataclass(frozen=True, slots=True)
class Resigned:
    """The mandate of `term` is over. `floor`: a term that was seen elsewhere; the next one must be higher.

    `give_back`: say so in the store, so that another may lead at once; only when nothing of ours is under way any more.
    """

    term: int
    floor: int = 0
    give_back: bool = False


Seen = Saw | Wrote | Refused | Silence | Rested | Resigned


@dataclass(frozen=True, slots=True)
class Look:
    """Read the store."""


@dataclass(frozen=True, slots=True)
class Write:
    """Write `record` over the one of `version`; None: where there is none yet."""

    record: Record
    version: str | None


@dataclass(frozen=True, slots=True)
class Rest:
    """Do nothing for `seconds`, more or less."""

    seconds: float


Wish = Look | Write | Rest


@dataclass(frozen=True, slots=True)
class State:
    """What a candidate knows. `floor`: the highest term known of, in the store or elsewhere; the next one is higher.

    `seen` is the record as last read or written, with the store's `version` of it; it did not change since `seen_at` (None:
    the store was never read). `sure`: no write of ours is in doubt, so that a renewal needs no look before it.
    """

    me: str
    floor: int = 0
    seen: Record | None = None
    version: str = ""
    seen_at: float | None = None
    sure: bool = False
    mandate: Mandate | None = None
    trouble: str = ""


def advance(state: State, seen: Seen, now: float, timing: Timing) -> tuple[State, Wish]:
    """Take in what was seen at `now`, and say what to do next."""
    match seen:
        case Saw(record, version):
            return _after_look(_taken_in(state, record, version, now), now, timing)
        case Wrote():
            return _after_write(state, seen, now, timing)
        case Refused():
            return replace(state, sure=False), Rest(timing.retry)
        case Silence(why):
            return replace(_without_old_mandate(state, now), sure=False, trouble=why), Rest(timing.retry)
        case Resigned():
            return _resigned(state, seen)
        case Rested():
            return _rested(_without_old_mandate(state, now))


def _rested(state: State) -> tuple[State, Wish]:
    if state.mandate is not None and state.sure and state.seen is not None:
        return state, _renewal(state.seen, state.version)
    return state, Look()


def _taken_in(state: State, record: Record | None, version: str, now: float) -> State:
    changed = state.seen_at is None or record != state.seen
    seen_at = now if changed else state.seen_at
    known = replace(state, seen=record, version=version, seen_at=seen_at, sure=True, trouble="", floor=_floor(state, record))
    return known if _is_ours(known, record) else replace(known, mandate=None)


def _after_look(state: State, now: float, timing: Timing) -> tuple[State, Wish]:
    record = state.seen
    state = _without_old_mandate(state, now)
    if record is not None and state.mandate is not None:
        return state, _renewal(record, state.version)
    left = _taken_until(state, timing) - now
    if left > 0:
        return state, Rest(min(timing.retry, left))
    claim = Record(state.me, state.floor + 1, 0, math.ceil(timing.lease))
    return state, Write(claim, None if record is None else state.version)


def _after_write(state: State, wrote: Wrote, now: float, timing: Timing) -> tuple[State, Wish]:
    record, sent_at = wrote.record, wrote.sent_at
    state = replace(
        state, seen=record, version=wrote.version, seen_at=now, sure=True, trouble="", floor=_floor(state, record)
    )
    before = state.mandate
    if record.holder != state.me or (record.renewals > 0 and (before is None or before.term != record.term)):
        return replace(state, mandate=None), Rest(timing.retry)  # given back, or renewed for a mandate given back meanwhile
    mandate = Mandate(record.term, sent_at + timing.renew, sent_at + timing.safe)
    return _without_old_mandate(replace(state, mandate=mandate), now), Rest(timing.retry)


def _resigned(state: State, resigned: Resigned) -> tuple[State, Wish]:
    """Forget the mandate first; then say so in the store, if it is surely ours to say."""
    state = replace(state, floor=max(state.floor, resigned.floor))
    if state.mandate is None or state.mandate.term != resigned.term:
        return state, Look()
    state = replace(state, mandate=None)
    if not resigned.give_back or state.seen is None or not state.sure:
        return state, Look()
    return state, Write(replace(state.seen, holder="", renewals=state.seen.renewals + 1), state.version)


def _without_old_mandate(state: State, now: float) -> State:
    over = state.mandate is not None and now >= state.mandate.until
    return replace(state, mandate=None) if over else state


def _is_ours(state: State, record: Record | None) -> bool:
    """Whether `record` is one that we wrote in the term of our mandate; a renewal whose answer was lost is one, too."""
    if record is None or state.mandate is None:
        return False
    return (record.holder, record.term) == (state.me, state.mandate.term)


def _renewal(record: Record, version: str) -> Write:
    return Write(replace(record, renewals=record.renewals + 1), version)


def _floor(state: State, record: Record | None) -> int:
    return state.floor if record is None else max(state.floor, record.term)


def _taken_until(state: State, timing: Timing) -> float:
    """Until when somebody else may lead by the record as seen.

    A record that is gone although there was one, was taken away from under a leader that does not know it yet.
    """
    record, since = state.seen, state.seen_at or 0.0
    if record is None:
        return since + timing.lease if state.floor > 0 else since
    if record.holder in {"", state.me}:
        return since
    return since + max(timing.lease, record.lease)
