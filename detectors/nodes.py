"""Nodes: whether one is ready and takes work, and whether its clock, disk and network are well.

A node that people have cordoned and take down is under maintenance, and one that has just rebooted comes back: both
explain what its engines show, and neither is a fault. A black hole is ready and refuses GPU pods, or has fewer GPUs to
give than it holds (NVIDIA/gpu-operator#1065).
"""

from collections.abc import Iterator

import numpy as np

from detectors.finding import Evidence, Finding, Symptom
from detectors.hardware import error_rate, node_name, node_rows
from detectors.hardware_parameters import NodesParameters
from detectors.rollouts import renewed
from detectors.statistics import Bools, Floats, condition, rising, trailing_run
from detectors.xid import XidAction, action_of, parse_xid
from serving.fleet.entity import Entity, EntityKind
from serving.telemetry.window import Table, Window

NEEDS: frozenset[str] = frozenset()
HELPED_BY = frozenset({"scrape.up"})

_LIGHT = frozenset({XidAction.IGNORE, XidAction.FOLLOW_OTHER})


def detect(window: Window, parameters: NodesParameters) -> tuple[Finding, ...]:
    """Every symptom of a node."""
    table = window.tables.get(EntityKind.NODE)
    if table is None or not table.rows or not len(table.times):
        return tuple(_rebooted(window, parameters))
    return (
        *_rebooted(window, parameters),
        *_not_ready(window, table, parameters),
        *_black_hole(window, table, parameters),
        *_clock(window, table, parameters),
        *_disk(table, parameters),
        *_network(table, parameters),
        *_engines_lost(window, table, parameters),
    )


def _held(table: Table, signal: str, true: Bools) -> tuple[Floats, Floats]:
    """Since when, and for how long, a condition on a signal has held at its latest samples. (nodes,) both."""
    values = table.values(signal)
    run = trailing_run(condition(values, true), np.where(np.isnan(values), np.nan, table.times))
    return run.since, run.held


def _finding(
    symptom: Symptom, node: Entity, since: float, severity: float, signal: str, says: str, value: float, expected: float
) -> Finding:
    evidence = (Evidence(signal, says, value, expected),)
    return Finding(symptom, node, since, float(np.clip(severity, 0.0, 1.0)), evidence)


def _rebooted(window: Window, parameters: NodesParameters) -> Iterator[Finding]:
    latest = {
        event.entity: event.at
        for event in window.events
        if event.kind == "node.rebooted" and window.now - event.at <= parameters.aftermath
    }
    for node, at in latest.items():
        says = f"it was rebooted {window.now - at:.0f} s ago"
        yield _finding(Symptom.NODE_RETURNING, node, at, 0.3, "node.ready", says, window.now - at, 0.0)


def _not_ready(window: Window, table: Table, parameters: NodesParameters) -> Iterator[Finding]:
    since, held = _held(table, "node.ready", table.values("node.ready") == 0)
    fresh = table.age("node.ready") <= parameters.fresh
    cordoned = _cordoned_before(table, since)
    for row in np.flatnonzero(fresh & (held >= parameters.hold_ready)):
        node, span = table.entities[row], float(window.now - since[row])
        if cordoned[row]:
            says = f"it was cordoned before it went down {span:.0f} s ago: somebody works on it"
            yield _finding(Symptom.NODE_RETURNING, node, float(since[row]), 0.3, "node.unschedulable", says, 1.0, 0.0)
            continue
        says = f"it has not been ready for {span:.0f} s{_condition_said(window, node)}"
        yield _finding(Symptom.NODE_NOT_READY, node, float(since[row]), 0.9, "node.ready", says, 0.0, 1.0)


def _condition_said(window: Window, node: Entity) -> str:
    said = [event.text for event in window.events if event.kind == "node.condition" and event.entity == node]
    return f" ({said[-1]})" if said else ""


def _cordoned_before(table: Table, since: Floats) -> Bools:
    """Whether a node was unschedulable at its last reading before `since`."""
    marks = table.values("node.unschedulable")
    before = np.where(table.times[None, :] < since[:, None], marks, np.nan)
    known = ~np.isnan(before)
    newest = np.where(known.any(axis=1), known.shape[1] - 1 - known[:, ::-1].argmax(axis=1), -1)
    return np.asarray((newest >= 0) & (before[np.arange(len(before)), newest] >= 1))


def _black_hole(window: Window, table: Table, parameters: NodesParameters) -> Iterator[Finding]:
    ready = table.latest("node.ready", parameters.fresh) == 1
    rejected = np.nan_to_num(table.increase("node.pods_rejected", parameters.rejected_over))
    short = table.values("node.gpus_allocatable") < table.values("node.gpus_capacity")
    since, held = _held(table, "node.gpus_allocatable", short)
    free, whole = (
        table.latest("node.gpus_allocatable", parameters.fresh),
        table.latest("node.gpus_capacity", parameters.fresh),
    )
    told = _with_xids(window, parameters)
    for row in np.flatnonzero(ready & ((rejected >= parameters.rejected_least) | (held >= parameters.hold_short))):
        node = table.entities[row]
        if rejected[row] >= parameters.rejected_least:
            says = f"it says that it is ready, and refused {rejected[row]:.0f} GPU pods in {parameters.rejected_over:.0f} s"
            begun = window.now - parameters.rejected_over
            yield _finding(
                Symptom.NODE_REJECTS_PODS, node, begun, 0.8, "node.pods_rejected", says, float(rejected[row]), 0.0
            )
        elif node not in told:
            says = f"{free[row]:.0f} of its {whole[row]:.0f} GPUs can be given out, for {held[row]:.0f} s"
            began = float(since[row])
            yield _finding(
                Symptom.NODE_GPUS_SHORT, node, began, 0.6, "node.gpus_allocatable", says, float(free[row]), float(whole[row])
            )


def _with_xids(window: Window, parameters: NodesParameters) -> frozenset[Entity]:
    """The nodes of which a GPU lately gave an XID that matters: then that GPU is the matter, not the node."""
    lately = (e for e in window.events if e.kind == "xid" and window.now - e.at <= parameters.xid_over)
    said = ((event, parse_xid(event.text)) for event in lately)
    return frozenset(
        node_name(window.topology, event.entity) for event, xid in said if xid is not None and action_of(xid) not in _LIGHT
    )


def _clock(window: Window, table: Table, parameters: NodesParameters) -> Iterator[Finding]:
    offset = np.abs(table.values("node.clock_offset"))
    since, held = _held(table, "node.clock_offset", offset > parameters.offset)
    now = np.abs(table.latest("node.clock_offset", parameters.fresh))
    earlier = np.where(table.times[None, :] <= window.now - parameters.hold_clock, offset, np.nan)
    before = _newest(earlier)
    stays = np.isnan(before) | (now >= parameters.shrinks * before)
    for row in np.flatnonzero((held >= parameters.hold_clock) & stays):
        says = f"its clock is {now[row]:.3f} s off and does not come nearer"
        severity = float(rising(np.asarray(now[row]), parameters.offset, 1.0)) + 0.3
        yield _finding(
            Symptom.NODE_CLOCK_OFF,
            table.entities[row],
            float(since[row]),
            severity,
            "node.clock_offset",
            says,
            float(now[row]),
            0.0,
        )


def _newest(values: Floats) -> Floats:
    known = ~np.isnan(values)
    newest = known.shape[1] - 1 - known[:, ::-1].argmax(axis=1)
    return np.where(known.any(axis=1), values[np.arange(len(values)), newest], np.nan)


def _disk(table: Table, parameters: NodesParameters) -> Iterator[Finding]:
    since, held = _held(table, "node.disk_readonly", table.values("node.disk_readonly") >= 1)
    for row in np.flatnonzero(held >= parameters.hold_disk):
        says = f"its disk has been read-only for {held[row]:.0f} s"
        yield _finding(
            Symptom.NODE_DISK_READONLY, table.entities[row], float(since[row]), 0.8, "node.disk_readonly", says, 1.0, 0.0
        )
    since, held = _held(table, "node.disk_free", table.values("node.disk_free") < parameters.disk_free)
    free = table.latest("node.disk_free", parameters.fresh)
    for row in np.flatnonzero(held >= parameters.hold_disk):
        says = f"{free[row]:.1%} of its disk are free"
        yield _finding(
            Symptom.NODE_DISK_FULL,
            table.entities[row],
            float(since[row]),
            0.7,
            "node.disk_free",
            says,
            float(free[row]),
            parameters.disk_free,
        )


def _network(table: Table, parameters: NodesParameters) -> Iterator[Finding]:
    rate = error_rate(table, parameters.network_over, parameters.least_packets)
    lately = error_rate(table, parameters.network_over / 3, parameters.least_packets / 3)
    for row in np.flatnonzero((rate > parameters.errors) & ~(lately <= parameters.errors)):
        says = f"{rate[row]:.1%} of its packets in {parameters.network_over:.0f} s had errors"
        severity = float(rising(np.asarray(rate[row]), parameters.errors, 0.1)) + 0.2
        since = table.now - parameters.network_over
        yield _finding(
            Symptom.NODE_NETWORK_ERRORS,
            table.entities[row],
            since,
            severity,
            "node.network_errors",
            says,
            float(rate[row]),
            0.0,
        )


def _engines_lost(window: Window, table: Table, parameters: NodesParameters) -> Iterator[Finding]:
    """All engines of a node, at least two, gone within a moment, while most other nodes' are there.

    An engine that goes to come back with a new revision was taken down by a rollout, not by its node.
    """
    if not window.rows or not len(window.times):
        return
    up = window.values("scrape.up")
    run = trailing_run(condition(up, up == 0), np.where(np.isnan(up), np.nan, window.times))
    rows = node_rows(window.topology, table)
    placed = rows >= 0
    down = placed & (run.held >= parameters.hold_lost) & ~renewed(window, run.since)
    count = np.bincount(rows[placed], minlength=table.rows)
    gone = np.bincount(rows[down], minlength=table.rows)
    lost = (count >= parameters.lost_least) & (gone == count)
    if not lost.any() or lost.sum() > parameters.lost_share * np.count_nonzero(count):
        return
    for row in np.flatnonzero(lost):
        begun = run.since[down & (rows == row)]
        if np.ptp(begun) <= parameters.together:
            says = f"all {count[row]} engines of the node went within {np.ptp(begun):.0f} s"
            yield _finding(
                Symptom.NODE_ENGINES_LOST,
                table.entities[row],
                float(begun.min()),
                0.7,
                "scrape.up",
                says,
                float(count[row]),
                0.0,
            )
