"""Direct scrape: each engine's /metrics and the front door's, read at once, without a Prometheus.

Engines are asked side by side over kept connections. A target that fails costs its own row only; how it failed is said
in `Reading.failures`, under the engine's name or `door`.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import aiohttp
import numpy as np

from serving.clock import Clock
from serving.fleet.entity import Entity, EntityKind
from serving.fleet.topology import Topology
from serving.telemetry.experts import ExpertLoads
from serving.telemetry.exposition import ExpositionParser, Samples
from serving.telemetry.loop_thread import LoopThread
from serving.telemetry.reading import FailureKind, Reading, TargetFailure
from serving.telemetry.registry import Job, Registry
from serving.telemetry.scrape_target import Answer, Target, fetch
from serving.telemetry.selection import columns, select
from serving.telemetry.window import Event

DOOR = "door"
EXTRA_FAILED, EXTRA_RECOVERED = "extra_metrics.failed", "extra_metrics.recovered"
REPLICA = "replica"  # the label by which the front door names an engine

_MARGIN = 0.9  # of the deadline is given to the targets; the rest is for sorting what they said
_NO_URLS: Mapping[str, str] = {}
_NO_MORE_URLS: Mapping[str, Sequence[str]] = {}
_NOWHERE = TargetFailure(FailureKind.REFUSED, "it has no address at the moment: its pod is gone, or not placed yet")
_GRACE = 1.05  # targets that overrun their time by this much are cut off from outside


@dataclass(frozen=True, slots=True)
class ScrapeLimits:
    """What one scrape may cost. `timeout` is seconds per target (never past the reading's deadline)."""

    timeout: float = 5.0
    concurrency: int = 128
    largest: int = 20_000_000


class ScrapeSource:
    """Reads every engine's /metrics, and the front door's where `door_url` (base URL) is given.

    `metrics_urls` are whole URLs by engine name, for engines whose metrics are not at /metrics below their base URL.
    `extra_urls`, by engine name too, have more of its series: the counters of tokens per expert that its workers show on
    ports of their own. One that fails costs these series only, and is told by an event when it begins to fail.
    """

    def __init__(
        self,
        clock: Clock,
        registry: Registry,
        door_url: str | None = None,
        *,
        name: str = "scrape",
        limits: ScrapeLimits = ScrapeLimits(),
        metrics_urls: Mapping[str, str] = _NO_URLS,
        extra_urls: Mapping[str, Sequence[str]] = _NO_MORE_URLS,
    ) -> None:
        self._clock = clock
        self._entity = Entity(EntityKind.TELEMETRY, name)
        self._engine_specs = {**registry.of_job(Job.ENGINE), **registry.of_job(Job.EXPERTS)}
        self._door_specs = registry.of_job(Job.DOOR)
        self._engine_parser = ExpositionParser(registry.wanted(Job.ENGINE, Job.EXPERTS))
        self._extra_parser = ExpositionParser(registry.wanted(Job.EXPERTS))
        self._door_parser = ExpositionParser(registry.wanted(Job.DOOR))
        self._door_url = door_url.rstrip("/") if door_url else None
        self._limits = limits
        self._metrics_urls = metrics_urls
        self._extra_urls = extra_urls
        self._extra_failing: dict[str, FailureKind] = {}
        self._experts = ExpertLoads()
        self._session: aiohttp.ClientSession | None = None
        self._thread = LoopThread(f"{name}-loop")

    @property
    def entity(self) -> Entity:
        return self._entity

    def read(self, topology: Topology, now: float, deadline: float) -> Reading:
        if self._thread.closed:
            return self._blind(topology, now, "this source was closed")
        try:
            answers = self._thread.run(self._scrape(topology, deadline * _MARGIN), deadline)
        except TimeoutError:
            return self._blind(topology, now, f"the scrape of {len(topology.engines)} engines did not end in {deadline:g} s")
        return self._reading(topology, answers)

    def close(self) -> None:
        self._thread.close(self._close_session())

    async def _close_session(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def _scrape(self, topology: Topology, seconds: float) -> dict[str, Answer]:
        """One answer for each target, by engine name and `door`, all within `seconds`."""
        session = self._open_session()
        places = asyncio.Semaphore(self._limits.concurrency)
        loop = asyncio.get_running_loop()
        ends = loop.time() + seconds

        async def ask(target: Target) -> Answer:
            if not target.url:
                return Answer({}, self._clock.now(), 0.0, _NOWHERE)
            async with places:
                left = ends - loop.time()
                if left <= 0:
                    what = f"{target.url} was not asked in time: only {self._limits.concurrency} targets are asked at once"
                    return Answer({}, self._clock.now(), seconds, TargetFailure(FailureKind.OTHER, what))
                return await fetch(session, target, self._clock, min(self._limits.timeout, left))

        tasks = {name: asyncio.create_task(ask(target)) for name, target in self._targets(topology).items()}
        if tasks:
            await asyncio.wait(tasks.values(), timeout=seconds * _GRACE)
        return {name: _answer_of(task, self._clock, seconds) for name, task in tasks.items()}

    def _targets(self, topology: Topology) -> dict[str, Target]:
        largest = self._limits.largest
        bases = {engine.name: topology.facts(engine).url for engine in topology.engines}
        urls = {name: f"{base}/metrics" if base else "" for name, base in bases.items()} | {
            name: url for name, url in self._metrics_urls.items() if name in topology.row_of
        }
        targets = {name: Target(url, self._engine_parser, largest) for name, url in urls.items()}
        for engine in topology.engines:
            for url in self._extra_urls.get(engine.name, ()):
                targets[_extra(engine.name, url)] = Target(url, self._extra_parser, largest, may_be_empty=True)
        if self._door_url is not None:
            targets[DOOR] = Target(f"{self._door_url}/metrics", self._door_parser, largest, may_be_empty=True)
        return targets

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=self._limits.concurrency),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"Accept": "text/plain;version=0.0.4", "Accept-Encoding": "identity", "User-Agent": "fleetwarden"},
                timeout=aiohttp.ClientTimeout(total=None),  # each request brings its own
            )
        return self._session

    def _reading(self, topology: Topology, answers: Mapping[str, Answer]) -> Reading:
        rows = len(topology.engines)
        engines = [answers[engine.name] for engine in topology.engines]
        samples = {row: self._whole(engine.name, answers) for row, engine in enumerate(topology.engines)}
        chosen = {row: select(said, self._engine_specs) for row, said in samples.items()}
        values, histograms = columns(chosen, rows, self._engine_specs)
        sampled_at = np.array([answer.at for answer in engines])
        values.update(self._experts.columns(samples, [engine.name for engine in topology.engines], sampled_at))
        values["scrape.up"] = np.array([0.0 if answer.failure else 1.0 for answer in engines])
        values["scrape.seconds"] = np.array([answer.seconds for answer in engines])
        sampled_at_of = {}
        door = answers.get(DOOR) if self._door_url is not None else None
        if door is not None and door.failure is None:
            by_row = _by_replica(door.samples, topology)
            said = {row: select(samples, self._door_specs) for row, samples in by_row.items()}
            door_values, door_histograms = columns(said, rows, self._door_specs)
            taken = np.full(rows, door.at)
            sampled_at_of = dict.fromkeys([*door_values, *door_histograms], taken)
            values.update(door_values)
            histograms.update(door_histograms)
        return Reading(
            source=self._entity,
            at=self._clock.now(),
            sampled_at=sampled_at,
            values=values,
            histograms=histograms,
            sampled_at_of=sampled_at_of,
            events=tuple(self._changed_extras(topology, answers)),
            failures={
                name: answer.failure
                for name, answer in answers.items()
                if answer.failure is not None and (name in topology.row_of or name == DOOR)
            },
        )

    def _whole(self, engine: str, answers: Mapping[str, Answer]) -> Samples:
        """What an engine says at all its URLs."""
        samples = answers[engine].samples
        for url in self._extra_urls.get(engine, ()):
            for name, series in answers[_extra(engine, url)].samples.items():
                samples = {**samples, name: [*samples.get(name, ()), *series]}
        return samples

    def _changed_extras(self, topology: Topology, answers: Mapping[str, Answer]) -> Iterator[Event]:
        """One event for each further URL that began to fail, fails otherwise than before, or answers again."""
        for engine in topology.engines:
            for url in self._extra_urls.get(engine.name, ()):
                key = _extra(engine.name, url)
                answer, before = answers[key], self._extra_failing.pop(key, None)
                if answer.failure is not None:
                    self._extra_failing[key] = answer.failure.kind
                    if answer.failure.kind is not before:
                        yield Event(answer.at, EXTRA_FAILED, engine, answer.failure.detail)
                elif before is not None:
                    yield Event(answer.at, EXTRA_RECOVERED, engine, f"{url} answers again")

    def _blind(self, topology: Topology, now: float, error: str) -> Reading:
        return Reading(self._entity, now, np.full(len(topology.engines), np.nan), error=error)


def _extra(engine: str, url: str) -> str:
    """The name of a further target of an engine; no engine's own, for these hold no space."""
    return f"{engine} {url}"


def _answer_of(task: asyncio.Task[Answer], clock: Clock, seconds: float) -> Answer:
    """What a target said, or that it did not come to an answer in time."""
    if task.done() and not task.cancelled() and task.exception() is None:
        return task.result()
    task.cancel()
    raised = task.exception() if task.done() and not task.cancelled() else None
    if raised is not None:
        failure = TargetFailure(FailureKind.OTHER, f"the scrape itself failed: {type(raised).__name__}: {raised}")
    else:
        failure = TargetFailure(FailureKind.TIMEOUT, f"no whole answer within the {seconds:.1f} s that one reading may take")
    return Answer({}, clock.now(), seconds, failure)


def _by_replica(samples: Samples, topology: Topology) -> dict[int, Samples]:
    """The front door's samples, by the row of the engine that each is about."""
    by_row: dict[int, Samples] = {}
    for name, series in samples.items():
        for labels, value in series:
            row = topology.row_of_replica.get(labels.get(REPLICA, ""))
            if row is not None:
                by_row.setdefault(row, {}).setdefault(name, []).append((labels, value))
    return by_row
