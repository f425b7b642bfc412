"""Gateways: a front door that fails or forgets engines which are well.

Three signs, each on the gateway and not on an engine: the door waits for, or fails, requests that most engines, reachable
and idle, do not have; the door never sends anything to an engine that is up while its peers have queues
(ai-dynamo/dynamo#7836); most engines of a model are kept at a small batch with requests waiting and room in their caches,
as a limit outside them does (ai-dynamo/dynamo#9466).
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from detectors.finding import Evidence, Finding, Symptom
from detectors.queues import batches_kept_small
from detectors.service_parameters import GatewaysParameters, QueuesParameters
from detectors.statistics import Bools, Floats, condition, row_mean, sample_times, trailing_run
from serving.fleet.entity import Entity, EntityKind
from serving.fleet.topology import Relation
from serving.telemetry.window import Window

NEEDS: frozenset[str] = frozenset()
HELPED_BY = frozenset(
    {"door.started", "door.in_flight", "door.finished.ok", "door.weight", "engine.running", "engine.waiting", "scrape.up"}
)


def detect(window: Window, parameters: GatewaysParameters, of_queues: QueuesParameters) -> tuple[Finding, ...]:
    """DOOR_FAILING and DOOR_STARVES."""
    if window.rows == 0 or len(window.times) == 0 or not any(name.startswith("door.") for name in window.signals):
        return ()
    up = _up(window, parameters)
    return (
        *_idle_behind(window, parameters, up),
        *_starved(window, parameters, up),
        *_held_small(window, parameters, of_queues),
    )


def _up(window: Window, parameters: GatewaysParameters) -> Bools:
    """Engines that answered every scrape of `starved_over`."""
    up = window.values("scrape.up", parameters.starved_over)
    return np.asarray((row_mean(up) == 1.0) & (window.age("scrape.up") <= parameters.fresh))


def _gateways(window: Window, rows: NDArray[np.intp]) -> dict[Entity, NDArray[np.intp]]:
    """The rows by the gateway that routes to them; `gateway/door` where the map has none."""
    by_gateway: dict[Entity, list[int]] = {}
    for row in rows.tolist():
        engine = window.topology.engines[row]
        doors = [o for o in window.topology.inverse(engine, Relation.ROUTES_TO) if o.kind is EntityKind.GATEWAY]
        for door in doors or [Entity(EntityKind.GATEWAY, "door")]:
            by_gateway.setdefault(door, []).append(row)
    return {door: np.array(mine, dtype=np.intp) for door, mine in by_gateway.items()}


def _idle_behind(window: Window, parameters: GatewaysParameters, up: Bools) -> Iterator[Finding]:
    """Most of the engines that the door deals with are reachable and idle, and their requests hang or fail at the door."""
    in_flight = window.values("door.in_flight")
    piled = condition(in_flight, in_flight >= parameters.in_flight_least)
    hangs = trailing_run(piled, sample_times(window, "door.in_flight")).held >= parameters.idle_for
    failed = _failures(window, parameters.over)
    served = np.nan_to_num(window.increase("door.finished.ok", parameters.over))
    with np.errstate(invalid="ignore", divide="ignore"):
        fails = (failed >= parameters.failing_least) & (failed / (failed + served) >= parameters.failing_share)
    if (up & (hangs | fails)).sum() < parameters.least_engines:
        return
    load = window.values("engine.running") + window.values("engine.waiting")
    idle = trailing_run(condition(load, load == 0), sample_times(window, "engine.running")).held >= parameters.idle_for
    shown = up & idle & (hangs | fails)
    if shown.sum() < parameters.least_engines:
        return
    asked = up & ((np.nan_to_num(window.latest("door.in_flight", parameters.fresh)) > 0) | (failed + served > 0))
    everybody = _gateways(window, np.flatnonzero(asked))
    for door, rows in everybody.items():
        count = int(shown[rows].sum())
        if count < max(parameters.least_engines, parameters.share * len(rows)):
            continue
        waits = float(np.nan_to_num(window.latest("door.in_flight", parameters.fresh)[rows]).sum())
        says = (
            f"{count} of {len(rows)} engines it deals with answer their scrapes and are idle, while {waits:.0f} requests to "
            f"them hang at the door and {failed[rows].sum():.0f} failed in the last {parameters.over:.0f} s"
        )
        evidence = (Evidence("door.in_flight", says, waits, expected=0.0, unit="requests"),)
        yield Finding(Symptom.DOOR_FAILING, door, window.now - parameters.idle_for, 0.85, evidence)


def _failures(window: Window, seconds: float) -> Floats:
    failed = np.zeros(window.rows)
    for result in ("connection", "timeout", "http_5xx"):
        failed += np.nan_to_num(window.increase(f"door.finished.{result}", seconds))
    return failed


def _starved(window: Window, parameters: GatewaysParameters, up: Bools) -> Iterator[Finding]:
    """Engines that are up and in rotation and got nothing, of models whose other engines queue.

    Where nobody queues one engine may be idle for many reasons; several that got their last request at once were forgotten.
    """
    seconds = parameters.starved_over
    if "door.started" not in window.signals or window.now - window.times[0] < seconds:
        return
    sent = window.increase("door.started", seconds)
    out = (window.latest("door.drained", np.inf) >= 1) | (window.latest("door.ejected", np.inf) >= 1)
    nothing = np.isnan(sent) | (sent == 0)
    starved = up & ~out & nothing
    if not starved.any():
        return
    starved &= ~(row_mean(window.values("engine.running", seconds)) > 0)
    if not starved.any():
        return
    waiting = window.values("engine.waiting", seconds)
    queues = row_mean(condition(waiting, waiting > 0)) >= parameters.queue_share
    found = np.zeros(window.rows, dtype=np.bool_)
    weight = window.latest("door.weight", np.inf)
    for rows in window.topology.rows_of_model.values():
        served = rows[~nothing[rows]]
        fair = float(np.nansum(sent[rows])) / len(rows)
        if len(served) and queues[served].any() and fair >= parameters.expected_least:
            found[rows] = starved[rows]
            continue
        with np.errstate(invalid="ignore"):  # where all weights are 0 nothing is due to anybody
            due = fair * weight[rows] / np.mean(weight[rows])
        surely = rows[starved[rows] & ((due >= parameters.expected_weighed) | (fair >= parameters.expected_alone))]
        if _at_once(window, parameters, surely):
            found[surely] = True
    for door, rows in _gateways(window, np.flatnonzero(found)).items():
        names = ", ".join(window.topology.engines[row].name for row in rows[:3])
        more = f" and {len(rows) - 3} more" if len(rows) > 3 else ""  # noqa: PLR2004 - so many are named
        says = f"{names}{more}: up, in rotation and sent nothing for {seconds:.0f} s, while other engines of the model are"
        evidence = (Evidence("door.started", says, float(len(rows)), expected=0.0, unit="engines"),)
        yield Finding(Symptom.DOOR_STARVES, door, window.now - seconds, 0.75, evidence)


def _at_once(window: Window, parameters: GatewaysParameters, rows: NDArray[np.intp]) -> bool:
    """Whether so many of these got their last request within one moment."""
    sent = window.increments("door.started")[rows]
    last = np.where(sent > 0, window.times, -np.inf).max(axis=1, initial=-np.inf)
    last = last[np.isfinite(last)]
    return len(last) >= parameters.least_engines and bool(np.ptp(last) <= parameters.together)


def _held_small(window: Window, parameters: GatewaysParameters, of_queues: QueuesParameters) -> Iterator[Finding]:
    """Most engines of a model at a small batch with a queue: one engine's would be its own."""
    small, ceiling = batches_kept_small(window, of_queues)
    if small.sum() < parameters.least_engines:
        return
    alike = np.zeros(window.rows, dtype=np.bool_)
    for rows in window.topology.rows_of_model.values():
        if small[rows].sum() >= max(parameters.least_engines, parameters.share * len(rows)):
            alike[rows] = small[rows]
    for door, rows in _gateways(window, np.flatnonzero(alike)).items():
        running = row_mean(window.values("engine.running", of_queues.hold))[rows]
        says = (
            f"{len(rows)} engines run {running.mean():.1f} requests at once (up to {ceiling[rows].mean():.0f} before) while "
            "others wait for them and their KV caches have room: something before them lets too few through"
        )
        evidence = (Evidence("engine.running", says, float(running.mean()), float(ceiling[rows].mean()), unit="requests"),)
        yield Finding(Symptom.DOOR_FAILING, door, window.now - of_queues.hold, 0.7, evidence)
