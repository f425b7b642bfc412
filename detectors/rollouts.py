"""Rollouts: whether the engines of a new revision fail, are slow or answer badly, and only those, since they have it.

A rolling upgrade whose new engines are well is no fault, and a start or a first minute of compilation is none either. With
engines of the old revision at hand they are the measure (vllm-project/vllm-ascend#15166, #11107); once none is left, it is
each engine's own past before the change.

The first engine of a new revision that is ill may be ill by itself, or the first of all that will be. Until some of its like
have shown themselves well it is under suspicion, which speaks against every cause of its own: to restart it would bring the
same revision up again.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from detectors import outputs, starts
from detectors.finding import Evidence, Finding, Symptom
from detectors.service_parameters import OutputsParameters, RolloutsParameters, StartsParameters
from detectors.statistics import Bools, Floats, condition, histogram_steps, row_median, sample_times, trailing_run
from serving.fleet.entity import Entity, EntityKind
from serving.telemetry.counters import last_present, newest_value
from serving.telemetry.window import Window

REVISION = "engine.revision"
NEEDS: frozenset[str] = frozenset()
HELPED_BY: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, eq=False)
class _Health:
    """What speaks against each engine, (engines,): absolute ills, and the means that are compared."""

    failing: Bools
    down: Bools
    corrupt: Bools
    length_share: Floats
    first_token: Floats
    between: Floats
    before_first: Floats
    before_between: Floats


def detect(
    window: Window, parameters: RolloutsParameters, of_outputs: OutputsParameters, of_starts: StartsParameters
) -> tuple[Finding, ...]:
    """REVISION_WORSE on a model, and REVISION_SUSPECT on the engines that have its newest revision."""
    if window.rows == 0 or len(window.times) == 0 or REVISION not in window.signals:
        return ()
    revision = last_present(window.values(REVISION))
    newest = _of_model(window, revision[:, -1])
    fresh_news = (revision[:, -1] == newest) & _recent_change(window, revision, newest)
    if not fresh_news.any():
        return ()
    health = _health(window, parameters, of_outputs, of_starts, revision)
    found: list[Finding] = []
    for name, rows in sorted(window.topology.rows_of_model.items()):
        if fresh_news[rows].any():
            found.extend(_model(window, parameters, name, rows, revision[:, -1] == newest, health))
    return tuple(found)


def _of_model(window: Window, values: Floats) -> Floats:
    """The largest value of each engine's model, (engines,); NaN where none is known."""
    largest = np.full(window.rows, np.nan)
    for rows in window.topology.rows_of_model.values():
        largest[rows] = np.fmax.reduce(values[rows], initial=np.nan)
    return largest


def _recent_change(window: Window, revision: Floats, newest: Floats) -> Bools:
    """Engines of the newest revision whose model still has another one, or had it within this window."""
    recent = np.zeros(window.rows, dtype=np.bool_)
    for rows in window.topology.rows_of_model.values():
        with np.errstate(invalid="ignore"):
            recent[rows] = bool((revision[rows] < newest[rows][:, None]).any())
    return recent


def _health(
    window: Window,
    parameters: RolloutsParameters,
    of_outputs: OutputsParameters,
    of_starts: StartsParameters,
    revision: Floats,
) -> _Health:
    has = revision == revision[:, -1:]  # what an engine showed before its change is not the new revision's
    warm = has & _up_for(window, parameters.warm_up) & (window.times > window.now - parameters.over)
    before = revision < newest_value(revision)[:, None]
    first, between = histogram_steps(window, "engine.ttft"), histogram_steps(window, "engine.inter_token")
    share, _ = outputs.length_shares(window, of_outputs)
    return _Health(
        failing=_failing(window, parameters),
        down=_down(window, parameters, of_starts),
        corrupt=outputs.corrupted(window, of_outputs)[1],
        length_share=share,
        first_token=_mean(first, warm, parameters.least),
        between=_mean(between, warm, parameters.least),
        before_first=_mean(first, before, parameters.least),
        before_between=_mean(between, before, parameters.least),
    )


def _mean(steps: tuple[Floats, Floats], chosen: Bools, least: float) -> Floats:
    """The mean of a histogram's observations in the `chosen` samples (engines, times); NaN with fewer than `least`."""
    counts, sums = (np.where(chosen & ~np.isnan(part), part, 0.0).sum(axis=1) for part in steps)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(counts >= max(1.0, least), sums / counts, np.nan)


def _up_for(window: Window, seconds: float) -> Bools:
    """Samples taken when each engine had been up, with the same process, for so long. (engines, times)."""
    up = window.values("scrape.up")
    down_at = np.where(up == 0, window.times, -np.inf)
    np.maximum.accumulate(down_at, axis=1, out=down_at)
    began = last_present(window.values("engine.process_start"))
    return np.asarray(~(window.times[None, :] < np.fmax(down_at, began) + seconds))


def _failing(window: Window, parameters: RolloutsParameters) -> Bools:
    """Whether much fails once an engine is up: what a restart breaks belongs to the restart."""
    revision = last_present(window.values(REVISION))
    counted = _up_for(window, parameters.settle) & (window.times > window.now - parameters.over)
    counted &= revision == revision[:, -1:]
    failed = sum(_during(window, result, counted) for result in ("connection", "http_5xx", "timeout"))
    whole = _during(window, "ok", counted)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray((failed >= parameters.failing_least) & (failed / (failed + whole) >= parameters.failing_share))


def _during(window: Window, result: str, counted: Bools) -> Floats:
    """How many requests ended so in the samples `counted`. (engines,); 0 where the door tells nothing."""
    grown = window.increments(f"door.finished.{result}")
    return np.asarray(np.where(counted & ~np.isnan(grown), grown, 0.0).sum(axis=1), dtype=np.float64)


def _down(window: Window, parameters: RolloutsParameters, of_starts: StartsParameters) -> Bools:
    """Not up for long and no start under way that may take its time, or a start after the other, or one far too long."""
    up = window.values("scrape.up")
    away = trailing_run(condition(up, up == 0), sample_times(window, "scrape.up")).held >= parameters.down_for
    for_long = window.latest(starts.STARTING, of_starts.fresh)
    late, _ = starts.overdue(window, of_starts, for_long)
    again = starts.starts_again(window) >= parameters.starts_again
    return np.asarray((away & ~(for_long > 0)) | late | again)


def _model(
    window: Window, parameters: RolloutsParameters, name: str, rows: NDArray[np.intp], new: Bools, health: _Health
) -> list[Finding]:
    newer, older = rows[new[rows]], rows[~new[rows]]
    ills = _ills(parameters, health, newer, older)
    sick = np.logical_or.reduce([*ills.values()])
    well = health.down[older] | health.failing[older] | health.corrupt[older]
    judged = sick | ~np.isnan(health.first_token[newer])  # the others have just begun, or nobody asks them anything
    if not sick.any() or (len(older) and well.mean() > parameters.old_share):
        return []
    changed = _changed_at(window, newer)
    if sick.sum() < max(parameters.least_engines, parameters.share * judged.sum()):
        undecided = np.count_nonzero(judged & ~sick) < parameters.clear_least
        lately = window.now - changed.max() <= parameters.under_way
        says = "it is ill since it has a new revision, of which too few others can be judged yet"
        return [_suspect(window, row, float(changed.min()), says) for row in newer[sick] if undecided and lately]
    return [
        _worse(name, ills, judged, len(older), float(changed.min())),
        *(_suspect(window, row, float(changed.min()), "it has the revision whose engines are ill") for row in newer),
    ]


def _worse(name: str, ills: dict[str, Bools], judged: Bools, older: int, since: float) -> Finding:
    sick = int(np.logical_or.reduce([*ills.values()]).sum())
    said = ", ".join(f"{count} {ill}" for ill, shown in ills.items() if (count := int(shown.sum())))
    measure = f"the {older} of the old one are well" if older else "they were well before they had it"
    says = f"{sick} of {len(judged)} engines of the newest revision are ill ({said}); {measure}"
    evidence = (Evidence(REVISION, says, float(sick), expected=0.0, unit="engines"),)
    severity = float(np.clip(0.6 + 0.4 * sick / judged.sum(), 0.6, 1.0))
    return Finding(Symptom.REVISION_WORSE, Entity(EntityKind.MODEL, name), since, severity, evidence)


def _suspect(window: Window, row: np.intp, since: float, says: str) -> Finding:
    evidence = (Evidence(REVISION, says, float(window.latest(REVISION, np.inf)[row])),)
    return Finding(Symptom.REVISION_SUSPECT, window.topology.engines[row], since, 0.3, evidence)


def _ills(
    parameters: RolloutsParameters, health: _Health, newer: NDArray[np.intp], older: NDArray[np.intp]
) -> dict[str, Bools]:
    """What ails each engine of the newest revision, by name."""
    enough = len(older) >= parameters.least_engines
    ills = {"down": health.down[newer], "failing": health.failing[newer], "with corrupt answers": health.corrupt[newer]}
    for now, past, excess in (
        (health.first_token, health.before_first, parameters.late_excess),
        (health.between, health.before_between, parameters.slow_excess),
    ):
        norm = row_median(now[older][None, :])[0] if enough else past[newer]
        with np.errstate(invalid="ignore"):
            slow = (now[newer] >= parameters.slow_ratio * norm) & (now[newer] - norm >= excess)
        ills["slow"] = ills.get("slow", np.zeros(len(newer), dtype=np.bool_)) | slow
    usual = row_median(health.length_share[older][None, :])[0] if enough else np.nan
    with np.errstate(invalid="ignore"):
        ills["with endless answers"] = (health.length_share[newer] >= parameters.length_share) & (
            usual <= parameters.usual_share
        )
    return {ill: np.asarray(shown, dtype=np.bool_) for ill, shown in ills.items()}


def _changed_at(window: Window, newer: NDArray[np.intp]) -> Floats:
    """When each of these engines got its revision, as far as the window reaches. (newer,), Unix seconds."""
    revision = last_present(window.values(REVISION))[newer]
    with np.errstate(invalid="ignore"):
        has = (revision == revision[:, -1:]) & ~np.isnan(revision)
        had = (revision < revision[:, -1:]).any(axis=1)
    return np.asarray(np.where(had, window.times[np.argmax(has, axis=1)], window.times[0]), dtype=np.float64)


def renewed(window: Window, since: Floats) -> Bools:
    """Engines that got a new revision when they went down at `since` or thereafter: a rollout took them down. (engines,)."""
    if REVISION not in window.signals or not len(window.times):
        return np.zeros(window.rows, dtype=np.bool_)
    revision = last_present(window.values(REVISION))
    before = np.where(window.times[None, :] < since[:, None], revision, np.nan)
    return np.asarray(revision[:, -1] > np.fmax.reduce(before, axis=1, initial=np.nan))
