"""GPU faults: what the driver says of a GPU (XIDs) and what its memory counts (uncorrected errors, row remaps).

An XID is an event with a time; the gauge of the last code is sticky and repeats itself for days, so it is never taken for
one (NVIDIA/dcgm-exporter#500). Codes follow each other: the first that asks for anything leads, a later one counts only
where it asks for more (NVIDIA/open-gpu-kernel-modules#1045: 62, 45, 119, 154). The same soft code on GPUs of many nodes in
one moment is somebody's clean-up and no fault (NVIDIA/NVSentinel#1748: thousands of 45 over a rack).

What was said before the GPU was reset, its node rebooted, or its engine started anew and worked, is over.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from detectors.finding import Evidence, Finding, Symptom
from detectors.hardware import node_name
from detectors.hardware_parameters import GpuFaultsParameters
from detectors.xid import Xid, XidAction, action_of, meaning_of, parse_xid
from serving.fleet.entity import Entity, EntityKind
from serving.fleet.places import engines_on
from serving.telemetry.window import Table, Window

NEEDS: frozenset[str] = frozenset()
HELPED_BY = frozenset({"engine.process_start", "engine.steps"})

_SYMPTOMS: Mapping[XidAction, Symptom] = {
    XidAction.CHECK: Symptom.XID_CHECK,
    XidAction.RESTART_APP: Symptom.XID_RESTART_APP,
    XidAction.RESET_GPU: Symptom.XID_RESET_GPU,
    XidAction.REBOOT_NODE: Symptom.XID_REBOOT_NODE,
}
_WEIGHT = {action: weight for weight, action in enumerate(_SYMPTOMS)}  # a person's business weighs least
_SEVERITY = {XidAction.CHECK: 0.5, XidAction.RESTART_APP: 0.85, XidAction.RESET_GPU: 0.9, XidAction.REBOOT_NODE: 1.0}
_ASKS = {
    XidAction.CHECK: "a person to look",
    XidAction.RESTART_APP: "a restart of the application",
    XidAction.RESET_GPU: "a reset of the GPU",
    XidAction.REBOOT_NODE: "a reboot of the node",
}
_SOFT = frozenset({XidAction.CHECK, XidAction.RESTART_APP})
_NVLINK5 = range(144, 151)
_REPAIRED = frozenset({"gpu.reset", "node.rebooted"})


@dataclass(frozen=True, slots=True)
class _Said:
    at: float
    xid: Xid
    action: XidAction


def detect(window: Window, parameters: GpuFaultsParameters) -> tuple[Finding, ...]:
    """XID_RESTART_APP, XID_RESET_GPU, XID_REBOOT_NODE, XID_CHECK, ECC_UNCORRECTED, REMAP_FAILED and REMAP_PENDING."""
    over = _Over(window, parameters)
    told = tuple(_told(window, parameters, over))
    table = window.tables.get(EntityKind.GPU)
    if table is None or not table.rows or not len(table.times):
        return told
    named = frozenset(finding.entity for finding in told)
    return (*told, *_memory(window, table, parameters, over, named))


class _Over:
    """Until when what was said of a GPU is settled: by a reset, a reboot, or an engine that began anew and works."""

    def __init__(self, window: Window, parameters: GpuFaultsParameters) -> None:
        self._window, self._parameters = window, parameters
        self._repaired: dict[Entity, float] = {}
        for event in window.events:
            if event.kind in _REPAIRED:
                self._repaired[event.entity] = max(event.at, self._repaired.get(event.entity, -np.inf))
        self._table = window.tables.get(EntityKind.GPU)
        self._starts = window.latest("engine.process_start", parameters.fresh)
        self._steps = window.values("engine.steps", parameters.proven)

    def by_repair(self, gpu: Entity) -> float:
        """When the GPU was last reset or its node rebooted; -inf where neither is known."""
        node = node_name(self._window.topology, gpu)
        return max(self._repaired.get(gpu, -np.inf), self._repaired.get(node, -np.inf))

    def by_gauge(self, gpu: Entity, at: float) -> bool:
        """Whether the gauge of the last code has held one since `at` and fell back to none, which only a reset brings."""
        table = self._table
        if table is None or gpu not in table.row_of:
            return False
        codes = table.values("gpu.xid")[table.row_of[gpu]][table.times >= at]
        codes = codes[~np.isnan(codes)]
        return len(codes) > 0 and bool(codes[-1] == 0) and bool((codes > 0).any())

    def by_engines(self, gpu: Entity, *, proven: bool) -> float:
        """When the last of its engines began anew, `proven` by working since for a while; -inf where one has not."""
        begun = [self._begun(engine, proven=proven) for engine in engines_on(self._window.topology, gpu)]
        return min(begun, default=-np.inf)

    def _begun(self, engine: Entity, *, proven: bool) -> float:
        row = self._window.topology.row_of[engine.name]
        start = float(self._starts[row])
        if np.isnan(start):
            return -np.inf
        steps = self._steps[row][~np.isnan(self._steps[row])]
        works = len(steps) > 1 and bool(steps[-1] > steps[0]) and self._window.now - start >= self._parameters.proven
        return start if works or not proven else -np.inf


def _told(window: Window, parameters: GpuFaultsParameters, over: _Over) -> Iterable[Finding]:
    by_gpu: dict[Entity, list[_Said]] = {}
    for event in window.events:
        if event.kind != "xid" or event.entity.kind is not EntityKind.GPU or event.at < window.now - parameters.over:
            continue
        xid = parse_xid(event.text)
        if xid is not None:
            by_gpu.setdefault(event.entity, []).append(_Said(event.at, xid, action_of(xid)))
    herds = _herds(window, by_gpu, parameters)
    for gpu, all_said in by_gpu.items():
        said = [one for one in all_said if one.action in _SYMPTOMS and not _in_herd(one, herds, parameters)]
        found = _finding(gpu, [one for one in said if not _settled(gpu, one, over)])
        if found is not None:
            yield found


def _settled(gpu: Entity, one: _Said, over: _Over) -> bool:
    """Whether it is over: an application's fault with the application, a deeper one once an engine has proven it."""
    soft = one.action is XidAction.RESTART_APP
    settled = max(over.by_repair(gpu), over.by_engines(gpu, proven=not soft))
    return one.at <= settled or over.by_gauge(gpu, one.at)


def _herds(
    window: Window, by_gpu: Mapping[Entity, list[_Said]], parameters: GpuFaultsParameters
) -> Mapping[int, list[float]]:
    """By soft code, the moments at which GPUs of many nodes said it together."""
    moments: dict[int, list[tuple[float, Entity]]] = {}
    for gpu, said in by_gpu.items():
        node = node_name(window.topology, gpu)
        for one in said:
            if one.action in _SOFT or one.xid.code in _NVLINK5:
                moments.setdefault(one.xid.code, []).append((one.at, node))
    herds: dict[int, list[float]] = {}
    for code, told in moments.items():
        told.sort(key=lambda pair: pair[0])
        groups: list[list[tuple[float, Entity]]] = [[told[0]]]
        for before, here in pairwise(told):
            if here[0] - before[0] > parameters.herd_within:
                groups.append([])
            groups[-1].append(here)
        wide = [group for group in groups if len({node for _, node in group}) >= parameters.herd_nodes]
        herds[code] = [at for group in wide for at, _ in group]
    return herds


def _in_herd(one: _Said, herds: Mapping[int, list[float]], parameters: GpuFaultsParameters) -> bool:
    return any(abs(one.at - at) <= parameters.herd_within for at in herds.get(one.xid.code, ()))


def _finding(gpu: Entity, said: list[_Said]) -> Finding | None:
    """One finding of all that was said of a GPU: the first code leads, unless a later one asks for more."""
    if not said:
        return None
    said.sort(key=lambda one: one.at)
    first = said[0]
    action = max((one.action for one in said), key=_WEIGHT.__getitem__)
    asked = next(one for one in said if one.action is action)
    after = f", then {', '.join(str(one.xid.code) for one in said[1:6])}" if len(said) > 1 else ""
    says = f"XID {first.xid.code}, {meaning_of(first.xid.code)}{after}; NVIDIA's table asks for {_ASKS[action]}"
    evidence = (Evidence("gpu.xid", says, float(asked.xid.code), unit="code"),)
    return Finding(_SYMPTOMS[action], gpu, first.at, _SEVERITY[action], evidence)


def _memory(
    window: Window, table: Table, parameters: GpuFaultsParameters, over: _Over, named: frozenset[Entity]
) -> Iterable[Finding]:
    """What memory counts, on GPUs of which no XID tells already."""
    grew = table.increments("gpu.ecc_uncorrected") > 0
    lately = table.times >= window.now - parameters.ecc_over
    for row in np.flatnonzero((grew & lately).any(axis=1)):
        gpu, at = table.entities[row], float(table.times[np.flatnonzero(grew[row] & lately)[-1]])
        if gpu not in named and at > max(over.by_repair(gpu), over.by_engines(gpu, proven=True)):
            count = float(np.nansum(table.increments("gpu.ecc_uncorrected")[row, lately]))
            says = f"{count:.0f} uncorrected memory errors in the last {parameters.ecc_over:.0f} s"
            yield Finding(Symptom.ECC_UNCORRECTED, gpu, at, 0.85, (Evidence("gpu.ecc_uncorrected", says, count),))
    failed = table.latest("gpu.remap_failure", parameters.fresh_table) >= 1
    pending = table.latest("gpu.remap_pending", parameters.fresh_table) >= 1
    for row in np.flatnonzero(failed):
        yield _flag(window, table, int(row), Symptom.REMAP_FAILED, "gpu.remap_failure", "a memory row could not be remapped")
    for row in np.flatnonzero(pending & ~failed):
        says = "a memory row waits to be remapped, which a reset of the GPU does"
        yield _flag(window, table, int(row), Symptom.REMAP_PENDING, "gpu.remap_pending", says)


def _flag(window: Window, table: Table, row: int, symptom: Symptom, signal: str, says: str) -> Finding:
    values = table.values(signal)[row]
    clear = np.flatnonzero(values == 0)
    first = int(clear[-1]) + 1 if len(clear) else 0
    since = float(table.times[min(first, len(table.times) - 1)])
    severity = 0.9 if symptom is Symptom.REMAP_FAILED else 0.4
    return Finding(symptom, table.entities[row], min(since, window.now), severity, (Evidence(signal, says, 1.0),))
