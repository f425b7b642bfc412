"""A range of a Prometheus as recorded telemetry, in chunks: each tick is what a live reading would have been."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from pydantic import SecretStr

from agent.checkup.mapping import Mapped, from_labels
from agent.checkup.past import USUAL_CADENCE, Told
from serving.clock import Clock, FakeClock
from serving.fleet.topology import Topology
from serving.telemetry.history import History
from serving.telemetry.prometheus import PrometheusSource, Queries
from serving.telemetry.promql import Past, PromqlClient, PromqlError
from serving.telemetry.registry import Registry
from serving.telemetry.window import Window

CHUNK = 150  # ticks asked for at once: far below the 11,000 points of a series that a Prometheus gives at most
SHORTEST = 2.0  # seconds from one look at the fleet to the next, as the live loop
_LOOKS = 12  # moments of the range at which is asked what series there are
_SECONDS = 60.0  # for one query
_FOR_CADENCE = 300.0  # seconds of sampling times that tell how often engines are scraped
_NO_LABELS: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class Store:
    """Where a Prometheus is and how to ask it. `url` is its base URL; `match` narrows every query by labels."""

    url: str
    match: Mapping[str, str] = field(default_factory=lambda: _NO_LABELS)
    token: SecretStr | None = None


class PrometheusRange:
    """What a store holds of the time from `begin` to `end` (Unix seconds), on ticks `interval` seconds apart.

    Without an `interval` the ticks are as far apart as the engines' samples, and not closer than the live loop's; with
    `every_sample` they are half as far apart, so that hardly a sample falls between two of them. Without a `mapped` fleet
    the map is made from the labels. Raises PromqlError when the store cannot be asked, and when it holds no
    engine's series.
    """

    def __init__(
        self,
        store: Store,
        begin: float,
        end: float,
        registry: Registry,
        clock: Clock,
        *,
        interval: float | None = None,
        mapped: Mapped | None = None,
        every_sample: bool = False,
    ) -> None:
        self.store = store
        self._clock = clock
        self._registry = registry
        self._queries = Queries.of(registry, store.match)
        self._client = PromqlClient(clock, store.url, store.token)
        first, last = math.ceil(begin), math.floor(end)
        if last - first < SHORTEST:
            raise PromqlError(f"{self._client.shown_url}: a range of {end - begin:g} s is too short to be looked at")
        self.mapped = mapped or self._map(first, last)
        self.cadence = self._cadence(first, last)
        usual = max(1.0, self.cadence // 2) if every_sample else max(SHORTEST, float(math.ceil(self.cadence - 0.2)))
        self.interval = interval or usual
        self.times: NDArray[np.float64] = np.arange(first, last + 1e-6, self.interval, dtype=np.float64)

    @property
    def topology(self) -> Topology:
        return self.mapped.topology

    def chunks(self) -> Iterator[Told]:
        """The answers to the queries for the range, some minutes at a time. Raises PromqlError."""
        for start in range(0, len(self.times), CHUNK):
            ticks = tuple(float(tick) for tick in self.times[start : start + CHUNK])
            parts = [self._ask(query, ticks[0], ticks[-1], self.interval) for query in self._queries.in_order]
            yield Told(ticks[-1], self.interval, self.cadence, ticks, *parts)

    def windows(self, horizon: float) -> Iterator[Window]:
        """One Window per tick over the last `horizon` seconds. Raises PromqlError."""
        history = History(self.topology, horizon, max(2, math.ceil(horizon / self.interval) + 2))
        hands = FakeClock(float(self.times[0]))
        source = PrometheusSource(hands, self._registry, self.store.url)
        try:
            for told in self.chunks():
                for at, reading in zip(told.ticks, told.readings(source, hands, self.topology), strict=True):
                    yield history.window(at, self.topology, (reading,))
        finally:
            source.close()

    def close(self) -> None:
        """Give back the connections."""
        self._client.close()

    def _ask(self, query: str, start: float, end: float, step: float) -> Sequence[Past]:
        return self._client.ask_past(query, start, end, step, _SECONDS)

    def _map(self, first: float, last: float) -> Mapped:
        step = max(1.0, float(math.floor((last - first) / _LOOKS)))
        series = self._ask(self._queries.scalars, first, last, step)
        try:
            return from_labels([labels for labels, _ in series])
        except ValueError as nothing:
            raise PromqlError(f"{self._client.shown_url} {nothing}; check --from, --to and --match") from None

    def _cadence(self, first: float, last: float) -> float:
        """How many seconds usually lie between two samples of one target, by its sampling times."""
        begin = max(first, last - _FOR_CADENCE)
        gaps = [
            float(np.median(np.diff(taken)))
            for _, points in self._ask(self._queries.stamps, begin, last, 1.0)
            for taken in [np.unique([value for _, value in points])]
            if len(taken) > 2  # noqa: PLR2004 - two gaps at least, or one late scrape would be the rule
        ]
        return float(np.median(gaps)) if gaps else USUAL_CADENCE
