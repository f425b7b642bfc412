"""What the detectors of GPUs, nodes and switches go by; the numbers and their reasons are in parameters.yaml."""

from typing import Annotated

from pydantic import Field

from detectors.parameter_kinds import Count, Ratio, Seconds, Share, Strict


class GpuFaultsParameters(Strict):
    """XIDs and memory errors of GPUs (detectors.gpu_faults)."""

    over: Seconds
    fresh: Seconds
    fresh_table: Seconds
    proven: Seconds
    ecc_over: Seconds
    herd_within: Seconds
    herd_nodes: Count


class GpuSpeedParameters(Strict):
    """Clocks, power and memory of GPUs (detectors.gpu_speed)."""

    over: Seconds
    engine_over: Seconds
    least_tokens: Count
    busy: Share
    share: Share
    clock: Share
    clock_far: Share
    power: Share
    work: Share
    slower: Ratio
    slower_weak: Ratio
    memory_over: Seconds
    least_readings: Count
    foreign_least: Annotated[float, Field(ge=0, le=1e12)]
    foreign_share: Share


class NodesParameters(Strict):
    """Nodes (detectors.nodes)."""

    fresh: Seconds
    aftermath: Seconds
    hold_ready: Seconds
    rejected_over: Seconds
    rejected_least: Count
    hold_short: Seconds
    xid_over: Seconds
    offset: Seconds
    hold_clock: Seconds
    shrinks: Share
    hold_disk: Seconds
    disk_free: Share
    network_over: Seconds
    least_packets: Count
    errors: Share
    hold_lost: Seconds
    lost_least: Count
    lost_share: Share
    together: Seconds


class FabricParameters(Strict):
    """Switches and NVLink domains (detectors.fabric)."""

    over: Seconds
    young: Seconds
    least: Count
    share: Share
    elsewhere: Share
    least_packets: Count
    errors: Share
    link_errors: Count
    least_tokens: Count
    slower: Ratio
