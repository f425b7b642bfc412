"""Candidate: drives the state machine against a store, in a thread of its own, and tells everybody else who leads."""

import random
import threading
from dataclasses import replace

import structlog

from agent.election.machine import (
    Look,
    Refused,
    Resigned,
    Rest,
    Rested,
    Seen,
    Silence,
    State,
    Wish,
    Write,
    Wrote,
    advance,
)
from agent.election.mandate import Mandate, Standing
from agent.election.store import RecordStore, StoreSilentError
from agent.election.timing import JITTER, Timing
from serving.clock import Clock


class Candidate:
    """An Elector over a store. `step` does one thing; `start` runs steps in a thread until `close`.

    The mandate is judged by the clock of whoever asks, so it ends in time also when the thread hangs in a request.
    """

    def __init__(self, store: RecordStore, clock: Clock, identity: str, timing: Timing, floor: int = 0) -> None:
        self._store = store
        self._clock = clock
        self._timing = timing
        self._chance = random.Random(identity)
        self._lock = threading.Lock()
        self._state = State(identity, floor)
        self._wish: Wish = Look()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._log = structlog.get_logger("fleetwarden.election")

    @property
    def identity(self) -> str:
        return self._state.me

    def mandate(self) -> Mandate | None:
        mandate = self._state.mandate
        return None if mandate is None or self._clock.monotonic() >= mandate.until else mandate

    def standing(self) -> Standing:
        state, mandate = self._state, self.mandate()
        if mandate is not None:
            return Standing(leading=True, leader=state.me, term=mandate.term, trouble=state.trouble)
        seen = state.seen
        if seen is None or seen.holder == state.me:  # our record, our mandate over: nobody leads as far as we know
            return Standing(leading=False, leader="", term=state.floor, trouble=state.trouble)
        return Standing(leading=False, leader=seen.holder, term=seen.term, trouble=state.trouble)

    def resign(self, term: int, floor: int = 0) -> None:
        self._resign(Resigned(term, floor))

    def start(self) -> None:
        """Begin to look for the mandate."""
        self._thread = threading.Thread(target=self._run, name="election", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        if self._thread is not None:
            self._thread.join(2 * self._timing.request + self._timing.retry)
        mandate = self._state.mandate
        if mandate is not None:
            self._resign(Resigned(mandate.term, give_back=True))
            if isinstance(self._wish, Write):
                self.step()
        self._store.close()

    def step(self) -> float:
        """Do what the machine wishes, and tell it how that went. Seconds to rest before the next step."""
        with self._lock:
            wish, before = self._wish, self._state.mandate
        seen = self._do(wish)
        with self._lock:
            if self._wish is wish:  # not overtaken by a resignation
                self._state, self._wish = advance(self._state, seen, self._clock.monotonic(), self._timing)
            after, now_wished = self._state, self._wish
        self._tell(before, after, after.trouble or "it was not renewed in time")
        if not isinstance(now_wished, Rest):
            return 0.0
        return now_wished.seconds * self._chance.uniform(1 - JITTER, 1 + JITTER)

    def _resign(self, resigned: Resigned) -> None:
        with self._lock:
            before = self._state.mandate
            self._state, self._wish = advance(self._state, resigned, self._clock.monotonic(), self._timing)
        self._tell(before, self._state, "given back, or another one leads")

    def _do(self, wish: Wish) -> Seen:
        try:
            match wish:
                case Look():
                    return self._store.read(self._timing.request)
                case Write(record, version):
                    sent_at = self._clock.monotonic()
                    written = self._store.write(record, version, self._timing.request)
                    return Refused() if written is None else Wrote(record, written, sent_at)
                case Rest():
                    return Rested()
        except StoreSilentError as silent:
            return Silence(str(silent))

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                rest = self.step()
            except Exception as error:  # noqa: BLE001 - a thread that ends would leave the warden a follower for ever
                self._log.exception("election.broke")
                with self._lock:
                    self._state = replace(self._state, sure=False, trouble=f"{type(error).__name__}: {error}")
                    self._wish = Look()
                rest = self._timing.retry
            if rest > 0:
                self._closing.wait(rest)

    def _tell(self, before: Mandate | None, state: State, why: str) -> None:
        after = state.mandate
        if (before is None) == (after is None) and (before is None or after is None or before.term == after.term):
            return
        if after is not None:
            self._log.info("election.leads", identity=state.me, term=after.term, store=self._store.location)
        elif before is not None:
            self._log.warning("election.leads_no_more", identity=state.me, term=before.term, why=why)
