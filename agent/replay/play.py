"""Play recorded telemetry through the loop: the very stages of a live warden, at the speed of the machine.

Nothing live is read and nothing is done. `now` is the recorded moment throughout.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from actuators.action import VerbSpec
from agent.decision.policy import Policy
from agent.incident import IncidentEvent
from agent.journal.memory import MemoryJournal
from agent.journal.port import Note
from agent.loop import Loop, Minds, StepReport
from agent.replay.hands import Bystander, IdleHands, Pretence
from runbooks.runbook import Runbook
from serving.clock import Clock, FakeClock
from serving.fleet.entity import Entity
from serving.fleet.topology import Topology
from serving.telemetry.window import Window

NEVER = 604_800.0
"""Nobody answers in a replay, so a request for approval does not expire either."""
BREAK = 30.0
"""A cause that is not diagnosed for longer than this, in seconds, was gone."""


class Recorded(Protocol):
    """Telemetry of the past: a recording folder, or a range of a Prometheus."""

    @property
    def topology(self) -> Topology:
        """The map of the recorded fleet."""
        ...

    @property
    def cadence(self) -> float:
        """How many seconds usually lie between two samples."""
        ...

    @property
    def times(self) -> NDArray[np.float64]:
        """The moments at which the loop looks, in Unix seconds."""
        ...

    def windows(self, horizon: float) -> Iterator[Window]:
        """One Window per moment over the last `horizon` seconds."""
        ...


@dataclass(frozen=True, slots=True)
class Spell:
    """A time in which a cause was diagnosed on an entity without a long break, in Unix seconds."""

    began: float
    last: float


Told = tuple[str, Entity]
"""A cause and the entity that it is on."""


@dataclass(frozen=True, slots=True, eq=False)
class Played:
    """What a replay brought.

    `events` are by incident, in the order they opened; `spells` say when each cause was seen; `failures` are detectors that
    failed, each once.
    """

    topology: Topology
    begun: float
    ended: float
    steps: int
    events: Mapping[str, tuple[IncidentEvent, ...]]
    spells: Mapping[Told, Sequence[Spell]]
    runbooks: Mapping[str, Runbook]
    verbs: Mapping[str, VerbSpec]
    failures: tuple[str, ...]


class _Spells:
    """When each cause was seen."""

    def __init__(self) -> None:
        self.found: dict[Told, list[Spell]] = {}

    def take(self, report: StepReport) -> None:
        now = report.window.now
        for diagnosis in report.diagnoses:
            spells = self.found.setdefault((diagnosis.cause, diagnosis.entity), [])
            if spells and now - spells[-1].last <= BREAK:
                spells[-1] = Spell(spells[-1].began, now)
            else:
                spells.append(Spell(now, now))


class _Moments:
    """Hands the loop one recorded window after the other."""

    def __init__(self, windows: Iterator[Window], clock: FakeClock) -> None:
        self._windows = windows
        self._clock = clock
        self._next: Window | None = None

    def turn(self) -> Window | None:
        """Go on to the next moment; None at the end."""
        self._next = next(self._windows, None)
        if self._next is not None:
            self._clock.jump(self._next.now - self._clock.now())
        return self._next

    def observe(self, topology: Topology, now: float) -> Window:  # noqa: ARG002 - the port's signature
        if self._next is None:
            raise ValueError("the recording has come to its end")
        return self._next


def unheard(policy: Policy) -> Policy:
    """The policy for a replay: as given, but a request that nobody can answer stays open."""
    return policy.model_copy(update={"approval_expiry": NEVER})


def for_replay(minds: Minds) -> Minds:
    """The same judgements for a world that goes on unrepaired.

    What would have been acted upon stands for its cause until that has stayed away as long as it takes an untouched
    incident to heal, however long the recorded fault goes on; see agent.replay.hands. And nothing that was recorded is
    the effect of a repair of ours, so nothing is excused by one.
    """
    diagnose = minds.diagnose
    tracking = replace(minds.tracking, gone_for=minds.tracking.healed_after, suppressed_for=NEVER)
    return replace(
        minds,
        diagnose=lambda window, found, _: diagnose(window, found, frozenset()),
        policy=unheard(minds.policy),
        tracking=tracking,
    )


def play(
    recorded: Recorded,
    minds: Minds,
    verbs: Mapping[str, VerbSpec],
    *,
    horizon: float,
    measuring: Clock,
    watch: Callable[[StepReport], None] = lambda _: None,
    pretence: Pretence | None = None,
) -> Played:
    """Run the loop over `recorded`; `watch` is shown every step. `measuring` is only asked how long the stages take."""
    pretence = pretence or Pretence()
    clock, journal = FakeClock(float(recorded.times[0])), MemoryJournal()
    minds = for_replay(minds)
    hands = IdleHands(journal, _lasting(minds, verbs, pretence), clock, pretence)
    moments = _Moments(recorded.windows(horizon), clock)
    loop = Loop(moments, minds, journal, Bystander(verbs), hands, measuring)
    failures: dict[str, None] = {}
    spells = _Spells()
    steps, ended = 0, clock.now()
    while moments.turn() is not None:
        report = loop.step(recorded.topology, clock.now())
        failures.update(dict.fromkeys(f"{failed.detector}: {failed.error}" for failed in report.detection.failed))
        spells.take(report)
        steps, ended = steps + 1, clock.now()
        watch(report)
    return Played(
        topology=recorded.topology,
        begun=float(recorded.times[0]),
        ended=ended,
        steps=steps,
        events=_by_incident(journal),
        spells=spells.found,
        runbooks=minds.runbooks,
        verbs=verbs,
        failures=tuple(failures),
    )


def _lasting(minds: Minds, verbs: Mapping[str, VerbSpec], pretence: Pretence) -> dict[str, float]:
    """How long each runbook would be at work, by its name: one that only probes is done soon."""
    return {
        book.name: pretence.probe if all(_only_asks(step.do, verbs) for step in book.steps) else pretence.repair
        for book in minds.runbooks.values()
    }


def _only_asks(verb: str, verbs: Mapping[str, VerbSpec]) -> bool:
    return verb in verbs and verbs[verb].harmless


def _by_incident(journal: MemoryJournal) -> dict[str, tuple[IncidentEvent, ...]]:
    found: dict[str, list[IncidentEvent]] = {}
    for entry in journal.events():
        if not isinstance(entry.event, Note):
            found.setdefault(entry.event.incident, []).append(entry.event)
    return {incident: tuple(events) for incident, events in found.items()}
