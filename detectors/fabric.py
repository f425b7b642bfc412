"""Fabric: nodes and engines that share a switch, or GPUs that share an NVLink domain, and are unwell together.

One node with errors is that node; most nodes of one switch, and hardly any elsewhere, are the switch. In the same way
most engines behind one switch that are slower than their peers elsewhere.
"""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from detectors import rollouts
from detectors.finding import Evidence, Finding, Symptom
from detectors.hardware import Ints, engine_switches, error_rate, switch_rows
from detectors.hardware_parameters import FabricParameters
from detectors.statistics import Bools, Floats, histogram_steps, others_median, recent_mean, row_median
from serving.fleet.entity import Entity, EntityKind
from serving.telemetry.counters import newest_value
from serving.telemetry.window import Window

NEEDS: frozenset[str] = frozenset()
HELPED_BY = frozenset({"engine.inter_token", "engine.process_start"})


def detect(window: Window, parameters: FabricParameters) -> tuple[Finding, ...]:
    """SWITCH_ERRORS and SWITCH_SLOW."""
    if not window.tables:
        return ()
    return (*_errors(window, parameters), *_link_errors(window, parameters), *_slow(window, parameters))


def _together(ill: Bools, known: Bools, place: Ints, switches: int, parameters: FabricParameters) -> Iterator[int]:
    """The switches most of whose members are ill, while hardly any elsewhere is."""
    inside = known & (place >= 0)
    members = np.bincount(place[inside], minlength=switches)
    sick = np.bincount(place[inside & ill], minlength=switches)
    elsewhere, sick_elsewhere = known.sum() - members, (ill & known).sum() - sick
    shared = (members >= parameters.least) & (sick >= parameters.share * members)
    apart = sick_elsewhere <= parameters.elsewhere * np.maximum(elsewhere, 1)
    yield from np.flatnonzero(shared & apart & (elsewhere > 0)).tolist()


def _finding(symptom: Symptom, switch: Entity, since: float, severity: float, signal: str, says: str, count: int) -> Finding:
    return Finding(symptom, switch, since, severity, (Evidence(signal, says, float(count), 0.0),))


def _errors(window: Window, parameters: FabricParameters) -> Iterator[Finding]:
    table = window.tables.get(EntityKind.NODE)
    if table is None or not table.rows:
        return
    rate = error_rate(table, parameters.over, parameters.least_packets)
    ill, known = rate > parameters.errors, ~np.isnan(rate)
    if not ill.any():
        return
    switches, place = switch_rows(window.topology, table)
    for number in _together(ill, known, place, len(switches), parameters):
        count = int((ill & (place == number)).sum())
        of = int((known & (place == number)).sum())
        says = (
            f"{count} of its {of} nodes have network errors on {np.nanmedian(rate[ill & (place == number)]):.1%} of packets"
        )
        since = window.now - parameters.over
        yield _finding(Symptom.SWITCH_ERRORS, switches[number], since, 0.9, "node.network_errors", says, count)


def _link_errors(window: Window, parameters: FabricParameters) -> Iterator[Finding]:
    table = window.tables.get(EntityKind.GPU)
    if table is None or not table.rows:
        return
    grown = table.increase("gpu.nvlink_errors", parameters.over)
    ill, known = grown >= parameters.link_errors, ~np.isnan(grown)
    if not ill.any():
        return
    switches, place = switch_rows(window.topology, table)
    for number in _together(ill, known, place, len(switches), parameters):
        count = int((ill & (place == number)).sum())
        says = f"{count} of the GPUs in its NVLink domain have link errors, hardly any elsewhere"
        since = window.now - parameters.over
        yield _finding(Symptom.SWITCH_ERRORS, switches[number], since, 0.9, "gpu.nvlink_errors", says, count)


def _slow(window: Window, parameters: FabricParameters) -> Iterator[Finding]:
    """Engines behind one switch that take longer for a token than the usual engine of their peer group and revision.

    Those that have just been started anew say nothing: a rollout and its way back go from switch to switch too. Nor is an
    engine held against one of another revision, whose code may be slower by itself.
    """
    if not window.rows or not len(window.times):
        return
    switches, place = engine_switches(window.topology)
    if len(switches) < 2:  # noqa: PLR2004 - without another switch there is no elsewhere
        return
    lately = window.times > window.now - parameters.over
    recent, _ = recent_mean(histogram_steps(window, "engine.inter_token"), lately, parameters.least_tokens)
    begun = window.latest("engine.process_start", np.inf)
    recent = np.where(begun > window.now - parameters.over - parameters.young, np.nan, recent)
    usual = _usual_elsewhere(recent, _alike(window), place)
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = recent / usual
    ill, known = ratio >= parameters.slower, ~np.isnan(ratio)
    if not ill.any():
        return
    for number in _together(ill, known, place, len(switches), parameters):
        mine = ill & (place == number)
        says = f"{mine.sum()} of the engines behind it take {np.median(ratio[mine]):.1f} times as long a token as elsewhere"
        since = window.now - parameters.over
        yield _finding(Symptom.SWITCH_SLOW, switches[number], since, 0.7, "engine.inter_token", says, int(mine.sum()))


def _alike(window: Window) -> Ints:
    """A number for each engine, the same for peers of the same revision; where none is told, for all peers. (engines,)."""
    groups = window.topology.peer_group
    if rollouts.REVISION not in window.signals:
        return groups
    revision = np.nan_to_num(newest_value(window.values(rollouts.REVISION)), nan=-1.0)
    _, alike = np.unique(np.stack([groups, revision], axis=1), axis=0, return_inverse=True)
    return np.asarray(alike.ravel(), dtype=groups.dtype)


def _usual_elsewhere(recent: Floats, groups: Ints, place: Ints) -> Floats:
    """For each engine the median of the medians of its peers behind other switches; NaN where there is none. (engines,)."""
    pairs, at = np.unique(np.stack([groups, place], axis=1), axis=0, return_inverse=True)
    order = np.argsort(at, kind="stable")
    edges = np.concatenate(([0], np.cumsum(np.bincount(at.ravel(), minlength=len(pairs)))))
    medians = np.array([row_median(recent[order[b:e]][None, :])[0] for b, e in pairwise(edges)])
    others, _ = others_median(medians, pairs[:, 0])
    return np.asarray(others[at.ravel()])
