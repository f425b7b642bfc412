"""A small program that stops and continues processes in short turns: `python -m serving.faults.slices ...`.

It ends, with every target continued, on SIGTERM, when the targets are gone, and when its journal file is gone. Should it be
killed in the middle of a stop, the undo continues the targets.
"""

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from serving.clock import Clock, SystemClock
from serving.engines.processes import ProcessMark, send_all
from serving.engines.records import read_record
from serving.faults.injection import Injection

AT_WORK = "stopping and continuing"
"""What it says once it has begun."""


def command(journal: Path) -> tuple[str, ...]:
    """How it is started for the injection recorded in `journal`."""
    return (sys.executable, "-m", "serving.faults.slices", str(journal))


def turns(share: float, slice_s: float) -> tuple[float, float]:
    """Seconds stopped and seconds running in one turn, for a stop of `slice_s` and a stopped part `share` of the time."""
    return slice_s, slice_s * (1.0 - share) / share


def alternate(targets: Sequence[ProcessMark], stopped_s: float, running_s: float, journal: Path, clock: Clock) -> None:
    """Stop and continue `targets` in turns, until they are gone or `journal` is. They are always left running."""
    try:
        while journal.exists() and send_all(targets, signal.SIGSTOP):
            clock.sleep(stopped_s)
            send_all(targets, signal.SIGCONT)
            clock.sleep(running_s)
    finally:
        send_all(targets, signal.SIGCONT)


def main() -> None:
    """Read the injection named on the command line and carry it out."""
    parser = argparse.ArgumentParser(description="Stop and continue processes in short turns.")
    parser.add_argument("journal", type=Path, help="file of the injection, which says whom and how")
    path: Path = parser.parse_args().journal
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    injection = read_record(path, Injection)
    if injection is not None:
        print(AT_WORK, [target.pid for target in injection.targets], flush=True)  # noqa: T201 - its output is its log
        stopped_s, running_s = turns(injection.parameters["share"], injection.parameters["slice_ms"] / 1000.0)
        alternate(injection.targets, stopped_s, running_s, path, SystemClock())


if __name__ == "__main__":
    main()
