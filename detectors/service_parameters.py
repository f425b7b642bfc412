"""What the detectors of whole services go by: queues, answers, leaks, starts, rollouts, gateways and series."""

from detectors.parameter_kinds import Amount, Count, Ratio, Seconds, Share, Strict


class QueuesParameters(Strict):
    """Queues that do not move (detectors.queues)."""

    hold_idle: Seconds
    hold: Seconds
    fresh: Seconds
    least: Count
    least_readings: Count
    running_share: Share
    small_share: Share
    crowded_share: Share
    crowd: Ratio
    busier: Ratio
    batch_least: Count
    kv_below: Share
    deferred_over: Seconds
    deferred_ratio: Ratio


class OutputsParameters(Strict):
    """Answers that are wrong (detectors.outputs)."""

    over: Seconds
    corrupted_least: Count
    common: Share
    least: Count
    length_share: Share
    usual_share: Share
    length_ratio: Ratio
    least_blocks: Count
    least_peers: Count


class LeaksParameters(Strict):
    """KV blocks and host memory that do not come back (detectors.leaks)."""

    fresh: Seconds
    block: Seconds
    least_peers: Count
    kv_over: Seconds
    kv_least_idle: Count
    kv_floor: Share
    lease: Seconds
    kv_busy_over: Seconds
    kv_excess: Share
    lengths_within: Ratio
    least_blocks: Count
    steady: Share
    memory_least: Share
    lead: Seconds
    lead_late: Seconds
    load_within: Ratio
    queued_most: Amount
    young: Seconds
    rss_growth: Share
    rss_least: Amount


class StartsParameters(Strict):
    """Engines that start (detectors.starts)."""

    fresh: Seconds
    ratio: Ratio
    excess: Seconds
    unknown: Seconds
    hold_memory: Seconds
    early: Seconds
    memory_share: Share
    least_readings: Count


class RolloutsParameters(Strict):
    """Engines of a new revision (detectors.rollouts)."""

    over: Seconds
    warm_up: Seconds
    settle: Seconds
    least: Count
    least_engines: Count
    share: Share
    old_share: Share
    failing_least: Count
    failing_share: Share
    down_for: Seconds
    starts_again: Count
    slow_ratio: Ratio
    slow_excess: Amount
    late_excess: Amount
    length_share: Share
    usual_share: Share
    clear_least: Count
    under_way: Seconds


class GatewaysParameters(Strict):
    """Front doors (detectors.gateways)."""

    over: Seconds
    fresh: Seconds
    idle_for: Seconds
    in_flight_least: Count
    failing_least: Count
    failing_share: Share
    share: Share
    least_engines: Count
    starved_over: Seconds
    expected_least: Amount
    expected_alone: Amount
    expected_weighed: Amount
    together: Seconds
    queue_share: Share


class SeriesParameters(Strict):
    """Series that vanish or count twice (detectors.series)."""

    fresh: Seconds
    hold: Seconds
    together: Seconds
    share: Share
    least: Count
    over: Seconds
    counted_least: Amount
    counters_least: Count
    jump_within: Share
    jump_steep: Ratio
