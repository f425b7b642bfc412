"""One of the two wardens: python -m two_wardens.process CONFIG. Says on standard output what it goes through.

Each line is a JSON object. A strike file tells it where in an action to die or to freeze by its own hand: no other process
could hit the moment between the last question and the write.
"""

import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from actuators.action import Action, OutcomeStatus
from agent.act import Executor, ExecutorParameters
from agent.decision.decision import Decision, Reason, Verdict
from agent.diagnosis.diagnosis import Diagnosis
from agent.election.choice import elector_of
from agent.election.office import Office
from agent.election.settings import ElectionSettings
from agent.hands import Hands
from agent.incident import Ended, Ending, Incident, IncidentState, Opened
from agent.journal.port import DeposedError, Journal, JournalError
from agent.journal.stored import open_journal
from serving.clock import SystemClock
from serving.fleet.entity import Entity, EntityKind
from serving.kubernetes.connection import connect
from two_wardens.stamp import VERB, StampActuator

TICK_S = 0.1
MOMENT_S = 0.02  # the loop hardly waits for its hands: several items are under way at once
STEP = "stamp"
TAKES_EFFECT_S = 0.1  # a stop reaches each thread a little later, and who cuts the network must have heard


@dataclass(frozen=True, slots=True)
class Config:
    """What a warden is told. `strike`: where a strike file would lie. `finish`: no new items while that file exists."""

    name: str
    journal: str
    election: dict[str, Any]
    nodes: list[str]
    at_once: int
    pause: float
    strike: str
    finish: str


def say(event: str, **facts: object) -> None:
    """One line for whoever watches."""
    print(json.dumps({"event": event, **facts}), flush=True)  # noqa: T201 - the protocol of this process


class Striker:
    """Carries out the strike that was asked for, at its point."""

    def __init__(self, strike: Path) -> None:
        self._strike = strike
        self._clock = SystemClock()
        self._lock = threading.Lock()

    def reached(self, point: str) -> None:
        """This point of an action is reached by one of the hands."""
        with self._lock:
            if not self._strike.exists():
                return
            asked = json.loads(self._strike.read_text())
            if asked["point"] != point:
                return
            self._strike.unlink()
        say("struck", kind=asked["kind"], point=point)
        if asked["kind"] == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if asked["kind"] == "freeze":
            os.kill(os.getpid(), signal.SIGSTOP)
        self._clock.sleep(TAKES_EFFECT_S)


class Items:
    """The made-up work: as long as nobody says to finish, some incidents are open, and each asks for one action."""

    def __init__(self, config: Config, journal: Journal, hands: Hands) -> None:
        self._config = config
        self._journal = journal
        self._hands = hands

    def step(self, now: float) -> None:
        """What a leader does in one step. Raises JournalError."""
        self._hands.finished()
        self._hands.recover(now)
        for incident in self._journal.incidents(open_only=True):
            if not self._hands.busy(incident.id) and incident.pending is None:
                self._carry_on(incident, now)
        missing = self._config.at_once - len(self._journal.incidents(open_only=True))
        if missing > 0 and not Path(self._config.finish).exists():
            number = len(self._journal.incidents())
            target = Entity(EntityKind.NODE, self._config.nodes[number % len(self._config.nodes)])
            self._journal.append(Opened(f"item-{number:05d}", now, Diagnosis("two-wardens.item", target, 1.0, now, ())))

    def _carry_on(self, incident: Incident, now: float) -> None:
        if any(o.outcome is not None and o.outcome.status is OutcomeStatus.DONE for o in incident.operations):
            self._journal.append(Ended(incident.id, now, IncidentState.RESOLVED, Ending.REPAIRED, "stamped", ""))
            return
        action = Action(VERB, incident.entity, {"item": int(incident.id.removeprefix("item-"))})
        due = Decision(Verdict.ACT, Reason.STEP_DUE, "the item is due", STEP, action)
        self._hands.perform(incident, due, attempt=1, runbook="two-wardens", now=now)


@contextmanager
def _parts(config: Config) -> Iterator[tuple[Office, Items]]:
    clock = SystemClock()
    election = ElectionSettings(**config.election)
    striker = Striker(Path(config.strike))
    with ExitStack() as end:
        journal = end.enter_context(closing(open_journal(config.journal)))
        elector = end.enter_context(elector_of(election, journal, config.journal, clock))
        client = connect(election.kubeconfig, clock=clock, deadline_s=election.request)
        end.enter_context(closing(client))
        actuator = StampActuator(
            client, elector, clock, pause=config.pause, deadline=election.request, reached=striker.reached
        )
        executor = Executor(journal, actuator, clock, ExecutorParameters(settle=0.0, touch=election.request), elector)
        hands = Hands(executor, MOMENT_S)
        end.callback(hands.close)
        yield Office(elector, journal, f"{config.name} began"), Items(config, journal, hands)


def main(config: Config) -> None:
    """Be a warden until SIGTERM."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    clock, led = SystemClock(), 0
    with _parts(config) as (office, items):
        say("started", identity=office.elector.identity)
        while not stop.wait(TICK_S):
            try:
                now = clock.now()
                leads = office.enter(now)
                term = office.standing().term if leads else 0
                if term != led:
                    say("leads", term=term) if leads else say("follows")
                    led = term
                if leads:
                    items.step(now)
            except DeposedError as error:
                office.deposed(error)
                say("deposed", says=str(error))
            except JournalError as error:
                say("trouble", says=str(error))
    say("ended")


if __name__ == "__main__":
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    main(Config(**json.loads(Path(sys.argv[1]).read_text())))
