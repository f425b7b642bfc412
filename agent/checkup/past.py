"""The past of a fleet out of a Prometheus: the three queries of a live reading, asked of each moment of a span.

So every tick is what a live reading at that moment would have been, staleness and sampling times included.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from pydantic import SecretStr

from serving.clock import Clock, FakeClock
from serving.fleet.topology import Topology
from serving.telemetry.prometheus import Answers, PrometheusSource, Queries
from serving.telemetry.promql import Past, PromqlClient, PromqlError, Series
from serving.telemetry.reading import Reading
from serving.telemetry.registry import Registry

MOST_TICKS = 300  # in one window: ten minutes of readings every two seconds, which is what the warden keeps
USUAL_CADENCE = 15.0  # where no engine was sampled lately: what most Prometheus configurations use
_SECONDS = 60.0  # for one query
_LOOKED_AT = 150.0  # seconds of sampling times that tell the cadence
_HEARTBEAT = "vllm:iteration_tokens_total_count"


@dataclass(frozen=True, slots=True, eq=False)
class Told:
    """What a Prometheus told of the span that ends at `now` (its own clock), on ticks `step` seconds apart."""

    now: float
    step: float
    cadence: float
    ticks: tuple[float, ...]
    scalars: Sequence[Past]
    histograms: Sequence[Past]
    stamps: Sequence[Past]

    def labels(self) -> Iterator[Mapping[str, str]]:
        """The label set of every series that was there at any time of the span, name included."""
        return (labels for labels, _ in (*self.scalars, *self.histograms))

    def readings(self, source: PrometheusSource, hands: FakeClock, topology: Topology) -> Iterator[Reading]:
        """The reading of each tick, earliest first. `hands` is the clock that `source` was made with."""
        sliced = [_sliced(part, self.ticks, self.step) for part in (self.scalars, self.histograms, self.stamps)]
        for tick, at in enumerate(self.ticks):
            hands.jump(at - hands.now())
            yield source.reading(topology, Answers(*(part[tick] for part in sliced)))


def store_time(client: PromqlClient, seconds: float = 10.0) -> float:
    """What the store's clock says, in Unix seconds. Raises PromqlError."""
    answer = client.ask("vector(time())", seconds)
    if not answer:
        raise PromqlError(f"{client.shown_url} does not tell its time; is it a Prometheus?")
    return answer[0][1]


def tell(
    url: str, since: float, registry: Registry, clock: Clock, match: Mapping[str, str], token: SecretStr | None = None
) -> Told:
    """Ask the store at `url` about the last `since` seconds. Raises PromqlError."""
    client = PromqlClient(clock, url, token)
    try:
        now = math.floor(store_time(client))
        cadence = cadence_of(client, now, match) or USUAL_CADENCE
        step = float(max(1, math.ceil(max(cadence, since / MOST_TICKS) - 0.2)))
        count = max(2, round(since / step))
        ticks = tuple(now - step * (count - 1 - tick) for tick in range(count))
        queries = Queries.of(registry, match)
        parts = [client.ask_past(query, ticks[0], ticks[-1], step, _SECONDS) for query in queries.in_order]
    finally:
        client.close()
    return Told(float(now), step, cadence, ticks, *parts)


def cadence_of(client: PromqlClient, now: float, match: Mapping[str, str]) -> float | None:
    """How many seconds usually lie between two samples of an engine; None where none was sampled. Raises PromqlError."""
    narrowed = ",".join(f'{label}="{_escaped(value)}"' for label, value in match.items())
    query = f"timestamp({_HEARTBEAT}{{{narrowed}}})"
    gaps: list[float] = []
    for span, step in ((_LOOKED_AT, 1.0), (10 * _LOOKED_AT, 10.0)):
        for _, points in client.ask_past(query, now - span, now, step, _SECONDS):
            taken = np.unique([value for _, value in points])
            if len(taken) > 2:  # noqa: PLR2004 - two gaps at least, or one late scrape would be the rule
                gaps.append(float(np.median(np.diff(taken))))
        if gaps:
            return float(np.median(gaps))
    return None


def _sliced(series: Sequence[Past], ticks: Sequence[float], step: float) -> list[list[Series]]:
    """The series at each tick."""
    sliced: list[list[Series]] = [[] for _ in ticks]
    for labels, points in series:
        for at, value in points:
            tick = round((at - ticks[0]) / step)
            if 0 <= tick < len(ticks):
                sliced[tick].append((labels, value))
    return sliced


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
