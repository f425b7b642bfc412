"""What the detectors go by: one model per family, read from a YAML file in which a reason stands beside each number."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from detectors.hardware_parameters import FabricParameters, GpuFaultsParameters, GpuSpeedParameters, NodesParameters
from detectors.parameter_kinds import Amount, Count, Ratio, Seconds, Share, Strict
from detectors.service_parameters import (
    GatewaysParameters,
    LeaksParameters,
    OutputsParameters,
    QueuesParameters,
    RolloutsParameters,
    SeriesParameters,
    StartsParameters,
)
from serving.yaml_file import load_file

DEFAULT = Path(__file__).with_name("parameters.yaml")


class ProgressParameters(Strict):
    """Forward progress of engine steps (detectors.progress)."""

    hold: Seconds
    hold_young: Seconds
    young: Seconds
    hold_gauges: Seconds
    hold_doorless: Seconds
    fresh: Seconds
    aftermath: Seconds
    files_climbed: Count


class ReachabilityParameters(Strict):
    """Answers of the engine's API (detectors.reachability)."""

    hold_refused: Seconds
    hold_silent: Seconds
    hold_starting: Seconds
    refused_within: Seconds
    fresh: Seconds
    aftermath: Seconds
    failing_over: Seconds
    failing_least: Count
    failing_share: Share


class LatencyParameters(Strict):
    """Times to first token (detectors.latency)."""

    over: Seconds
    block: Seconds
    least_blocks: Count
    least_requests: Count
    ratio: Ratio
    ratio_worst: Ratio
    excess: Seconds
    least_peers: Count
    steady_within: Ratio
    ratio_each: Ratio
    share_each: Share
    waited: Seconds
    waited_share: Share


class PausesParameters(Strict):
    """Gaps between steps (detectors.pauses)."""

    over: Seconds
    block: Seconds
    share_each: Share
    ratio_each: Ratio
    young: Seconds
    gap: Seconds
    gap_ratio: Ratio
    share: Share
    z: Amount
    z_small_group: Amount
    ratio: Ratio
    behind_prompts: Ratio
    least_readings: Count
    least_blocks: Count
    least_peers: Count


class PeersParameters(Strict):
    """Speed against peers (detectors.peers)."""

    block: Seconds
    least_blocks: Count
    least_tokens: Count
    least_peers: Count
    z_at_once: Amount
    z_in_a_row: Amount
    scale_floor: Ratio
    effect: Ratio
    blocks_small_group: Count
    effect_small_group: Ratio
    blocks_lasting: Count
    effect_lasting: Ratio
    effect_each_block: Ratio
    blocks_agree: Share
    load_within: Ratio


class PrefillParameters(Strict):
    """Prompts and prefill (detectors.prefill)."""

    over: Seconds
    least_blocks: Count
    least_requests: Count
    long_ratio: Ratio
    long_least: Amount
    prompt_share: Share
    busy: Amount


class KvParameters(Strict):
    """KV cache (detectors.kv)."""

    over: Seconds
    mean: Share
    peak: Share
    least_readings: Count
    fresh: Seconds
    preempting_over: Seconds
    preempted_least: Count
    preempted_share: Share


class LoadParameters(Strict):
    """Arrivals, queues and batches (detectors.load)."""

    queue_over: Seconds
    queue_share: Share
    queue_hold: Seconds
    fresh: Seconds
    least_readings: Count
    batch_share: Share
    batch_ticks: Share
    batch_least: Count
    batch_kv_below: Share
    block: Seconds
    recent_blocks: Count
    model_blocks: Count
    least_blocks: Count
    arrivals_ratio: Ratio
    arrivals_excess: Amount
    in_flight_ratio: Ratio
    in_flight_excess: Amount
    least_engines: Count
    lengths_over: Seconds
    long_ratio: Ratio
    long_least: Amount
    long_requests: Count


class ExpertsParameters(Strict):
    """Tokens per expert (detectors.experts)."""

    block: Seconds
    hold_blocks: Count
    least_blocks: Count
    usual: Share
    ratio: Ratio
    least: Ratio
    least_tokens: Amount
    share_of_model: Share
    least_engines: Count
    traffic_ratio: Ratio


class ClientsParameters(Strict):
    """Clients that give up (detectors.clients)."""

    over: Seconds
    least: Count
    share: Share


class BlindnessParameters(Strict):
    """Telemetry itself (detectors.blindness)."""

    hold: Seconds
    hold_lost: Seconds
    share: Share
    least: Count
    together: Seconds
    served: Count


class Parameters(Strict):
    """All families together."""

    progress: ProgressParameters
    reachability: ReachabilityParameters
    latency: LatencyParameters
    pauses: PausesParameters
    peers: PeersParameters
    prefill: PrefillParameters
    kv: KvParameters
    load: LoadParameters
    experts: ExpertsParameters
    clients: ClientsParameters
    blindness: BlindnessParameters
    queues: QueuesParameters
    outputs: OutputsParameters
    leaks: LeaksParameters
    starts: StartsParameters
    rollouts: RolloutsParameters
    gateways: GatewaysParameters
    series: SeriesParameters
    gpu_faults: GpuFaultsParameters
    gpu_speed: GpuSpeedParameters
    nodes: NodesParameters
    fabric: FabricParameters


def load_parameters(path: Path | None = None) -> Parameters:
    """The shipped parameters, with those that the file at `path` states in their place.

    Raises serving.yaml_file.FileError naming every mistake.
    """
    shipped = load_file(DEFAULT)
    if path is None:
        return shipped.validated(Parameters)
    own = load_file(path)
    return replace(own, data=_overlaid(shipped.data, own.data)).validated(Parameters)


def _overlaid(below: dict[Any, Any], above: dict[Any, Any]) -> dict[Any, Any]:
    """`above` over `below`, mappings merged key by key."""
    merged = dict(below)
    for key, value in above.items():
        both = isinstance(value, dict) and isinstance(below.get(key), dict)
        merged[key] = _overlaid(below[key], value) if both else value
    return merged
