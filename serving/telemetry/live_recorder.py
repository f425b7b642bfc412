"""Scrape a live fleet into a recording: every engine's /metrics and the front door's, and the engines' spans where wanted.

What is written is the raw series under their own names, so that a later version may read more out of them.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import aiohttp

from serving.clock import Clock
from serving.fleet.entity import Entity
from serving.fleet.topology import Topology
from serving.telemetry.exposition import ExpositionParser
from serving.telemetry.otlp import OtlpSource
from serving.telemetry.reading import RequestSpan
from serving.telemetry.recorder import SeriesLog
from serving.telemetry.recording_identity import DOOR_JOB, identity_of
from serving.telemetry.registry import Job, Registry
from serving.telemetry.scrape_target import Answer, Target, fetch

DOOR = "door"

_LARGEST = 20_000_000
_VERSION_SECONDS = 2.0


@dataclass(slots=True)
class Recorded:
    """What was recorded so far. `troubles` are the newest failures, a sentence by target."""

    log: SeriesLog = field(default_factory=SeriesLog)
    spans: list[RequestSpan] = field(default_factory=list)
    vllm: set[str] = field(default_factory=set)
    troubles: dict[str, str] = field(default_factory=dict)


class LiveRecorder:
    """Scrapes the engines of `topology`, and the front door at `door_url` (base URL) where given."""

    def __init__(
        self,
        topology: Topology,
        registry: Registry,
        clock: Clock,
        *,
        door_url: str | None = None,
        spans: OtlpSource | None = None,
        interval: float = 2.0,
        timeout: float = 1.5,
    ) -> None:
        self._topology = topology
        self._clock = clock
        self._spans = spans
        self._interval = interval
        self._timeout = timeout
        self._identities = {engine.name: identity_of(topology, engine) for engine in topology.engines}
        self._targets = self._all_targets(registry, door_url)
        self.recorded = Recorded()

    async def run(self, seconds: float, stop: asyncio.Event, done: Callable[[float], None] = lambda _: None) -> Recorded:
        """Record for so long, or until `stop` is set. `done` is told at each scrape how many seconds have passed."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
        async with aiohttp.ClientSession(
            cookie_jar=aiohttp.DummyCookieJar(), timeout=aiohttp.ClientTimeout(total=None)
        ) as session:
            await self._versions(session)
            ticks = 0
            while True:
                await self._scrape(session)
                done(min(seconds, loop.time() - begun))
                ticks += 1
                rest = min(begun + ticks * self._interval, begun + seconds) - loop.time()
                if loop.time() - begun >= seconds or await _set_within(stop, max(0.0, rest)):
                    break
        return self.recorded

    def _all_targets(self, registry: Registry, door_url: str | None) -> Mapping[str, Target]:
        parser = ExpositionParser(registry.wanted(Job.ENGINE))
        targets = {
            engine.name: Target(f"{self._topology.facts(engine).url}/metrics", parser, _LARGEST)
            for engine in self._topology.engines
        }
        if door_url is not None:
            door = ExpositionParser(registry.wanted(Job.DOOR))
            targets[DOOR] = Target(f"{door_url.rstrip('/')}/metrics", door, _LARGEST, may_be_empty=True)
        return targets

    async def _scrape(self, session: aiohttp.ClientSession) -> None:
        asked = {name: fetch(session, target, self._clock, self._timeout) for name, target in self._targets.items()}
        for name, answer in zip(asked, await asyncio.gather(*asked.values()), strict=True):
            if answer.failure is not None:
                self.recorded.troubles[name] = answer.failure.detail
                self.recorded.log.failed(name, answer.failure.kind, answer.at)
            if name == DOOR:
                self._take_door(answer)
            else:
                self._take(name, answer)
        if self._spans is not None:
            reading = await asyncio.to_thread(self._spans.read, self._topology, self._clock.now(), self._timeout)
            self.recorded.spans.extend(reading.spans)
            if reading.error:
                self.recorded.troubles[reading.source.name] = reading.error

    def _take(self, name: str, answer: Answer) -> None:
        identity, log = self._identities[name], self.recorded.log
        log.add({"__name__": "up", **identity}, answer.at, 0.0 if answer.failure else 1.0)
        log.add({"__name__": "scrape_duration_seconds", **identity}, answer.at, answer.seconds)
        for series, samples in answer.samples.items():
            for labels, value in samples:
                log.add({**labels, "__name__": series, **identity}, answer.at, value)

    def _take_door(self, answer: Answer) -> None:
        for series, samples in answer.samples.items():
            for labels, value in samples:
                identity = self._identities.get(labels.get("replica", ""))
                if identity is not None:
                    told = {name: identity[name] for name in ("model", "node") if name in identity}
                    self.recorded.log.add({**labels, "__name__": series, **told, "job": DOOR_JOB}, answer.at, value)

    async def _versions(self, session: aiohttp.ClientSession) -> None:
        """Ask every engine which vLLM it is; one that does not say is no trouble."""
        told = await asyncio.gather(*(self._version(session, engine) for engine in self._topology.engines))
        self.recorded.vllm.update(version for version in told if version)

    async def _version(self, session: aiohttp.ClientSession, engine: Entity) -> str:
        url = f"{self._topology.facts(engine).url}/version"
        try:
            async with asyncio.timeout(_VERSION_SECONDS), session.get(url, allow_redirects=False) as response:
                said = await response.json() if response.ok else {}
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError):
            return ""
        return str(said.get("version", ""))[:40] if isinstance(said, dict) else ""


async def _set_within(stop: asyncio.Event, seconds: float) -> bool:
    try:
        await asyncio.wait_for(stop.wait(), seconds)
    except TimeoutError:
        return False
    return True
