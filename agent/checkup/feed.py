"""A fleet looked at again and again: windows from /metrics URLs or from a Prometheus, and the judgement of each.

The judgement is the loop's own: the same detectors over the same kind of window, the same diagnosis.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

import numpy as np
from pydantic import SecretStr

from agent.checkup.cadence import for_cadence
from agent.checkup.mapping import Mapped, from_labels, from_places
from agent.checkup.past import Told, tell
from agent.checkup.places import MetricsPlace, NoPlace
from agent.checkup.sight import Sight, sight_of
from agent.diagnosis.catalogue import Catalogue
from agent.diagnosis.diagnosis import Diagnosis
from agent.diagnosis.rank import diagnose, ranked
from agent.observe import Observer
from agent.track import TrackParameters
from detectors.catalogue import Detection, detect_all
from detectors.parameters import Parameters
from serving.clock import Clock, FakeClock
from serving.fleet.entity import Entity
from serving.telemetry.exposition import Samples
from serving.telemetry.history import History
from serving.telemetry.prometheus import PrometheusSource
from serving.telemetry.prometheus_targets import EngineFinder
from serving.telemetry.reading import Source
from serving.telemetry.registry import Job, Registry
from serving.telemetry.scrape import ScrapeLimits, ScrapeSource
from serving.telemetry.window import Window

PACE = 2.0  # seconds between scrapes: the pace that the detectors' parameters assume
HORIZON = 600.0  # seconds of past that a long watch keeps, as the warden does
STANDS_FOR = TrackParameters().healed_after  # seconds for which a cause that is not seen still counts
BETWEEN_LOOKS = 10.0  # seconds


@dataclass(frozen=True, slots=True, eq=False)
class Look:
    """What was seen of the fleet at one moment, and what it gave.

    `before` is a window that reaches further back in longer steps, where one was read too.
    """

    window: Window
    detection: Detection
    diagnoses: tuple[Diagnosis, ...]
    before: Window | None = None

    @property
    def seconds(self) -> float:
        """How long the fleet was watched by then."""
        return max(_span(window) for window in self._windows)

    @property
    def readings(self) -> int:
        """How many moments that rests on."""
        if self.before is None:
            return len(self.window.times)
        return len(self.window.times) + int((self.before.times < self.window.times[0]).sum())

    @property
    def _windows(self) -> tuple[Window, ...]:
        return (self.window,) if self.before is None else (self.window, self.before)


def _span(window: Window) -> float:
    return float(window.times[-1] - window.times[0]) if len(window.times) else 0.0


@dataclass(slots=True, eq=False)
class Feed:
    """What gives the looks. Close it when done."""

    mapped: Mapped
    sights: Mapping[str, Sight]
    parameters: Parameters
    catalogue: Catalogue
    interval: float
    cadence: float
    _history: History
    _observer: Observer
    _clock: Clock

    @property
    def pace(self) -> float:
        """Seconds between readings that the detectors' parameters were made for."""
        return PACE

    def look(self) -> Look:
        """Read all sources once, now, and judge what is known then."""
        now = self._clock.now()
        return self.judged(self._observer.observe(self.mapped.topology, now))

    def judged(self, window: Window) -> Look:
        """The judgement of a window."""
        detection = detect_all(window, self.parameters)
        return Look(window, detection, diagnose(window, detection.findings, self.catalogue))

    def close(self) -> None:
        """Give back connections and threads."""
        self._observer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def from_metrics(
    places: tuple[MetricsPlace, ...],
    absent: tuple[NoPlace, ...],
    registry: Registry,
    parameters: Parameters,
    catalogue: Catalogue,
    clock: Clock,
    *,
    horizon: float = HORIZON,
) -> Feed:
    """A feed that scrapes the places itself. `absent` are asked again at each look, for they may be engines."""
    mapped = from_places(places, absent)
    engines = [place for place in places if not place.is_door]
    specs = registry.of_job(Job.ENGINE)
    names = [engine.name for engine in mapped.topology.engines]
    sights = {name: sight_of(place.samples, specs) for name, place in zip(names, engines, strict=False)}
    source = ScrapeSource(
        clock, registry, mapped.door_url, limits=ScrapeLimits(timeout=PACE * 0.9), metrics_urls=mapped.metrics_urls
    )
    history = History(mapped.topology, horizon, int(horizon / PACE) + 2)
    return Feed(mapped, sights, parameters, catalogue, PACE, PACE, history, Observer((source,), history, PACE * 0.95), clock)


class _Shifted:
    """This machine's clock, set to that of the store, which stamps the samples."""

    def __init__(self, clock: Clock, ahead: float) -> None:
        self._clock = clock
        self._ahead = ahead

    def now(self) -> float:
        return self._clock.now() + self._ahead

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def sleep(self, seconds: float) -> None:
        self._clock.sleep(seconds)


def from_store(
    url: str,
    since: float,
    registry: Registry,
    parameters: Parameters,
    catalogue: Catalogue,
    clock: Clock,
    match: Mapping[str, str],
    token: SecretStr | None = None,
) -> tuple[Feed, Look]:
    """A feed over the Prometheus at `url`, and the look at its last `since` seconds.

    The last minutes are read as often as they were sampled, a longer span before them in longer steps: short faults show
    in the one, what has come slowly or stands for long in the other. Raises PromqlError when it cannot be asked,
    ValueError (the rest of a sentence about it) when it knows no engine.
    """
    told = tell(url, since, registry, clock, match, token)
    late = tell(url, HORIZON, registry, clock, match, token) if told.step > told.cadence + 1.0 and since > HORIZON else told
    mapped = from_labels(told.labels())
    history = _history(late, mapped, max(since, HORIZON) if late is told else HORIZON)
    source: Source = PrometheusSource(
        _Shifted(clock, late.now - clock.now()), registry, url, match=match, bearer_token=token, timeout=10.0
    )
    cadence = max(late.cadence, late.step)
    feed = Feed(
        mapped,
        _sights(told, mapped, registry),
        for_cadence(parameters, cadence),
        catalogue,
        max(PACE, late.step),
        cadence,
        history,
        Observer((source,), history, 10.0),
        _Shifted(clock, late.now - clock.now()),
    )
    moments = late.ticks[:: -max(1, round(BETWEEN_LOOKS / late.step))]
    moments = tuple(at for at in moments if at >= late.now - STANDS_FOR)
    windows = _replayed(late, mapped, history, url, registry)
    look = _standing([feed.judged(window) for window in windows if window.now in moments])
    if late is told:
        return feed, look
    *_, window = _replayed(told, mapped, _history(told, mapped, since), url, registry)
    found = detect_all(window, for_cadence(parameters, told.step)).findings
    slowly = Look(window, look.detection, diagnose(window, found, catalogue))
    return feed, replace(look, diagnoses=_joined(look, slowly), before=window)


def _history(told: Told, mapped: Mapped, horizon: float) -> History:
    return History(mapped.topology, horizon, len(told.ticks) + int(HORIZON / told.step) + 2)


def _standing(looks: Sequence[Look]) -> Look:
    """The last look, and what earlier ones showed on entities of which it shows nothing: a cause that comes and goes stands.

    As the warden has it, of whose incidents one is over when its cause has stayed away. Once in all these looks is chance.
    """
    last, entities = looks[-1], Counter(entity for look in looks for entity in {one.entity for one in look.diagnoses})
    for look in looks[-2::-1]:
        often = tuple(one for one in look.diagnoses if entities[one.entity] > 1)
        last = replace(last, diagnoses=_joined(last, replace(look, diagnoses=often)))
    return last


def _joined(first: Look, then: Look) -> tuple[Diagnosis, ...]:
    """The diagnoses of `first`, and those of `then` on other entities."""
    told = {one.entity for one in first.diagnoses}
    return ranked((*first.diagnoses, *(one for one in then.diagnoses if one.entity not in told)))


def _replayed(told: Told, mapped: Mapped, history: History, url: str, registry: Registry) -> Iterator[Window]:
    hands = FakeClock(told.ticks[0])
    source = PrometheusSource(hands, registry, url)
    begun = False  # the span may reach further back than the store: that part was not seen
    try:
        for at, reading in zip(told.ticks, told.readings(source, hands, mapped.topology), strict=True):
            begun = begun or any(name.startswith("engine.") for name in reading.values) or at == told.ticks[-1]
            if begun:
                yield history.window(at, mapped.topology, (reading,))
    finally:
        source.close()


def _sights(told: Told, mapped: Mapped, registry: Registry) -> dict[str, Sight]:
    """What each engine's series carried at any time of the span."""
    finder = EngineFinder(mapped.topology)
    by_row: dict[int, Samples] = {}
    for labels, points in (*told.scalars, *told.histograms):
        row = finder.row(labels)
        if row is not None and points:
            by_row.setdefault(row, {}).setdefault(labels["__name__"], []).append((labels, points[-1][1]))
    specs = {**registry.of_job(Job.ENGINE), **registry.of_job(Job.SCRAPE)}
    return {engine.name: sight_of(by_row.get(row, {}), specs) for row, engine in enumerate(mapped.topology.engines)}


def undecided(look: Look, parameters: Parameters, *, has_door: bool) -> tuple[Entity, ...]:
    """Engines that claim work and have not stepped in all the time watched, which is still too short for a verdict.

    Without a front door the hold is longer than a short watch; going on a little settles it.
    """
    window = look.window
    if has_door or window.rows == 0 or look.seconds >= needed_for_a_hang(parameters):
        return ()
    moved = (window.increments("engine.steps") > 0).any(axis=1)
    known = (~np.isnan(window.values("engine.steps"))).sum(axis=1) >= 2  # noqa: PLR2004 - one sample shows no standstill
    fresh = parameters.progress.fresh
    claims = np.nan_to_num(window.latest("engine.running", fresh)) + np.nan_to_num(window.latest("engine.waiting", fresh))
    return tuple(window.topology.engines[row] for row in np.flatnonzero(known & ~moved & (claims > 0)))


def needed_for_a_hang(parameters: Parameters) -> float:
    """Seconds of watching after which a hang shows without a front door."""
    return parameters.progress.hold_gauges + 2 * PACE
