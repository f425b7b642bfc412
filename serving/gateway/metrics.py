"""What the door says of itself on `/metrics`: plain counts kept by the request path, made into series when asked.

Everything with the label `replica` counts tries, as seen from the door's side of that engine: a request that is retried
counts once on each engine. The `door:user_*` series count requests as the client saw them.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

# vLLM's time-to-first-token bounds between 10 ms and 160 s, doubled in number: one bucket is then a factor of about 1.4.
BOUNDS = (
    *(0.01, 0.015, 0.02, 0.03, 0.04, 0.06, 0.08, 0.1, 0.15, 0.2, 0.25, 0.35, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.5, 5.0, 7.5),
    *(10.0, 15.0, 20.0, 30.0, 40.0, 60.0, 80.0, 120.0, 160.0, 300.0, 600.0),
)

# Shown as 0 from the start: a result that has not happened is zero, not missing. One or two statuses stand for their class.
RESULTS = ("ok", "timeout", "connection", "client_closed", "http_400", "http_500", "http_503")


@dataclass(slots=True)
class Histogram:
    """Counts by upper bound (the last one is infinity) and the sum of what was observed, in seconds."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    total: float = 0.0

    def observe(self, seconds: float) -> None:
        """Count one observation."""
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """Cumulative counts by `le`, as the exposition wants them."""
        names = [*(str(bound) for bound in BOUNDS), "+Inf"]
        return list(zip(names, map(float, accumulate(self.counts)), strict=True))


@dataclass(slots=True)
class EngineTally:
    """The door's counts for one engine."""

    name: str
    model: str
    in_flight: int = 0
    started: int = 0
    retries: int = 0
    finished: Counter[str] = field(default_factory=lambda: Counter(dict.fromkeys(RESULTS, 0)))
    first_byte: Histogram = field(default_factory=Histogram)
    whole: Histogram = field(default_factory=Histogram)


@dataclass(slots=True)
class UserTally:
    """The door's counts for one model, as its users saw it."""

    model: str
    finished: Counter[str] = field(default_factory=lambda: Counter(dict.fromkeys(RESULTS, 0)))
    first_byte: Histogram = field(default_factory=Histogram)


class EngineView(NamedTuple):
    """One engine at the moment of the scrape."""

    tally: EngineTally
    drained: bool
    ejected: bool
    weight: float


class DoorCollector(Collector):
    """Makes the series when asked. `views` and `users` give the counts of that moment."""

    def __init__(self) -> None:
        self.views: list[EngineView] = []
        self.users: list[UserTally] = []

    def collect(self) -> Iterator[Metric]:
        yield from self._gauges()
        yield from self._counters()
        yield from self._histograms()

    def _gauges(self) -> Iterator[Metric]:
        gauges: tuple[tuple[str, str, Callable[[EngineView], float]], ...] = (
            ("door:inflight_requests", "Requests sent to this engine and not finished", lambda v: v.tally.in_flight),
            ("door:drained", "1 while the door sends this engine nothing new by order", lambda v: v.drained),
            ("door:ejected", "1 while the door leaves this engine out because its answers failed", lambda v: v.ejected),
            ("door:weight", "The engine's share relative to the others", lambda v: v.weight),
        )
        for name, text, read in gauges:
            gauge = GaugeMetricFamily(name, text, labels=("replica", "model"))
            for view in self.views:
                gauge.add_metric((view.tally.name, view.tally.model), float(read(view)))
            yield gauge

    def _counters(self) -> Iterator[Metric]:
        started = CounterMetricFamily("door:requests_started", "Tries sent to this engine", labels=("replica", "model"))
        retries = CounterMetricFamily(
            "door:retries", "Tries of this engine that failed and were made again on another", labels=("replica", "model")
        )
        finished = CounterMetricFamily(
            "door:requests_finished", "Tries by how they ended", labels=("replica", "model", "result")
        )
        for tally in (view.tally for view in self.views):
            started.add_metric((tally.name, tally.model), tally.started)
            retries.add_metric((tally.name, tally.model), tally.retries)
            for result, count in tally.finished.items():
                finished.add_metric((tally.name, tally.model, result), count)
        users = CounterMetricFamily(
            "door:user_requests", "Requests by how they ended for the user", labels=("model", "result")
        )
        for user in self.users:
            for result, count in user.finished.items():
                users.add_metric((user.model, result), count)
        yield from (started, retries, finished, users)

    def _histograms(self) -> Iterator[Metric]:
        engine, user = ("replica", "model"), ("model",)
        yield _histogram(
            "door:time_to_first_byte_seconds",
            "From sending a streamed request to this engine to the first byte of its answer",
            engine,
            (((v.tally.name, v.tally.model), v.tally.first_byte) for v in self.views),
        )
        yield _histogram(
            "door:request_seconds",
            "From sending a request to this engine to the end of its whole answer",
            engine,
            (((v.tally.name, v.tally.model), v.tally.whole) for v in self.views),
        )
        yield _histogram(
            "door:user_time_to_first_byte_seconds",
            "From the arrival of a streamed request to the first byte of its answer, retries included",
            user,
            (((u.model,), u.first_byte) for u in self.users),
        )


def _histogram(
    name: str, text: str, labels: tuple[str, ...], rows: Iterable[tuple[tuple[str, ...], Histogram]]
) -> HistogramMetricFamily:
    family = HistogramMetricFamily(name, text, labels=labels)
    for values, histogram in rows:
        family.add_metric(values, buckets=histogram.buckets(), sum_value=histogram.total)
    return family


class DoorMetrics:
    """The registry of one door: its own series and its process's."""

    def __init__(self) -> None:
        self.collector = DoorCollector()
        self._registry = CollectorRegistry()
        self._registry.register(self.collector)
        ProcessCollector(registry=self._registry)

    def exposition(self, views: list[EngineView], users: list[UserTally]) -> bytes:
        """The answer to `GET /metrics`."""
        self.collector.views, self.collector.users = views, users
        return generate_latest(self._registry)
