"""Detector parameters for telemetry that comes less often than the warden's own readings.

The shipped parameters are for a reading every two seconds. A Prometheus scrapes every 15 or 30: there "three readings" last
a minute, and a span that should hold six readings holds one. So spans that are meant to hold a number of readings are
stretched until they do; what is judged in them, and against which bars, stays as it is.
"""

import math

from pydantic import BaseModel

from detectors.parameters import Parameters

SHIPPED = 2.0  # seconds between readings that detectors/parameters.yaml assumes
_FRESH = 3.0  # readings within which a sample still says something about now, as there


def for_cadence(parameters: Parameters, cadence: float) -> Parameters:
    """`parameters` with their spans stretched for a sample every `cadence` seconds; unchanged up to the shipped pace."""
    if cadence <= SHIPPED + 0.5:
        return parameters
    p = parameters
    fresh = _FRESH * cadence + 1.0
    queue_hold = max(p.load.queue_hold, p.load.least_readings * cadence)
    return parameters.model_copy(
        update={
            "progress": _at_least(p.progress, fresh=fresh, hold=2 * cadence),
            "reachability": _at_least(p.reachability, fresh=fresh, failing_over=3 * cadence),
            "latency": _at_least(
                p.latency, block=_whole(p.latency.block, cadence), over=3 * _whole(p.latency.block, cadence)
            ),
            "pauses": _at_least(
                p.pauses,
                over=3 * math.ceil(p.pauses.least_readings / 3) * cadence + cadence,
                block=math.ceil(p.pauses.least_readings / 3) * cadence,
            ),
            "peers": _at_least(p.peers, block=_whole(p.peers.block, cadence)),
            "prefill": _at_least(p.prefill, over=_whole(p.prefill.over, cadence)),
            "kv": _at_least(p.kv, fresh=fresh, over=(p.kv.least_readings + 1) * cadence),
            "load": _at_least(
                p.load,
                fresh=fresh,
                queue_hold=queue_hold,
                queue_over=queue_hold + cadence * 2,
                block=_whole(p.load.block, cadence),
                lengths_over=_whole(p.load.lengths_over, cadence),
            ),
            "clients": _at_least(p.clients, over=3 * cadence),
            "queues": _at_least(
                p.queues,
                fresh=fresh,
                hold_idle=2 * cadence,
                hold=p.queues.least_readings * cadence,
                deferred_over=4 * cadence,
            ),
            "outputs": _at_least(p.outputs, over=_whole(p.outputs.over, cadence)),
            "leaks": _at_least(p.leaks, fresh=fresh, block=_whole(p.leaks.block, cadence), kv_over=12 * cadence),
            "starts": _at_least(p.starts, fresh=fresh, hold_memory=4 * cadence, early=2 * cadence),
            "rollouts": _at_least(p.rollouts, over=_whole(p.rollouts.over, cadence), down_for=2 * cadence),
            "gateways": _at_least(p.gateways, fresh=fresh, over=3 * cadence, idle_for=2 * cadence),
            "series": _at_least(
                p.series, fresh=fresh, hold=_FRESH * 2 * cadence, together=2 * cadence, over=_whole(p.series.over, cadence)
            ),
            "blindness": _at_least(p.blindness, hold=_FRESH * 2 * cadence, hold_lost=cadence, together=2 * cadence),
        }
    )


def _whole(seconds: float, cadence: float) -> float:
    """The least whole number of readings, at least two, that lasts `seconds` or more."""
    return max(2, math.ceil(seconds / cadence)) * cadence


def _at_least(family: BaseModel, **spans: float) -> BaseModel:
    return family.model_copy(update={name: max(getattr(family, name), span) for name, span in spans.items()})
