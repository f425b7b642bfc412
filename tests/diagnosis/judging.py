"""Judges detectors and diagnosis on a recording: what was found, how soon, by what name, and what should not have been.

Run it for a table: `python tests/diagnosis/judging.py tests/recordings/vllm-0.32-a`. Diagnoses without enough evidence
are shown and never count as opened.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

from agent.diagnosis.catalogue import load_catalogue
from agent.diagnosis.diagnosis import Diagnosis
from agent.diagnosis.rank import diagnose
from agent.replay.judge import AFTERMATH
from agent.replay.truth import EVERYWHERE, Fault, faults_in
from detectors.catalogue import detect_all
from detectors.parameters import load_parameters
from serving.telemetry.recording import Recording

RECORDINGS = Path(__file__).parents[1] / "recordings"


@dataclass
class Opened:
    """A diagnosis with enough evidence, from the moment it was first made until it was gone for a while."""

    at: float
    diagnosis: Diagnosis
    last: float


@dataclass(frozen=True)
class Verdict:
    """How one fault was judged. `first` is the first thing opened on it."""

    fault: Fault
    first: Opened | None
    wrong: tuple[Opened, ...]

    @property
    def delay(self) -> float | None:
        return None if self.first is None else self.first.at - self.fault.start

    @property
    def right(self) -> bool:
        if self.first is None:
            return self.fault.expected.optional
        soon = self.fault.expected.within is None or (self.delay or 0.0) <= self.fault.expected.within
        return not self.wrong and soon


@dataclass(frozen=True)
class Judgement:
    """Everything about one recording."""

    name: str
    begun: float
    verdicts: tuple[Verdict, ...]
    false: tuple[Opened, ...]
    failures: tuple[str, ...]


def replay(recording: Recording, horizon: float = 600.0) -> tuple[list[Opened], list[str]]:
    """Every diagnosis with enough evidence that opened; one that comes back within the aftermath is the same one."""
    parameters, catalogue = load_parameters(), load_catalogue()
    opened: list[Opened] = []
    failures: list[str] = []
    for window in recording.windows(horizon):
        detection = detect_all(window, parameters)
        failures.extend(f"{failure.detector}: {failure.error}" for failure in detection.failed)
        for diagnosis in diagnose(window, detection.findings, catalogue):
            if not diagnosis.enough:
                continue
            same = [
                one
                for one in opened
                if (one.diagnosis.cause, one.diagnosis.entity) == (diagnosis.cause, diagnosis.entity)
                and window.now - one.last <= AFTERMATH
            ]
            if same:
                same[-1].last = window.now
            else:
                opened.append(Opened(window.now, diagnosis, window.now))
    return opened, failures


def judge(folder: Path, horizon: float = 600.0, interval: float = 2.0) -> Judgement:
    """Replay a recording and hold what opened against what was done."""
    recording = Recording(folder, interval=interval)
    opened, failures = replay(recording, horizon)
    faults = faults_in(recording.happenings, float(recording.times[-1]))
    verdicts = []
    for fault in faults:
        mine = [one for one in opened if covers(fault, one.diagnosis, one.at) and not _of_later(one, fault, faults)]
        named = [one for one in mine if _named(one.diagnosis, fault)]
        verdicts.append(Verdict(fault, named[0] if named else None, tuple(one for one in mine if one not in named)))
    false = tuple(one for one in opened if not any(covers(fault, one.diagnosis, one.at) for fault in faults))
    return Judgement(folder.name, recording.happenings[0].at, tuple(verdicts), false, tuple(failures))


def covers(fault: Fault, diagnosis: Diagnosis, at: float) -> bool:
    """Whether a diagnosis at that moment is about this fault or its after-effects."""
    inside = fault.start <= at <= fault.end + AFTERMATH
    return inside and fault.target in {EVERYWHERE, diagnosis.entity.name}


def _named(diagnosis: Diagnosis, fault: Fault) -> bool:
    return diagnosis.cause in fault.expected.causes and diagnosis.entity.kind is fault.on


def _of_later(one: Opened, fault: Fault, faults: tuple[Fault, ...]) -> bool:
    """Whether a later fault began before it opened and covers it: then it is that one's."""
    return any(fault.start < other.start <= one.at and covers(other, one.diagnosis, one.at) for other in faults)


def table(judgement: Judgement) -> str:
    """The judgement as text, one fault a line."""
    lines = [f"{judgement.name}", f"  {'fault':24}{'target':9}{'found':>8}  {'as':22}{'score':>6}  verdict"]
    for verdict in judgement.verdicts:
        first = verdict.first
        found = "-" if verdict.delay is None else f"{verdict.delay:.0f} s"
        cause = "-" if first is None else first.diagnosis.cause
        score = "" if first is None else f"{first.diagnosis.score:.2f}"
        wrong = "".join(f"; also {one.diagnosis.cause} on {one.diagnosis.entity}" for one in verdict.wrong)
        said = ("right" if verdict.right else "WRONG") + wrong
        lines.append(f"  {verdict.fault.kind:24}{verdict.fault.target:9}{found:>8}  {cause:22}{score:>6}  {said}")
    for one in judgement.false:
        at = one.at - judgement.begun
        lines.append(
            f"  false: {one.diagnosis.cause} on {one.diagnosis.entity} at {at:.0f} s, score {one.diagnosis.score:.2f}"
        )
    return "\n".join([*lines, *(f"  detector failed: {failure}" for failure in judgement.failures)])


if __name__ == "__main__":
    for argument in sys.argv[1:] or sorted(map(str, RECORDINGS.glob("vllm-*"))):
        sys.stdout.write(table(judge(Path(argument))) + "\n")
