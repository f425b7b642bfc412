"""A range of a Prometheus written down: its series with the times at which they were really sampled."""

from collections.abc import Callable, Mapping

from agent.checkup.past import Told
from agent.replay.past import PrometheusRange
from serving.fleet.topology import Topology
from serving.telemetry.prometheus_targets import EngineFinder, TargetKey
from serving.telemetry.recorder import SeriesLog
from serving.telemetry.recording_identity import identity_of
from serving.telemetry.registry import Job, Registry

Stamps = Mapping[TargetKey, Mapping[float, float]]


def record_range(asked: PrometheusRange, registry: Registry, log: SeriesLog, done: Callable[[int], None]) -> None:
    """Put all that the range tells of the engines and the front door into `log`. `done` is told how many ticks are through.

    Raises PromqlError.
    """
    identities = {engine.name: identity_of(asked.topology, engine) for engine in asked.topology.engines}
    finder, door_names = EngineFinder(asked.topology), registry.wanted(Job.DOOR)
    for told in asked.chunks():
        stamps = _stamps(told)
        for labels, points in (*told.scalars, *told.histograms):
            row = finder.row_of_replica(labels) if labels.get("__name__") in door_names else finder.row(labels)
            if row is None:
                continue
            named = {**labels, **_without_address(identities[_name(asked.topology, row)], labels)}
            taken = stamps.get(TargetKey.of(labels))
            for tick, value in points:
                at = tick if taken is None else taken.get(tick)
                if at is not None:  # where the target's time is not told its sample was on the point of going stale
                    log.add(named, at, value)
        done(len(told.ticks))


def _name(topology: Topology, row: int) -> str:
    return topology.engines[row].name


def _without_address(identity: Mapping[str, str], labels: Mapping[str, str]) -> dict[str, str]:
    """The labels to add; the target's own job and address stay, which tell the engine's scrape from the front door's."""
    return {name: value for name, value in identity.items() if name not in {"job", "instance"} or name not in labels}


def _stamps(told: Told) -> Stamps:
    """When each target was sampled, by the tick at which it was asked."""
    found: dict[TargetKey, dict[float, float]] = {}
    for labels, points in told.stamps:
        by_tick = found.setdefault(TargetKey.of(labels), {})
        for tick, taken in points:
            by_tick[tick] = max(taken, by_tick.get(tick, taken))
    return found
