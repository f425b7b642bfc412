"""GPU speed and memory: a GPU that is held back, judged beside the GPUs of its engine's peers, and memory that is nobody's.

A clock that hardware or heat holds down is a physical fact; it counts where the clock is far below that of true peers, or
their engines are measurably faster. A software power cap alone is a setting and no fault (flashinfer-ai/flashinfer#2899).
Use (`gpu.util`) is no work: power and clocks tell.
"""

import numpy as np
from numpy.typing import NDArray

from detectors.finding import Evidence, Finding, Symptom
from detectors.hardware import GpuRows, gpu_rows
from detectors.hardware_parameters import GpuSpeedParameters
from detectors.statistics import Bools, Floats, histogram_steps, others_median, recent_mean, rising, row_mean, row_median
from serving.fleet.entity import EntityKind
from serving.telemetry.window import Table, Window

NEEDS: frozenset[str] = frozenset()
HELPED_BY = frozenset({"engine.inter_token", "engine.steps"})

IDLE, SOFTWARE_CAP = 0x1, 0x4  # NVML's clocks event reasons
HELD_BACK = {0x8: "a hardware slowdown", 0x20: "heat, by software", 0x40: "heat, by hardware", 0x80: "the power brake"}
_BAD = sum(HELD_BACK)


def detect(window: Window, parameters: GpuSpeedParameters) -> tuple[Finding, ...]:
    """GPU_THROTTLED, GPU_CLOCK_LOW, GPU_POWER_LOW and GPU_MEMORY_FOREIGN."""
    table = window.tables.get(EntityKind.GPU)
    if table is None or not table.rows or not len(table.times) or not window.rows:
        return ()
    seen = _Seen(window, table, parameters)
    return (*_held_back(seen), *_foreign(seen))


class _Seen:
    """What a window says of each GPU lately, beside its peers. Arrays are (GPUs,)."""

    def __init__(self, window: Window, table: Table, parameters: GpuSpeedParameters) -> None:
        self.window, self.table, self.parameters = window, table, parameters
        self.rows: GpuRows = gpu_rows(window.topology, table)
        self.groups = self.rows.group + 1  # those that serve none are a group of their own, judged by nobody
        self.ours = self.rows.engine >= 0
        self.clock = self._busy_median("gpu.sm_clock")
        self.power = self._busy_median("gpu.power")
        self.util = row_mean(table.values("gpu.util", parameters.over))
        active = row_mean(table.values("gpu.memory_activity", parameters.over))
        self.work = np.where(np.isnan(active), self.util, active)  # with pauses between steps a GPU draws less and does less
        self.bad, self.bits = self._reasons(_BAD)
        self.capped, _ = self._reasons(SOFTWARE_CAP | IDLE)
        self.slowness = self.rows.of_engine(self._slowness())

    def beside(self, values: Floats) -> Floats:
        """The median of the other GPUs of the peer group; NaN where there is none."""
        others, _ = others_median(np.where(self.ours, values, np.nan), self.groups)
        return np.where(self.ours, others, np.nan)

    def _busy_median(self, signal: str) -> Floats:
        """The median of a signal over the samples with work; an idle GPU rests, which says nothing."""
        values, util = self.table.values(signal, self.parameters.over), self.table.values("gpu.util", self.parameters.over)
        return row_median(np.where(util > self.parameters.busy, values, np.nan))

    def _reasons(self, bits: int) -> tuple[Floats, Floats]:
        """The share of readings with any of `bits` among the reasons, and which were there at the newest that had one."""
        values = self.table.values("gpu.throttle_reasons", self.parameters.over)
        known = ~np.isnan(values)
        masked = np.where(known, values, 0.0).astype(np.int64) & bits
        share = row_mean(np.where(known, masked > 0, np.nan))
        return share, masked.max(axis=1, initial=0).astype(np.float64)

    def _slowness(self) -> Floats:
        """The time per token of each engine lately over the median of its peers; NaN where it cannot be told. (engines,)."""
        parameters, window = self.parameters, self.window
        lately = window.times > window.now - parameters.engine_over
        recent, _ = recent_mean(histogram_steps(window, "engine.inter_token"), lately, parameters.least_tokens)
        others, _ = others_median(recent, window.topology.peer_group)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray(recent / others)


def _held_back(seen: _Seen) -> list[Finding]:
    p = seen.parameters
    clocks, powers = seen.beside(seen.clock), seen.beside(seen.power)
    with np.errstate(invalid="ignore", divide="ignore"):
        clock, power, work = seen.clock / clocks, seen.power / powers, seen.work / seen.beside(seen.work)
    slower = seen.slowness >= p.slower
    throttled = (seen.bad >= p.share) & ((clock <= p.clock_far) | ((clock <= p.clock) & slower))
    low = ~throttled & (clock <= p.clock) & slower & (seen.bad < p.share) & (seen.capped < p.share)
    weak = (power <= p.power) & (work >= p.work) & (seen.slowness >= p.slower_weak) & _steps(seen) & (seen.capped < p.share)
    findings = []
    for row in np.flatnonzero(throttled | low | (weak & ~throttled & ~low)):
        if throttled[row] or low[row]:
            symptom = Symptom.GPU_THROTTLED if throttled[row] else Symptom.GPU_CLOCK_LOW
            why = f", held back by {_named(int(seen.bits[row]))}" if throttled[row] else ", for no reason that it names"
            says = f"its clock is {seen.clock[row]:.0f} MHz at work, its peers' {clocks[row]:.0f} MHz{why}"
            evidence = [Evidence("gpu.sm_clock", says, float(seen.clock[row]), float(clocks[row]), "MHz")]
            severity = float(rising(np.asarray(1.0 - clock[row]), 0.1, 0.5)) + (0.2 if slower[row] else 0.0)
        else:
            says = f"it draws {seen.power[row]:.0f} W as busy as its peers, which draw {powers[row]:.0f} W"
            symptom, severity = Symptom.GPU_POWER_LOW, 0.6
            evidence = [Evidence("gpu.power", says, float(seen.power[row]), float(powers[row]), "W")]
        if slower[row]:
            ratio = float(seen.slowness[row])
            evidence.append(
                Evidence("engine.inter_token", f"its engine takes {ratio:.1f} times its peers' time a token", ratio)
            )
        since = seen.window.now - p.over
        findings.append(Finding(symptom, seen.table.entities[row], since, min(1.0, max(0.5, severity)), tuple(evidence)))
    return findings


def _steps(seen: _Seen) -> Bools:
    """Whether its engine goes on stepping: a hung one draws little power too, and that is not its GPU's doing."""
    return np.asarray(seen.rows.of_engine(seen.window.rate("engine.steps", seen.parameters.over)) > 0)


def _named(bits: int) -> str:
    return " and ".join(name for bit, name in HELD_BACK.items() if bits & bit)


def _engine_away(seen: _Seen, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """Where a GPU's engine did not answer: whose its memory is then is a question of its start (detectors.starts)."""
    up = seen.window.values("scrape.up", seen.parameters.memory_over)
    if up.shape[1] != shape[1]:
        return np.zeros(shape, dtype=np.bool_)
    return np.asarray((up == 0)[np.maximum(seen.rows.engine, 0)] & seen.ours[:, None])


def _foreign(seen: _Seen) -> list[Finding]:
    """Memory in use that is not the engine's, on a GPU of one engine (vllm-project/vllm#13100: a co-tenant)."""
    p, table = seen.parameters, seen.table
    used, own = table.values("gpu.memory_used", p.memory_over), table.values("gpu.memory_own", p.memory_over)
    total = table.latest("gpu.memory_total", p.memory_over)
    foreign = np.where((own > 0) & ~_engine_away(seen, used.shape), used - own, np.nan)
    least = np.fmax(p.foreign_least, np.nan_to_num(p.foreign_share * total))
    known = (~np.isnan(foreign)).sum(axis=1)
    held = (known >= p.least_readings) & (np.where(np.isnan(foreign), np.inf, foreign).min(axis=1, initial=np.inf) >= least)
    findings = []
    for row in np.flatnonzero(held & seen.ours & ~seen.rows.shared):
        mine = foreign[row][~np.isnan(foreign[row])]
        now, left = float(mine[-1]), float(total[row] - used[row][~np.isnan(used[row])][-1])
        rises = ", and rising" if now > mine[0] + p.foreign_least / 4 else ""
        room = "" if np.isnan(left) else f"; {left / 1e9:.1f} GB are free"
        says = f"{now / 1e9:.1f} GB of its memory are held by somebody who is not its engine{rises}{room}"
        evidence = (Evidence("gpu.memory_used", says, now, 0.0, "bytes"),)
        severity = float(rising(np.asarray(now / total[row]), 0.02, 0.2)) if total[row] > 0 else 0.6
        entity, since = table.entities[row], seen.window.now - p.memory_over
        findings.append(Finding(Symptom.GPU_MEMORY_FOREIGN, entity, since, min(1.0, max(0.5, severity)), evidence))
    return findings
