"""Board: the results of many trials summed up, per fault kind, per decoy and over all, each rate with its interval. Pure.

docs/scoreboard.md says how every figure is counted.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from agent.scoreboard.statistics import Frequency, Quantile, Rate, frequency, quantile, rate
from agent.scoreboard.trial import DATA, Data, FaultResult, TrialKind, TrialResult
from agent.scoreboard.truth import Truth

Format = Literal["fleetwarden-scoreboard/1"]
FORMAT: Format = "fleetwarden-scoreboard/1"
GPU_YEARS = 1_000.0  # what false destructive actions are counted per
MEDIAN, TAIL = 0.5, 0.99
EXAMPLES = 8  # trials named for each thing that went wrong
PAIRS, PHYSICAL, OTHERS = "two at once", "with a physical tell", "without one"


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class FaultRow(_Record):
    """One kind of fault (or all of a group). Spans in seconds from the fault's beginning, over those that had them.

    `said` are the causes of false incidents beside it, `done` the verbs of false actions.
    """

    data: Data = DATA
    fault: str
    drills: int
    recall: Rate
    right_cause_first: Rate
    right_first_action: Rate
    cured: Rate
    recovered: Rate
    detect_p50: Quantile
    detect_p99: Quantile
    isolate_p50: Quantile
    isolate_p99: Quantile
    recover_p50: Quantile
    recover_p99: Quantile
    requests_failed: float | None
    mistaken_for: dict[str, int]
    wrong_actions: dict[str, int]
    false_incidents: int
    false_actions: int
    destructive_actions: int
    said: dict[str, int]
    done: dict[str, int]
    missed_in: tuple[int, ...]
    misnamed_in: tuple[int, ...]


class DecoyRow(_Record):
    """One kind of decoy (or two at once). `disturbed` are the trials with anything false in them."""

    data: Data = DATA
    decoy: str
    trials: int
    quiet: Rate
    false_incidents: int
    false_actions: int
    destructive_actions: int
    said: dict[str, int]
    done: dict[str, int]
    disturbed: tuple[int, ...]


class HealthyRow(_Record):
    """Time in which nothing was wrong. Frequencies are per 1,000 GPU-years."""

    data: Data = DATA
    trials: int
    gpu_years: float
    virtual_hours: float
    false_incidents: Frequency
    false_actions: Frequency
    false_destructive: Frequency
    said: dict[str, int]


class Totals(_Record):
    """The sums. Rates from 0 to 1, None where nothing was tried; intervals of them are in the board's `overall`."""

    data: Data = DATA
    drills: int
    recall: float | None
    right_cause_first: float | None
    right_first_action: float | None
    decoys: int
    false_incidents: int
    destructive_actions_on_decoys: int
    healthy_gpu_years: float
    false_destructive_per_1000_gpu_years: float | None
    seconds: float


class Run(_Record):
    """How the figures were made. `failed` are trials that could not be run, by number with the reason."""

    suite: str
    seeds: int
    seed: int
    trials: int
    planned: int
    interval_s: float
    workers: int
    cpu_seconds: float
    version: str
    failed: dict[int, str]


class Board(_Record):
    """Everything. `overall` sums all faults made alone, `groups` those with a physical tell, without, and two at once."""

    format: Format = FORMAT
    data: Data = DATA
    run: Run
    totals: Totals
    overall: FaultRow
    groups: tuple[FaultRow, ...]
    faults: tuple[FaultRow, ...]
    decoys: tuple[DecoyRow, ...]
    healthy: HealthyRow


def board(results: Iterable[TrialResult], truth: Truth, run: Run, seconds: float) -> Board:
    """Sum the results up; `seconds` is how long the run took by the wall."""
    told = sorted((one for one in results if not one.error), key=lambda one: one.number)
    singles, pairs = ([one for one in told if one.kind is kind] for kind in (TrialKind.FAULT, TrialKind.PAIR))
    physical = {name for name, expected in truth.faults.items() if expected.physical}
    overall = _fault_row("all, one at a time", singles, run.seed)
    groups = (
        _fault_row(PHYSICAL, [one for one in singles if one.names[0] in physical], run.seed),
        _fault_row(OTHERS, [one for one in singles if one.names[0] not in physical], run.seed),
        _fault_row(PAIRS, pairs, run.seed),
    )
    decoys = tuple(_decoy_rows(told))
    healthy = _healthy([one for one in told if one.kind is TrialKind.HEALTHY])
    return Board(
        run=run,
        totals=_totals([*singles, *pairs], told, decoys, healthy, seconds),
        overall=overall,
        groups=groups,
        faults=tuple(
            _fault_row(name, [one for one in singles if one.names == (name,)], run.seed)
            for name in dict.fromkeys(one.names[0] for one in sorted(singles, key=lambda one: one.names))
        ),
        decoys=decoys,
        healthy=healthy,
    )


def read_board(text: bytes) -> Board:
    """A board from its JSON. Raises ValueError in a sentence when it is none."""
    try:
        return Board.model_validate_json(text)
    except ValidationError as refused:
        first = refused.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the whole"
        raise ValueError(f"is not a scoreboard of format {FORMAT}: {place}: {first['msg']}") from None


def _totals(
    drills: Sequence[TrialResult],
    told: Sequence[TrialResult],
    decoys: Sequence[DecoyRow],
    healthy: HealthyRow,
    seconds: float,
) -> Totals:
    faults = [fault for one in drills for fault in one.faults]
    found = [fault for fault in faults if fault.detected]
    return Totals(
        drills=len(drills),
        recall=_share(found, faults),
        right_cause_first=_share([fault for fault in found if fault.right_cause], found),
        right_first_action=_share([fault for fault in found if fault.right_action], found),
        decoys=sum(one.kind.deceives for one in told),
        false_incidents=sum(len(one.false_incidents) for one in told),
        destructive_actions_on_decoys=sum(row.destructive_actions for row in decoys),
        healthy_gpu_years=healthy.gpu_years,
        false_destructive_per_1000_gpu_years=healthy.false_destructive.value,
        seconds=round(seconds, 1),
    )


def _share(some: Sequence[object], of: Sequence[object]) -> float | None:
    return len(some) / len(of) if of else None


def _fault_row(name: str, trials: Sequence[TrialResult], seed: int) -> FaultRow:
    faults = [(one.number, fault) for one in trials for fault in one.faults]
    found = [fault for _, fault in faults if fault.detected]

    def at(share: float, of: Callable[[FaultResult], float | None]) -> Quantile:
        return quantile([after for _, fault in faults if (after := of(fault)) is not None], share, seed)

    return FaultRow(
        fault=name,
        drills=len(trials),
        recall=rate(len(found), len(faults)),
        right_cause_first=rate(sum(fault.right_cause for fault in found), len(found)),
        right_first_action=rate(sum(fault.right_action for fault in found), len(found)),
        cured=rate(sum(fault.cured for _, fault in faults), len(faults)),
        recovered=rate(sum(fault.recovered_after is not None for _, fault in faults), len(faults)),
        detect_p50=at(MEDIAN, lambda fault: fault.detected_after),
        detect_p99=at(TAIL, lambda fault: fault.detected_after),
        isolate_p50=at(MEDIAN, lambda fault: fault.isolated_after),
        isolate_p99=at(TAIL, lambda fault: fault.isolated_after),
        recover_p50=at(MEDIAN, lambda fault: fault.recovered_after),
        recover_p99=at(TAIL, lambda fault: fault.recovered_after),
        requests_failed=round(sum(one.failed for one in trials) / len(trials), 2) if trials else None,
        mistaken_for=_counted(fault.cause for fault in found if not fault.right_cause),
        wrong_actions=_counted(_verb(fault.first_action) for fault in found if not fault.right_action),
        false_incidents=sum(len(one.false_incidents) for one in trials),
        false_actions=sum(len(one.false_actions) for one in trials),
        destructive_actions=sum(len(one.destructive_actions) for one in trials),
        said=_counted(_verb(said) for one in trials for said in one.false_incidents),
        done=_counted(_verb(done) for one in trials for done in one.false_actions),
        missed_in=tuple(dict.fromkeys(number for number, fault in faults if not fault.detected))[:EXAMPLES],
        misnamed_in=tuple(dict.fromkeys(n for n, fault in faults if fault.detected and not fault.right_cause))[:EXAMPLES],
    )


def _decoy_rows(told: Sequence[TrialResult]) -> Iterable[DecoyRow]:
    alone = [one for one in told if one.kind is TrialKind.DECOY]
    for name in sorted({one.names[0] for one in alone}):
        yield _decoy_row(name, [one for one in alone if one.names == (name,)])
    pairs = [one for one in told if one.kind is TrialKind.DECOY_PAIR]
    if pairs:
        yield _decoy_row(PAIRS, pairs)


def _decoy_row(name: str, trials: Sequence[TrialResult]) -> DecoyRow:
    disturbed = [one.number for one in trials if one.false_incidents or one.false_actions]
    return DecoyRow(
        decoy=name,
        trials=len(trials),
        quiet=rate(len(trials) - len(disturbed), len(trials)),
        false_incidents=sum(len(one.false_incidents) for one in trials),
        false_actions=sum(len(one.false_actions) for one in trials),
        destructive_actions=sum(len(one.destructive_actions) for one in trials),
        said=_counted(_verb(said) for one in trials for said in one.false_incidents),
        done=_counted(_verb(done) for one in trials for done in one.false_actions),
        disturbed=tuple(disturbed[:EXAMPLES]),
    )


def _healthy(trials: Sequence[TrialResult]) -> HealthyRow:
    years = sum(one.gpu_years for one in trials)

    def per(counts: Iterable[Sequence[str]]) -> Frequency:
        return frequency(sum(map(len, counts)), years, GPU_YEARS)

    return HealthyRow(
        trials=len(trials),
        gpu_years=years,
        virtual_hours=sum(one.virtual_seconds for one in trials) / 3_600.0,
        false_incidents=per(one.false_incidents for one in trials),
        false_actions=per(one.false_actions for one in trials),
        false_destructive=per(one.destructive_actions for one in trials),
        said=_counted(_verb(said) for one in trials for said in one.false_incidents),
    )


def _verb(written: str | None) -> str:
    """The verb or cause of `x on y`; what was not done is `nothing`."""
    return written.partition(" on ")[0] if written else "nothing"


def _counted(words: Iterable[str | None]) -> dict[str, int]:
    """How often each word came, the most frequent first."""
    found: dict[str, int] = {}
    for word in words:
        found[word or "nothing"] = found.get(word or "nothing", 0) + 1
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))
