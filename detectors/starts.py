"""Starts: an engine that takes far longer to come up than it should, and one that cannot because its memory is taken.

Told by the orchestrator (`engine.starting_seconds`), since an engine that starts shows no metrics of its own. A start that
makes progress is never to be cut short: loading and compiling begin anew each time (vllm-project/vllm#45631, #24885). GPU
memory that is held through a whole start by none of the engine's own processes is what orphans of the one before hold
(vllm-project/vllm#34643): that start cannot succeed.
"""

from collections.abc import Iterator

import numpy as np

from detectors.finding import Evidence, Finding, Symptom
from detectors.service_parameters import StartsParameters
from detectors.statistics import Bools, Floats, condition, others_median, sample_times, trailing_run
from serving.fleet.entity import EntityKind
from serving.fleet.topology import Relation
from serving.telemetry.counters import last_present, newest_value
from serving.telemetry.window import Table, Window

STARTING = "engine.starting_seconds"
NEEDS: frozenset[str] = frozenset()
HELPED_BY: frozenset[str] = frozenset()

GIB = 2.0**30


def detect(window: Window, parameters: StartsParameters) -> tuple[Finding, ...]:
    """START_SLOW and START_MEMORY_HELD."""
    if window.rows == 0 or len(window.times) == 0 or STARTING not in window.signals:
        return ()
    for_long = window.latest(STARTING, parameters.fresh)
    if not (for_long > 0).any():
        return ()
    return (*_slow(window, parameters, for_long), *_memory_held(window, parameters, for_long))


def under_way(window: Window, fresh: float) -> Bools:
    """Engines of which the orchestrator says that one start is under way, and not one start after another. (engines,).

    What does not answer yet is neither dead nor silent; what begins anew again and again is.
    """
    for_long = window.latest(STARTING, fresh)
    starting = np.asarray(for_long > 0)
    if starting.any():
        starting &= starts_again(window) < 2  # noqa: PLR2004 - one new start is any restart; two are a loop
    return starting


def starts_again(window: Window) -> Floats:
    """How often a start of each engine was followed by another before the engine came up, in this window. (engines,)."""
    seconds = window.values(STARTING)
    before = np.full_like(seconds, np.nan)
    before[:, 1:] = last_present(seconds)[:, :-1]
    with np.errstate(invalid="ignore"):
        return np.asarray(((seconds < before) & (seconds > 0)).sum(axis=1), dtype=np.float64)


def usual_duration(window: Window) -> Floats:
    """How long the starts that ended well in this window took: the longer of own and peers'. (engines,); NaN unknown."""
    seconds = window.values(STARTING)
    before = np.full_like(seconds, np.nan)
    before[:, 1:] = last_present(seconds)[:, :-1]
    took = np.where((seconds == 0) & (before > 0), before, np.nan)
    own = newest_value(took)
    return np.fmax(own, others_median(own, window.topology.peer_group)[0])


def overdue(window: Window, parameters: StartsParameters, for_long: Floats) -> tuple[Bools, Floats]:
    """Which starts take far too long, and how long they should have taken (NaN where nothing tells). (engines,) both."""
    usual = usual_duration(window)
    bar = np.fmax(parameters.ratio * usual, usual + parameters.excess)
    with np.errstate(invalid="ignore"):
        return np.asarray(for_long > np.where(np.isnan(bar), parameters.unknown, bar)), usual


def _slow(window: Window, parameters: StartsParameters, for_long: Floats) -> Iterator[Finding]:
    found, usual = overdue(window, parameters, for_long)
    for row in np.flatnonzero(found):
        against = (
            f"its own last start and its peers' took {usual[row]:.0f} s"
            if usual[row] > 0
            else "no start was seen to compare"
        )
        expected = float(usual[row]) if usual[row] > 0 else parameters.unknown
        says = f"starting for {for_long[row]:.0f} s; {against}"
        yield Finding(
            Symptom.START_SLOW,
            window.topology.engines[row],
            window.now - float(for_long[row]),
            float(np.clip(0.4 + 0.2 * for_long[row] / expected / parameters.ratio, 0.5, 0.9)),
            (Evidence(STARTING, says, float(for_long[row]), expected=expected, unit="seconds"),),
        )


def _memory_held(window: Window, parameters: StartsParameters, for_long: Floats) -> Iterator[Finding]:
    table = window.tables.get(EntityKind.GPU)
    if table is None:
        return
    seconds = window.values(STARTING)
    run = trailing_run(condition(seconds, seconds > 0), sample_times(window, STARTING))
    for row in np.flatnonzero((for_long > 0) & (run.held >= parameters.hold_memory)):
        said = _foreign(window, table, int(row), float(run.since[row]), parameters)
        if said is not None:
            since = float(run.since[row])
            yield Finding(Symptom.START_MEMORY_HELD, window.topology.engines[row], since, 0.9, (said,))


def _foreign(window: Window, table: Table, row: int, since: float, parameters: StartsParameters) -> Evidence | None:
    """What somebody else held through the whole start on one of the engine's GPUs, where that is too much."""
    gpus = [gpu for gpu in window.topology.related(window.topology.engines[row], Relation.RUNS_ON) if gpu in table.row_of]
    if not gpus:
        return None
    rows = np.array([table.row_of[gpu] for gpu in gpus], dtype=np.intp)
    columns = window.times >= since
    used = table.values("gpu.memory_used")[rows][:, columns]
    own, total = table.values("gpu.memory_own")[rows][:, columns], table.values("gpu.memory_total")[rows][:, columns]
    first = np.nan_to_num(window.values(STARTING)[row, columns], nan=np.inf)[0] if columns.any() else np.inf
    if np.isnan(own).all() and first > parameters.early:
        return None  # seen too late to tell what was there before from what the start has taken since
    share = np.where(np.isnan(own), used, used - own) / total
    known = ~np.isnan(share)
    least = np.where(known.any(axis=1), np.where(known, share, np.inf).min(axis=1, initial=np.inf), 0.0)
    worst = int(np.argmax(least))
    if least[worst] < parameters.memory_share or known[worst].sum() < parameters.least_readings:
        return None
    held = float(np.nanmax(total[worst])) * float(least[worst])
    says = (
        f"{held / GIB:.1f} GiB of {gpus[worst]} are held by none of its processes since its start began, "
        f"{window.now - since:.0f} s ago"
    )
    return Evidence("gpu.memory_used", says, held, expected=0.0, unit="bytes")
