"""GPUs, nodes and switches: what is a symptom, and what only looks like one."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from racks import GB, Racks, gpu, node, switch
from synthetic import NOW

from detectors.finding import Finding, Symptom
from serving.telemetry.window import Event, Window

S = Symptom
Seen = Callable[[Window], dict[str, set[Symptom]]]
HARDWARE = {symptom for symptom in S if symptom.split(".")[0] in {"xid", "ecc", "remap", "gpu", "node", "switch"}}


def hardware(seen: Seen, racks: Racks) -> dict[str, set[Symptom]]:
    found = {name: symptoms & HARDWARE for name, symptoms in seen(racks.window()).items()}
    return {name: symptoms for name, symptoms in found.items() if symptoms}


def test_healthy_racks_show_nothing(seen: Seen) -> None:
    assert hardware(seen, Racks(engines=64, per_node=8)) == {}


def test_without_tables_and_events_nothing_is_said_of_hardware(seen: Seen) -> None:
    racks = Racks()
    racks.nodes["node.ready"][0] = 0.0
    window = replace(racks.window(), tables={})
    assert not any(symptoms & HARDWARE for symptoms in seen(window).values())


@pytest.mark.parametrize(
    ("text", "symptom"),
    [
        ("94: Contained memory error", S.XID_RESTART_APP),
        ("13: Graphics Engine Exception", S.XID_RESTART_APP),
        ("95: Uncontained memory error", S.XID_RESET_GPU),
        ("48: Double Bit ECC Error", S.XID_RESET_GPU),
        ("64: row remapping failure", S.XID_RESET_GPU),
        ("79: GPU has fallen off the bus", S.XID_REBOOT_NODE),
        ("74: NVLink error", S.XID_RESET_GPU),
        ("149: NETIR_LINK_EVT Fatal XC0 i0 Link 00", S.XID_RESET_GPU),
        ("154: GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)", S.XID_REBOOT_NODE),
        ("54: Auxiliary power is not connected", S.XID_CHECK),
        ("9999: something new", S.XID_CHECK),
    ],
)
def test_an_xid_is_taken_by_nvidias_own_table(seen: Seen, text: str, symptom: Symptom) -> None:
    racks = Racks()
    racks.says(3, text)
    assert hardware(seen, racks) == {gpu(3).name: {symptom}}


@pytest.mark.parametrize(
    "text",
    [
        "63: row remapping event",
        "45: Preemptive cleanup",
        "43: GPU stopped processing",
        "92: single bit",
        "145: RLW Nonfatal",
        "?",
    ],
)
def test_codes_that_ask_for_nothing_are_no_symptom(seen: Seen, text: str) -> None:
    racks = Racks()
    racks.says(3, text)
    assert hardware(seen, racks) == {}


@pytest.mark.parametrize("code", ["45: Preemptive cleanup", "145: RLW_REMAP Fatal XC0", "31: MMU fault"])
def test_a_herd_of_one_soft_code_is_an_echo(seen: Seen, code: str) -> None:
    racks = Racks(engines=16)
    for row in range(16):
        racks.says(row, code, ago=30.0 - row * 0.2)
    assert hardware(seen, racks) == {}


def test_in_a_herd_the_one_code_that_differs_is_the_fault(seen: Seen) -> None:
    racks = Racks(engines=16)
    for row in range(16):
        racks.says(row, "45: Preemptive cleanup", ago=28.0)
    racks.says(5, "62: Internal micro-controller halt", ago=30.0)
    assert hardware(seen, racks) == {gpu(5).name: {S.XID_RESET_GPU}}


def test_a_cascade_is_its_first_code(findings: Callable[[Window], tuple[Finding, ...]]) -> None:
    racks = Racks()
    said = ("62: micro-controller halt", "45: cleanup", "119: GSP RPC timeout", "154: changed to 0x1 (GPU Reset Required)")
    for number, text in enumerate(said):
        racks.says(2, text, ago=40.0 - 5 * number)
    found = [one for one in findings(racks.window()) if one.entity == gpu(2)]
    assert [(one.symptom, one.since) for one in found] == [(S.XID_RESET_GPU, NOW - 40.0)]
    assert found[0].evidence[0].says.startswith("XID 62,")


def test_the_sticky_gauge_is_no_event(seen: Seen) -> None:
    racks = Racks()
    racks.gpus["gpu.xid"][:] = 79.0
    assert hardware(seen, racks) == {}


def test_a_reset_a_reboot_or_a_new_start_settles_what_was_said_before(seen: Seen) -> None:
    for kind, entity in (("gpu.reset", gpu(2)), ("node.rebooted", node(1))):
        racks = Racks()
        racks.says(2, "95: Uncontained memory error", ago=200.0)
        racks.events.append(Event(NOW - 190.0, kind, entity))
        assert gpu(2).name not in hardware(seen, racks)
    racks = Racks()
    racks.says(2, "94: Contained memory error", ago=100.0)
    racks.says(3, "94: Contained memory error", ago=100.0)
    racks.fleet.start[2, racks.last(80)] = NOW - 80.0
    assert hardware(seen, racks) == {gpu(3).name: {S.XID_RESTART_APP}}


def test_a_gauge_that_falls_back_to_nothing_tells_of_a_reset(seen: Seen) -> None:
    racks = Racks()
    racks.says(2, "95: Uncontained memory error", ago=100.0)
    racks.gpus["gpu.xid"][2, racks.last(100)] = 95.0
    assert hardware(seen, racks) == {gpu(2).name: {S.XID_RESET_GPU}}
    racks.gpus["gpu.xid"][2, racks.last(20)] = 0.0
    assert hardware(seen, racks) == {}


def test_memory_errors_and_remaps_are_told_by_their_counters(seen: Seen) -> None:
    racks = Racks()
    racks.gpus["gpu.ecc_uncorrected"][1, racks.last(20)] = 2.0
    racks.gpus["gpu.remap_failure"][2, racks.last(20)] = 1.0
    racks.gpus["gpu.remap_pending"][3, racks.last(20)] = 1.0
    assert hardware(seen, racks) == {
        gpu(1).name: {S.ECC_UNCORRECTED},
        gpu(2).name: {S.REMAP_FAILED},
        gpu(3).name: {S.REMAP_PENDING},
    }


def test_a_contained_error_that_memory_counts_too_stays_the_applications(seen: Seen) -> None:
    racks = Racks()
    racks.says(1, "94: Contained memory error")
    racks.gpus["gpu.ecc_uncorrected"][1, racks.last(20)] = 1.0
    assert hardware(seen, racks) == {gpu(1).name: {S.XID_RESTART_APP}}


@pytest.mark.parametrize("reason", [0x8, 0x20, 0x40, 0x80])
def test_a_clock_held_down_by_heat_or_hardware_is_found_beside_its_peers(seen: Seen, reason: int) -> None:
    racks = Racks()
    racks.gpus["gpu.throttle_reasons"][4, racks.last(60)] = reason
    racks.gpus["gpu.sm_clock"][4, racks.last(60)] = 1100.0
    assert hardware(seen, racks) == {gpu(4).name: {S.GPU_THROTTLED}}


def test_a_software_power_cap_is_no_fault_whether_one_has_it_or_all(seen: Seen) -> None:
    for rows in (slice(4, 5), slice(None)):
        racks = Racks()
        racks.gpus["gpu.throttle_reasons"][rows, racks.last(200)] = 0x4
        racks.gpus["gpu.sm_clock"][rows, racks.last(200)] = 1500.0
        racks.fleet.itl[rows, racks.last(200)] *= 1.25
        assert hardware(seen, racks) == {}


def test_a_little_throttling_that_slows_nobody_is_no_fault_and_heat_in_the_whole_room_is_no_one_gpus(seen: Seen) -> None:
    racks = Racks()
    racks.gpus["gpu.throttle_reasons"][4, racks.last(60)] = 0x20
    racks.gpus["gpu.sm_clock"][4, racks.last(60)] = 1750.0
    assert hardware(seen, racks) == {}
    racks = Racks()
    racks.gpus["gpu.throttle_reasons"][:, racks.last(60)] = 0x20
    racks.gpus["gpu.sm_clock"][:, racks.last(60)] = 1200.0
    assert hardware(seen, racks) == {}


def test_a_low_clock_without_a_reason_counts_where_its_engine_is_slower(seen: Seen) -> None:
    racks = Racks()
    racks.gpus["gpu.sm_clock"][4, racks.last(100)] = 1400.0
    assert hardware(seen, racks) == {}
    racks.fleet.itl[4, racks.last(100)] *= 1.4
    assert hardware(seen, racks) == {gpu(4).name: {S.GPU_CLOCK_LOW}}


def test_low_power_counts_where_its_engine_is_slower_and_steps(seen: Seen) -> None:
    racks = Racks()
    racks.gpus["gpu.power"][4, racks.last(100)] = 300.0
    assert hardware(seen, racks) == {}
    racks.fleet.itl[4, racks.last(100)] *= 1.5
    assert hardware(seen, racks) == {gpu(4).name: {S.GPU_POWER_LOW}}
    racks.fleet.standing[4, racks.last(40)] = True
    assert hardware(seen, racks) == {}


def test_low_power_of_a_gpu_that_waits_for_its_engine_between_steps_is_no_fault_of_it(seen: Seen) -> None:
    racks = Racks()
    racks.gpus["gpu.power"][4, racks.last(100)] = 300.0
    racks.gpus["gpu.memory_activity"][4, racks.last(100)] = 0.3
    racks.fleet.itl[4, racks.last(100)] *= 1.5
    assert hardware(seen, racks) == {}


def test_an_idle_gpu_rests(seen: Seen) -> None:
    racks = Racks()
    racks.gpus["gpu.util"][4, :], racks.gpus["gpu.sm_clock"][4, :], racks.gpus["gpu.power"][4, :] = 0.0, 345.0, 90.0
    racks.gpus["gpu.throttle_reasons"][4, :] = 0x1
    assert hardware(seen, racks) == {}


def test_memory_that_is_nobodys_on_an_engines_gpu_is_found_and_a_full_pool_is_not(seen: Seen) -> None:
    racks = Racks()
    racks.gpus["gpu.memory_used"][:] = 79 * GB
    racks.gpus["gpu.memory_own"][:] = 78.5 * GB
    assert hardware(seen, racks) == {}
    racks.gpus["gpu.memory_own"][2, racks.last(60)] = 72 * GB
    racks.gpus["gpu.memory_own"][3, racks.last(60)] = np.nan
    assert hardware(seen, racks) == {gpu(2).name: {S.GPU_MEMORY_FOREIGN}}


def test_one_noisy_pcie_counter_is_nothing(seen: Seen) -> None:
    racks = Racks()
    racks.gpus["gpu.pcie_replays"][1] = np.cumsum(np.full(racks.gpus["gpu.pcie_replays"].shape[1], 50.0))
    assert hardware(seen, racks) == {}


def test_a_node_that_is_not_ready_is_found_and_one_that_people_cordoned_before_is_not(seen: Seen) -> None:
    racks = Racks()
    racks.nodes["node.ready"][1, racks.last(60)] = 0.0
    racks.nodes["node.ready"][2, racks.last(60)] = 0.0
    racks.nodes["node.unschedulable"][2, racks.last(120)] = 1.0
    assert hardware(seen, racks) == {"n1": {S.NODE_NOT_READY}, "n2": {S.NODE_RETURNING}}


def test_a_node_that_blinks_is_let_be_and_one_that_was_rebooted_returns(seen: Seen) -> None:
    racks = Racks()
    racks.nodes["node.ready"][1, racks.last(10)] = 0.0
    racks.events.append(Event(NOW - 60.0, "node.rebooted", node(2)))
    assert hardware(seen, racks) == {"n2": {S.NODE_RETURNING}}


def test_black_holes_are_ready_and_take_no_work(seen: Seen) -> None:
    racks = Racks()
    racks.nodes["node.pods_rejected"][0, racks.last(40)] = 6.0
    racks.nodes["node.gpus_allocatable"][1, racks.last(90)] = 1.0
    racks.nodes["node.gpus_allocatable"][2, racks.last(20)] = 0.0
    racks.nodes["node.gpus_allocatable"][3, racks.last(90)] = 1.0
    racks.says(6, "79: GPU has fallen off the bus", ago=80.0)
    assert hardware(seen, racks) == {
        "n0": {S.NODE_REJECTS_PODS},
        "n1": {S.NODE_GPUS_SHORT},
        gpu(6).name: {S.XID_REBOOT_NODE},
    }


def test_a_clock_that_is_off_counts_while_it_does_not_come_nearer(seen: Seen) -> None:
    racks = Racks()
    ticks = racks.nodes["node.clock_offset"].shape[1]
    racks.nodes["node.clock_offset"][0, racks.last(100)] = -0.4
    racks.nodes["node.clock_offset"][1] = np.geomspace(2.0, 0.08, ticks)
    racks.nodes["node.clock_offset"][2] = np.linspace(0.0, 0.9, ticks)
    assert hardware(seen, racks) == {"n0": {S.NODE_CLOCK_OFF}, "n2": {S.NODE_CLOCK_OFF}}


def test_disks_and_networks_of_nodes(seen: Seen) -> None:
    racks = Racks()
    racks.nodes["node.disk_readonly"][0, racks.last(30)] = 1.0
    racks.nodes["node.disk_free"][1, racks.last(30)] = 0.01
    racks.nodes["node.network_errors"][2] += np.cumsum(np.full(racks.nodes["node.network_errors"].shape[1], 800.0))
    found = hardware(seen, racks)
    assert found == {"n0": {S.NODE_DISK_READONLY}, "n1": {S.NODE_DISK_FULL}, "n2": {S.NODE_NETWORK_ERRORS}}


def test_all_engines_of_one_node_gone_at_once_are_the_node(seen: Seen) -> None:
    racks = Racks()
    racks.fleet.up[2:4, racks.last(20)] = 0.0
    racks.fleet.up[6, racks.last(20)] = 0.0
    assert hardware(seen, racks) == {"n1": {S.NODE_ENGINES_LOST}}


def test_errors_on_the_nodes_of_one_switch_are_the_switch(seen: Seen) -> None:
    racks = Racks(engines=16)
    errors = np.cumsum(np.full(racks.nodes["node.network_errors"].shape[1], 600.0))
    racks.nodes["node.network_errors"][2:4] += errors
    assert S.SWITCH_ERRORS in hardware(seen, racks)[switch(1).name]
    racks.nodes["node.network_errors"][4:6] += errors
    assert not any(S.SWITCH_ERRORS in symptoms for symptoms in hardware(seen, racks).values())


def test_engines_of_one_switch_that_are_slower_than_elsewhere_are_the_switch(seen: Seen) -> None:
    racks = Racks(engines=16)
    racks.fleet.itl[4:8, racks.last(100)] *= 1.45
    assert hardware(seen, racks) == {switch(1).name: {S.SWITCH_SLOW}}
    racks.fleet.itl[8:12, racks.last(100)] *= 1.45
    assert hardware(seen, racks) == {}


def test_missing_readings_are_never_a_symptom(seen: Seen) -> None:
    racks = Racks()
    for values in (*racks.gpus.values(), *racks.nodes.values()):
        values[:, racks.last(200)] = np.nan
    assert hardware(seen, racks) == {}
