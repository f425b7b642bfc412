"""GPUs, nodes and switches as columns: clocks, heat, power, memory, errors, and what they do to the engines on them.

Signals are those of a DCGM exporter and of a node exporter, by the canonical names of this repository. Only GPUs that an
engine uses have a column.
"""

import numpy as np
from numpy.typing import NDArray

from serving.telemetry.reading import TableReading
from serving.telemetry.window import Event
from serving.virtual.plan import FleetPlan

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

# Those of one current data-centre GPU (H100 SXM: data sheet for memory, power and boost clock).
CLOCK_MHZ, MEMORY_CLOCK_MHZ = 1_980.0, 2_619.0
IDLE_W, FULL_W, LIMIT_W = 75.0, 620.0, 700.0
MEMORY_BYTES, OWN_BYTES = 80 * 2.0**30, 68 * 2.0**30
AMBIENT_C, RISE_C = 32.0, 36.0
AT_WORK = 0.02  # of the time: below that a GPU counts as idle
HEATING = 0.08  # of the way to its temperature a GPU goes in a second

IDLE, POWER_CAP, HW_SLOWDOWN, SW_THERMAL, HW_THERMAL, POWER_BRAKE = 0x1, 0x4, 0x8, 0x20, 0x40, 0x80
PACKETS_A_SECOND = 20_000.0


class Hardware:
    """All GPUs, nodes and switches. The public columns are levers."""

    def __init__(self, plan: FleetPlan, rng: np.random.Generator) -> None:
        gpus, nodes = len(plan.gpus), plan.nodes
        self._plan = plan
        self._rng = rng
        self.events: list[Event] = []
        self.clock = np.ones(gpus)  # share of the full clock that it may run at
        self.throttle = np.zeros(gpus, dtype=np.int64)  # why
        self.intruder = np.zeros(gpus)  # bytes that a process which is not the engine's holds
        self.orphaned = np.zeros(gpus)  # bytes that dead processes of the engine hold
        self.lost = np.zeros(gpus, dtype=np.bool_)
        self.xid = np.zeros(gpus)
        self.ecc_rate = np.zeros(gpus)
        self.nvlink_rate = np.zeros(gpus)
        self.remap_failure = np.zeros(gpus)
        self.remap_pending = np.zeros(gpus)
        self.ready = np.ones(nodes, dtype=np.bool_)
        self.unschedulable = np.zeros(nodes, dtype=np.bool_)
        self.rejects = np.zeros(nodes, dtype=np.bool_)
        self.clock_offset = rng.normal(0.0, 0.002, nodes)
        self.disk_readonly = np.zeros(nodes)
        self.disk_free = rng.uniform(0.4, 0.8, nodes)
        self.network_errors = np.zeros(nodes)  # share of packets
        self.host_slow = np.ones(nodes)
        self.switch_errors = np.zeros(int(plan.node_switch[-1]) + 1)
        self.exporter_seconds = np.full(nodes, 0.05)
        self.allocatable = np.bincount(plan.gpu_node, minlength=nodes).astype(np.float64)
        self.capacity = self.allocatable.copy()
        self.wedged = np.zeros(gpus, dtype=np.bool_)  # answers no more until it is reset
        # How often each was made as new, so that one can tell whether a fault's thing is still the same.
        self.gpu_generation, self.node_generation = np.zeros(gpus), np.zeros(nodes)
        self.evictions = np.zeros(gpus)
        self._temperature = np.full(gpus, AMBIENT_C + RISE_C / 2)
        self._busy = np.zeros(gpus)
        self._own = np.full(gpus, OWN_BYTES)
        self._counters = {
            name: np.zeros(gpus)
            for name in ("gpu.ecc_uncorrected", "gpu.nvlink_errors", "gpu.pcie_replays", "gpu.nvlink_bytes")
        }
        self._node_counters = {
            name: np.zeros(nodes) for name in ("node.network_errors", "node.network_packets", "node.pods_rejected")
        }
        self._efficiency = np.exp(rng.normal(0.0, 0.02, gpus))  # no two are quite alike

    def say_xid(self, at: float, gpu: int, code: int, text: str) -> None:
        """An XID in the kernel's log; the gauge keeps the last one."""
        self.xid[gpu] = code
        self.events.append(Event(at, "xid", self._plan.gpus[gpu], f"{code}: {text}"))

    def say_condition(self, at: float, node: int, text: str) -> None:
        """A node condition that changed."""
        self.events.append(Event(at, "node.condition", self._plan.node_entities[node], text))

    def error_share(self) -> Floats:
        """The share of packets that go wrong, by node: its own and its switch's."""
        return np.maximum(self.network_errors, self.switch_errors[self._plan.node_switch])

    def slowdown(self) -> Floats:
        """How many times as long a step of each engine takes by what is under it: its slowest rank's."""
        network = 1.0 + 12.0 * self.error_share()  # a collective that sends again waits for its slowest packet
        gpu = self._efficiency / np.maximum(self.clock, 0.05) * (self.host_slow * network)[self._plan.gpu_node]
        starts = np.searchsorted(self._plan.gpu_engine, np.arange(len(self._plan.engine_names)))
        return np.asarray(np.maximum.reduceat(gpu, starts))

    def runs(self) -> Bools:
        """Which engines' hardware is all there: node ready and no GPU lost."""
        gone = self.lost | ~self.ready[self._plan.gpu_node]
        return np.asarray(np.bincount(self._plan.gpu_engine, weights=gone, minlength=len(self._plan.engine_names)) == 0)

    def tick(self, dt: float, busy: Floats, loaded: Bools) -> None:
        """Go on by `dt`; `busy` is the share of the tick that each engine computed, `loaded` whose process holds memory."""
        plan = self._plan
        self._busy = busy[plan.gpu_engine] * ~self.lost
        self._own = np.where(loaded[plan.gpu_engine], OWN_BYTES, 0.0)
        aim = AMBIENT_C + RISE_C * self._busy + np.where(self.throttle & (SW_THERMAL | HW_THERMAL) > 0, 18.0, 0.0)
        self._temperature += (aim - self._temperature) * min(1.0, HEATING * dt)
        self._counters["gpu.ecc_uncorrected"] += self._rng.poisson(self.ecc_rate * dt)
        self._counters["gpu.nvlink_errors"] += self._rng.poisson(self.nvlink_rate * dt)
        self._counters["gpu.nvlink_bytes"] += self._busy * 4e9 * dt
        packets = PACKETS_A_SECOND * dt
        self._node_counters["node.network_packets"] += packets
        self._node_counters["node.network_errors"] += self._rng.poisson((self.error_share() + 1e-6) * packets)
        self._node_counters["node.pods_rejected"] += self.rejects * (self._rng.uniform(size=len(self.rejects)) < 0.1 * dt)

    def gpu_table(self, at: float) -> TableReading:
        """What a DCGM exporter says now; nothing of nodes that are gone."""
        share = self.clock * (1.0 + self._rng.normal(0.0, 0.004, len(self.clock)))
        busy = np.clip(self._busy + self._rng.normal(0.0, 0.01, len(share)), 0.0, 1.0)
        drawn = IDLE_W + (FULL_W - IDLE_W) * busy * np.minimum(share, 1.0) ** 1.5
        values = {
            "gpu.sm_clock": np.where(busy > AT_WORK, CLOCK_MHZ * share, 1_200.0 * np.minimum(share, 1.0)),
            "gpu.mem_clock": np.full(len(share), MEMORY_CLOCK_MHZ),
            "gpu.temperature": self._temperature + self._rng.normal(0.0, 0.4, len(share)),
            "gpu.power": drawn,
            "gpu.power_limit": np.full(len(share), LIMIT_W),
            "gpu.util": (busy > AT_WORK).astype(np.float64),
            "gpu.memory_activity": 0.6 * busy,
            "gpu.tensor_activity": 0.35 * busy,
            "gpu.throttle_reasons": np.where((self.throttle == 0) & (busy <= AT_WORK), IDLE, self.throttle).astype(
                np.float64
            ),
            "gpu.memory_used": np.minimum(self._own + self.intruder + self.orphaned + 0.6 * 2.0**30, MEMORY_BYTES),
            "gpu.memory_total": np.full(len(share), MEMORY_BYTES),
            "gpu.memory_own": self._own.copy(),
            "gpu.xid": self.xid.copy(),
            "gpu.remap_failure": self.remap_failure.copy(),
            "gpu.remap_pending": self.remap_pending.copy(),
            **{name: counter.copy() for name, counter in self._counters.items()},
        }
        seen = self.ready[self._plan.gpu_node] & ~self.lost
        taken = np.where(seen, at, np.nan)
        return TableReading(self._plan.gpus, taken, {name: np.where(seen, value, np.nan) for name, value in values.items()})

    def node_table(self, at: float) -> TableReading:
        """What node exporter, kubelet and API server say now."""
        values = {
            "node.ready": self.ready.astype(np.float64),
            "node.unschedulable": self.unschedulable.astype(np.float64),
            "node.gpus_allocatable": self.allocatable.copy(),
            "node.gpus_capacity": self.capacity.copy(),
            "node.clock_offset": np.where(self.ready, self.clock_offset, np.nan),
            "node.disk_readonly": np.where(self.ready, self.disk_readonly, np.nan),
            "node.disk_free": np.where(self.ready, self.disk_free, np.nan),
            "node.memory_used": np.full(len(self.ready), 0.4),
            "node.exporter_seconds": np.where(self.ready, self.exporter_seconds, np.nan),
            **{name: np.where(self.ready, counter, np.nan) for name, counter in self._node_counters.items()},
        }
        return TableReading(self._plan.node_entities, np.full(len(self.ready), at), values)

    def repaired(self, node: int) -> None:
        """A node that was rebooted, or replaced: everything on it is as new."""
        on = self._plan.gpu_node == node
        self.node_generation[node] += 1
        self.gpu_generation[on] += 1
        for lever, well in (
            (self.clock, 1.0),
            (self.throttle, 0),
            (self.intruder, 0.0),
            (self.orphaned, 0.0),
            (self.lost, False),
            (self.wedged, False),
            (self.ecc_rate, 0.0),
            (self.nvlink_rate, 0.0),
            (self.remap_failure, 0.0),
            (self.remap_pending, 0.0),
            (self.xid, 0.0),
        ):
            lever[on] = well
        self.ready[node], self.rejects[node] = True, False
        self.clock_offset[node], self.disk_readonly[node] = 0.0, 0.0
        self.network_errors[node], self.host_slow[node] = 0.0, 1.0
        self.disk_free[node] = max(0.5, self.disk_free[node])
        self.exporter_seconds[node] = 0.05
        self.allocatable[node] = self.capacity[node]

    def reset(self, gpu: int) -> None:
        """A GPU that was reset: what software can clear is cleared."""
        for lever in (self.orphaned, self.ecc_rate, self.nvlink_rate, self.remap_pending, self.xid):
            lever[gpu] = 0.0
        self.wedged[gpu] = False
        if not self.lost[gpu] and self.clock[gpu] >= 1.0:  # neither heat nor a broken bus goes away by a reset
            self.gpu_generation[gpu] += 1

    def evict(self, gpu: int) -> float:
        """End what does not belong on the GPU; returns the bytes that this frees."""
        held = float(self.intruder[gpu])
        self.intruder[gpu] = 0.0
        self.evictions[gpu] += 1
        return held
