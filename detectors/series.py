"""Series that lie: names that vanish for all engines at once, and counters that suddenly count twice.

A rename leaves the targets up and their other series fresh (kubernetes-sigs/gateway-api-inference-extension#1905): nothing
is wrong with the engines, and absent is not idle. A target scraped by two jobs (kubernetes-sigs/inference-perf#249) has all
of its counters jump to twice their value in one reading. That an engine then counts twice what the front door counts tells
nothing: requests that come to it past the door look the same.
"""

from collections.abc import Iterator

import numpy as np

from detectors.blindness import scraper
from detectors.finding import Evidence, Finding, Symptom
from detectors.service_parameters import SeriesParameters
from detectors.statistics import Bools, Floats, row_median
from serving.telemetry.counters import last_present, newest_present
from serving.telemetry.window import Window

NEEDS: frozenset[str] = frozenset()
HELPED_BY = frozenset({"scrape.up", "engine.steps", "engine.generation_tokens", "engine.prompt_tokens"})

COUNTED = ("engine.steps", "engine.step_tokens", "engine.prompt_tokens", "engine.generation_tokens")
FROM_OUTSIDE = frozenset(
    {
        "engine.revision",
        "engine.starting_seconds",
        "engine.memory_working_set",
        "engine.memory_limit",
        "engine.process_start",
    }
)
"""Not of the engine's own /metrics, or not of vLLM: they say nothing of whether vLLM's names are still the same."""


def detect(window: Window, parameters: SeriesParameters) -> tuple[Finding, ...]:
    """SERIES_VANISHED and SERIES_DOUBLED, on the source that carries the engines' metrics."""
    if window.rows == 0 or len(window.times) == 0:
        return ()
    return (*_vanished(window, parameters), *_doubled(window, parameters))


def _vanished(window: Window, parameters: SeriesParameters) -> Iterator[Finding]:
    up = window.latest("scrape.up", parameters.fresh) >= 1.0
    ages = {name: window.age(name) for name in (*window.signals, *window.histograms) if _own(name)}
    ages |= {name: _histogram_age(window, name) for name in window.histograms if _own(name)}
    if not ages or up.sum() < parameters.least:
        return
    freshest = np.fmin.reduce([*ages.values()])
    speaking = up & (freshest <= parameters.fresh)
    gone: dict[str, float] = {}
    for name, age in ages.items():
        had = speaking & np.isfinite(age)
        lost = had & (age > parameters.hold)
        if had.sum() < parameters.least or lost.sum() < parameters.share * had.sum():
            continue
        if np.ptp(age[lost]) <= parameters.together:
            gone[name] = float(age[lost].min())
    if not gone:
        return
    since = max(gone.values())
    says = (
        f"{', '.join(sorted(gone))} vanished for {int(speaking.sum())} engines at once {since:.0f} s ago, while the engines "
        "answer their scrapes and give everything else"
    )
    evidence = (Evidence(min(gone), says, float(len(gone)), expected=0.0, unit="signals"),)
    yield Finding(Symptom.SERIES_VANISHED, scraper(window), window.now - since, 0.8, evidence)


def _own(name: str) -> bool:
    return name.startswith("engine.") and name not in FROM_OUTSIDE


def _histogram_age(window: Window, name: str) -> Floats:
    matrix = window.histograms[name]
    newest = newest_present(matrix.counts[:, :, -1])
    taken = matrix.sampled_at[np.arange(window.rows), newest]
    return np.asarray(np.where(newest >= 0, window.now - taken, np.inf), dtype=np.float64)


def _doubled(window: Window, parameters: SeriesParameters) -> Iterator[Finding]:
    found, at = _jumped(window, parameters)
    if not found.any():
        return
    since = float(np.min(at[found]))
    names = [window.topology.engines[row].name for row in np.flatnonzero(found)]
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""  # noqa: PLR2004 - so many are named
    says = (
        f"the counters of {', '.join(names[:3])}{more} jumped to twice their value in one reading: scraped twice, or under "
        "two sets of labels"
    )
    evidence = (Evidence("engine.steps", says, float(len(names)), expected=0.0, unit="engines"),)
    yield Finding(Symptom.SERIES_DOUBLED, scraper(window), since, 0.8, evidence)


def _jumped(window: Window, parameters: SeriesParameters) -> tuple[Bools, Floats]:
    """Engines of which all counters at hand came to twice their value in one and the same reading, and when. (engines,)."""
    found, when = np.zeros(window.rows, dtype=np.bool_), np.full(window.rows, np.nan)
    some = np.flatnonzero(_may_have_doubled(window, parameters))
    if len(some) == 0:
        return found, when
    at_once = np.zeros((len(some), len(window.times)))
    known = np.zeros_like(at_once)
    for name in COUNTED:
        values = window.values(name)[some]
        before = np.full_like(values, np.nan)
        before[:, 1:] = last_present(values)[:, :-1]
        with np.errstate(invalid="ignore", divide="ignore"):
            ratio = np.where(before >= parameters.counted_least, values / before, np.nan)
            usual = before - np.pad(before, ((0, 0), (1, 0)), constant_values=np.nan)[:, :-1]
            steep = values - before >= parameters.jump_steep * usual  # a young counter doubles by growing as ever
            at_once += steep & (ratio >= 2.0 - parameters.jump_within) & (ratio <= 2.0 + parameters.jump_within)
            halved = (ratio >= 0.5 - parameters.jump_within / 4) & (ratio <= 0.5 + parameters.jump_within / 4)
        known += ~np.isnan(ratio)
        at_once -= halved  # the second scrape ended again
    needed = (known >= parameters.counters_least) & (np.abs(at_once) == known)
    last = np.where(needed, np.arange(len(window.times)), -1).max(axis=1, initial=-1)
    rows = np.arange(len(some))
    found[some] = (last >= 0) & (at_once[rows, last] > 0)
    for row, column in zip(some[found[some]].tolist(), last[found[some]].tolist(), strict=True):
        found[row] = _beyond_peers(window, parameters, row, column)
    when[some] = np.where(last >= 0, window.times[last], np.nan)
    return found, when


def _beyond_peers(window: Window, parameters: SeriesParameters, row: int, column: int) -> bool:
    """Whether its counters jumped by far more than its peers' grew: else users have just come back to a young engine."""
    others = window.topology.peer_group == window.topology.peer_group[row]
    others[row] = False
    for name in COUNTED:
        grown = window.increments(name)[:, column]
        usual = row_median(grown[others][None, :])[0]
        if grown[row] < parameters.jump_steep * usual:
            return False
    return True


def _may_have_doubled(window: Window, parameters: SeriesParameters) -> Bools:
    """Engines one of whose counters grew in one reading by about its least value or more: few, no doubled one missing.

    At least `counters_least` of the four must double at once, so it is enough to look at as many as may be missing, and one.
    """
    may = np.zeros(window.rows, dtype=np.bool_)
    for name in COUNTED[: len(COUNTED) - parameters.counters_least + 1]:
        if name in window.signals:
            least = np.fmin.reduce(window.values(name), axis=1, initial=np.inf)
            grown = np.fmax.reduce(window.increments(name), axis=1, initial=-np.inf)
            may |= grown >= (1.0 - parameters.jump_within) * least
    return may
