"""Running many trials on several cores: processes of their own, a result at a time, a clean end at any moment."""

import multiprocessing
import os
import signal
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from multiprocessing.pool import Pool

from agent.scoreboard.trial import TrialResult, TrialSpec

TOGETHER = 8
"""Trials on the same fleet that one process is handed at a time: enough to make a warm fleet worth while, few enough that a
long run ends on all cores at about the same time."""
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")

Runs = Callable[[TrialSpec], TrialResult]


def run_all(trials: Sequence[TrialSpec], run: Runs, workers: int) -> Generator[TrialResult, None, None]:
    """The results as they come, in no order. `run` must be a function of a module: it is called in other processes.

    Closing the iterator, or an exception (KeyboardInterrupt too), ends the processes. Raises ValueError for no workers.
    """
    if workers < 1:
        raise ValueError(f"at least one process is needed, not {workers}")
    if workers == 1:
        yield from map(run, trials)
        return
    with _one_thread_each():
        pool = multiprocessing.get_context("spawn").Pool(workers, _begin)
    with _ended(pool):
        for results in pool.imap_unordered(_Batch(run), _batches(trials)):
            yield from results


class _Batch:
    """Runs some trials after each other in one process."""

    def __init__(self, run: Runs) -> None:
        self._run = run

    def __call__(self, trials: Sequence[TrialSpec]) -> list[TrialResult]:
        return [self._run(trial) for trial in trials]


def _batches(trials: Sequence[TrialSpec]) -> Iterable[Sequence[TrialSpec]]:
    """The longest first, so that none is begun when all else is done."""
    batches = []
    for _, same in groupby(trials, key=lambda trial: trial.fleet):
        together = list(same)
        batches += [together[first : first + TOGETHER] for first in range(0, len(together), TOGETHER)]
    return sorted(batches, key=lambda some: -max(trial.fleet.engines * trial.lasts for trial in some))


def _begin() -> None:
    """Ctrl-C is for the process that started this one, which then ends it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def _ended(pool: Pool) -> Iterator[None]:
    try:
        yield
    finally:
        pool.terminate()
        pool.join()


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Processes started meanwhile keep to one thread of arithmetic: several would only fight over the cores."""
    before = {name: os.environ.get(name) for name in _THREADS}
    os.environ.update(dict.fromkeys(_THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
