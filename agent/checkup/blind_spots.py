"""What a look at a fleet could not see: no front door, signals that are absent, too short a past, no knowledge of hardware.

Each blind spot names the detectors that it makes blind or less sure, so that silence is not taken for health.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from agent.checkup.feed import Feed, Look, needed_for_a_hang
from agent.checkup.sight import hindered
from agent.report.wording import duration
from detectors.catalogue import DETECTORS
from detectors.parameters import Parameters
from serving.fleet.entity import Entity
from serving.telemetry.registry import Job, Registry
from serving.telemetry.window import Window


class Unseen(StrEnum):
    """The kinds of blind spot."""

    DOOR = "door"
    SIGNALS = "signals"
    PAST = "past"
    PEERS = "peers"
    IDLE = "idle"
    PACE = "pace"


@dataclass(frozen=True, slots=True)
class BlindSpot:
    """Something that could not be seen. `engines` is empty where it concerns all."""

    kind: Unseen
    says: str
    todo: str = ""
    engines: tuple[str, ...] = ()
    signals: tuple[str, ...] = ()
    blind: tuple[str, ...] = ()
    weakened: tuple[str, ...] = ()


def blind_spots(look: Look, feed: Feed, registry: Registry) -> tuple[BlindSpot, ...]:
    """Everything that could not be seen, the most important first."""
    return (
        *_door(feed),
        *_signals(look, registry),
        *_past(look, feed),
        *_idle(look, feed),
        *_peers(look, feed),
        *_pace(feed),
    )


def _door(feed: Feed) -> Iterator[BlindSpot]:
    if feed.mapped.has_door:
        return
    lacking = [one for one in hindered(_own_signals()) if any(signal.startswith("door.") for signal in one.missing)]
    yield BlindSpot(
        Unseen.DOOR,
        "no front door: in flight unknown. How many requests wait for each engine, which of them fail and which clients "
        f"give up is not seen; a hang shows only by the engine's own gauges, after "
        f"{needed_for_a_hang(feed.parameters):.0f} s",
        "name the front door's /metrics too, where there is one",
        signals=tuple(sorted({signal for one in lacking for signal in one.missing if signal.startswith("door.")})),
        blind=tuple(one.detector.name for one in lacking if one.blind),
        weakened=tuple(one.detector.name for one in lacking if not one.blind),
    )


def _own_signals() -> frozenset[str]:
    """Every signal that some detector uses and that is not the front door's."""
    used = frozenset().union(*(detector.needs | detector.helped_by for detector in DETECTORS))
    return frozenset(signal for signal in used if not signal.startswith("door."))


def present_signals(window: Window, row: int) -> frozenset[str]:
    """The signals of which an engine gave any sample in the window."""
    scalars = {name for name, matrix in window.signals.items() if not np.isnan(matrix.values[row]).all()}
    histograms = {name for name, matrix in window.histograms.items() if not np.isnan(matrix.counts[row, :, -1]).all()}
    return frozenset(scalars | histograms)


def _signals(look: Look, registry: Registry) -> Iterator[BlindSpot]:
    """Absent signals that some detector uses, engines that lack the same ones together."""
    door = frozenset(registry.of_job(Job.DOOR))
    alike: dict[tuple[tuple[str, tuple[str, ...], bool], ...], list[str]] = {}
    window = look.window
    for row, engine in enumerate(window.topology.engines):
        present = present_signals(window, row)
        if present - {"scrape.up", "scrape.seconds"}:
            lacking = tuple((one.detector.name, one.missing, one.blind) for one in hindered(present | door))
            alike.setdefault(lacking, []).append(engine.name)
    for lacking, engines in alike.items():
        missing = sorted({signal for _, signals, _ in lacking for signal in signals})
        if not missing:
            continue
        blind = tuple(detector for detector, _, is_blind in lacking if is_blind)
        weakened = tuple(detector for detector, _, is_blind in lacking if not is_blind)
        named = tuple(engines) if len(alike) > 1 else ()
        says = f"absent: {', '.join(f'{signal} ({_exposed(signal, registry)})' for signal in missing)}"
        todo = "start vLLM without --disable-log-stats, or use a version that exposes them" if blind else ""
        yield BlindSpot(Unseen.SIGNALS, says, todo, named, tuple(missing), blind, weakened)


def _exposed(signal: str, registry: Registry) -> str:
    spec = registry.signals.get(signal)
    return signal if spec is None else spec.names[0]


# How much past each detector needs before it can speak, by its parameters, and what it then compares with.
_NEEDED: Mapping[str, Callable[[Parameters], float]] = {
    "latency": lambda p: p.latency.over + p.latency.least_blocks * p.latency.block,
    "pauses": lambda p: p.pauses.over + p.pauses.least_blocks * p.pauses.block,
    "peers": lambda p: max(p.peers.blocks_small_group + p.peers.least_blocks, 3 + p.peers.least_blocks) * p.peers.block,
    "prefill": lambda p: (1 + p.prefill.least_blocks) * p.prefill.over,
    "kv": lambda p: p.kv.over,
    "load": lambda p: max((p.load.recent_blocks + p.load.least_blocks) * p.load.block, p.load.queue_over),
    "experts": lambda p: (p.experts.hold_blocks + p.experts.least_blocks) * p.experts.block,
    "clients": lambda p: p.clients.over,
    "queues": lambda p: max(p.queues.hold, 2 * p.queues.deferred_over),
    "outputs": lambda p: (1 + p.outputs.least_blocks) * p.outputs.over,
    "leaks": lambda p: max(p.leaks.kv_busy_over, p.leaks.least_blocks * p.leaks.block),
    "starts": lambda p: p.starts.hold_memory,
    "rollouts": lambda p: p.rollouts.over + p.rollouts.warm_up,
    "gateways": lambda p: p.gateways.starved_over,
    "series": lambda p: max(p.series.hold, 2 * p.series.over),
    "blindness": lambda p: p.blindness.hold,
    "gpu_faults": lambda p: p.gpu_faults.proven,
    "gpu_speed": lambda p: max(p.gpu_speed.engine_over, p.gpu_speed.memory_over),
    "nodes": lambda p: max(p.nodes.network_over, p.nodes.hold_short),
    "fabric": lambda p: p.fabric.over,
}


def past_needed(parameters: Parameters, *, has_door: bool) -> dict[str, float]:
    """Seconds of watching that each detector needs before it can find everything it can find, by its name."""
    hang = parameters.progress.hold * 2 if has_door else needed_for_a_hang(parameters)
    return {"progress": hang, "reachability": parameters.reachability.hold_silent} | {
        name: needed(parameters) for name, needed in _NEEDED.items()
    }


def _past(look: Look, feed: Feed) -> Iterator[BlindSpot]:
    needed = past_needed(feed.parameters, has_door=feed.mapped.has_door)
    short = {name: seconds for name, seconds in needed.items() if seconds > look.seconds + feed.interval}
    if not short:
        return
    listed = ", ".join(f"{name} {duration(seconds)}" for name, seconds in sorted(short.items(), key=lambda item: item[1]))
    yield BlindSpot(
        Unseen.PAST,
        f"too little history: {duration(look.seconds)} seen. To compare with the past and to be sure, "
        f"these want more: {listed}",
        f"watch for {duration(max(short.values()) + feed.interval)}, by --for or --since, or go on with --watch",
        weakened=tuple(short),
    )


def _idle(look: Look, feed: Feed) -> Iterator[BlindSpot]:
    """Engines of which nothing seems to be asked: whether they would answer is not known."""
    idle = tuple(engine.name for engine in idle_engines(look, feed))
    if not idle:
        return
    if feed.mapped.has_door:
        says = "idle: whether it would answer, and how fast, cannot be seen without requests"
    else:
        says = (
            "no step and no request counted lately: idle, or stuck before it counts its requests; nothing seen tells which"
        )
    named = idle if len(idle) < look.window.rows else ()
    yield BlindSpot(Unseen.IDLE, says, "look again while there is traffic, or send it a request", named)


def idle_engines(look: Look, feed: Feed) -> tuple[Entity, ...]:
    """Engines that are read, claim no work and have made no step for a while."""
    window, fresh = look.window, feed.parameters.progress.fresh
    lately = max(feed.parameters.progress.hold_gauges, 3 * feed.cadence)
    quiet = window.increase("engine.steps", min(lately, look.seconds + 1.0)) == 0
    claims = np.nan_to_num(window.latest("engine.running", fresh)) + np.nan_to_num(window.latest("engine.waiting", fresh))
    awaited = np.nan_to_num(window.latest("door.in_flight", fresh))
    found = quiet & (window.age("engine.steps") <= fresh) & (claims == 0) & (awaited == 0)
    return tuple(window.topology.engines[row] for row in np.flatnonzero(found))


def _peers(look: Look, feed: Feed) -> Iterator[BlindSpot]:
    """Groups too small to be compared, and groups that may be unequal."""
    topology = look.window.topology
    sizes = np.bincount(topology.peer_group) if len(topology.engines) else np.array([], dtype=np.intp)
    least = feed.parameters.peers.least_peers + 1
    small = [
        engine.name for engine, group in zip(topology.engines, topology.peer_group, strict=True) if sizes[group] < least
    ]
    if small:
        alone = [engine.name for engine in topology.engines if not topology.peers(engine)]
        what = "no peers" if len(alone) == len(small) else f"fewer than {least - 1} peers"
        says = f"{what} to compare with: slowness and late tokens show only against an engine's own past, or when gross"
        named = tuple(small) if len(small) < len(topology.engines) else ()
        yield BlindSpot(Unseen.PEERS, says, "", named, weakened=("latency", "peers", "pauses"))
    if "hardware" not in feed.mapped.clues and int(sizes.max(initial=0)) > 1:
        says = "hardware unknown: engines of one model are taken for equals, and a slower GPU would look like a slow engine"
        yield BlindSpot(Unseen.PEERS, says, "a label such as gpu_type on the targets would tell", weakened=("peers",))


def _pace(feed: Feed) -> Iterator[BlindSpot]:
    cadence = feed.cadence
    if cadence > 2 * feed.pace:
        says = f"a sample every {cadence:.0f} s: what lasts less is not seen, and every verdict takes that much longer"
        yield BlindSpot(
            Unseen.PACE,
            says,
            "for shorter faults name the engines' own /metrics",
            weakened=("progress", "pauses", "kv", "load"),
        )
