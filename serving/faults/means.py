"""By which means a fault is made and taken back. Each undo may be repeated, and leaves later processes alone."""

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import requests
from pydantic import BaseModel, ConfigDict

from serving.clock import SystemClock
from serving.engines import processes
from serving.engines.local import LocalEngines
from serving.engines.processes import ProcessMark
from serving.engines.records import write_record
from serving.engines.spawning import spawn
from serving.faults import slices
from serving.faults.catalogue import FaultError
from serving.faults.injection import FaultJournal, Injection

SIMULATOR_TIMEOUT_S = 5.0
PROGRAM_GRACE_S = 5.0
PROGRAM_START_S = 30.0  # a Python program and its imports, on a machine whose cores are all busy
EFFECT_S = 2.0
FAULT_MARK = "FLEETWARDEN_FAULT"
GONE = "its process is gone, and the fault with it"


class Means(Protocol):
    """One way to break and to mend. Both raise FaultError when they cannot."""

    def apply(self, injection: Injection) -> None:
        """Break it. The injection is on record already."""
        ...

    def undo(self, injection: Injection) -> str:
        """Mend it, and say what was done. May be called again, and by another process."""
        ...

    def is_over(self, injection: Injection) -> bool:
        """Whether nothing is left to mend, because what was broken is gone."""
        ...


class Hold:
    """SIGSTOP. Both ways it is waited for a moment until the signal has its effect."""

    def apply(self, injection: Injection) -> None:
        _signal(injection, signal.SIGSTOP)
        processes.wait_stopped(injection.targets, EFFECT_S, SystemClock())

    def undo(self, injection: Injection) -> str:
        if not processes.send_all(injection.targets, signal.SIGCONT):
            return GONE
        processes.wait_continued(injection.targets, EFFECT_S, SystemClock())
        return f"continued {_pids(injection.targets)}"

    def is_over(self, injection: Injection) -> bool:
        return _gone(injection.targets)


class Kill:
    """SIGKILL. That the engine is started again is not its own affair (see Faults)."""

    def apply(self, injection: Injection) -> None:
        _signal(injection, signal.SIGKILL)

    def undo(self, injection: Injection) -> str:
        return f"{_pids(injection.targets)} cannot be brought back"

    def is_over(self, injection: Injection) -> bool:
        return _gone(injection.targets)


class Programs:
    """Programs of our own that make the fault while they run: marked with its id, so that they are found by anybody."""

    def __init__(self, journal: FaultJournal) -> None:
        self._journal = journal
        self._real = SystemClock()

    def run(self, injection: Injection, command: Sequence[str], sign: str) -> None:
        """Start one, and wait until it says `sign`: then it is at work.

        Raises FaultError, with what it said, when it ends with an error or does not come to work.
        """
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("FLEETWARDEN_")}
        codes: list[int] = []
        log = self._journal.path(injection.id).with_suffix(".log")
        pid = spawn(command, inherited | self._marks(injection), log, lambda _pid, code: codes.append(code))
        deadline = self._real.monotonic() + PROGRAM_START_S
        while sign not in _text(log) and not codes and self._real.monotonic() < deadline:
            self._real.sleep(processes.POLL_S)
        if (codes and codes != [0]) or sign not in _text(log):
            raise FaultError(f"{injection.fault}: process {pid}, which makes it, did not come to work:\n{_text(log)}")

    def found(self, injection: Injection) -> frozenset[ProcessMark]:
        """Those of this injection that run."""
        return processes.with_environment(self._marks(injection))

    def end(self, injection: Injection) -> bool:
        """End those that run; whether there were any. Raises FaultError when one does not end."""
        running = self.found(injection)
        if left := processes.end(running, PROGRAM_GRACE_S, self._real):
            raise FaultError(f"{injection.fault}: {_pids(tuple(left))} do not end; kill them by hand, then clear again")
        return bool(running)

    def _marks(self, injection: Injection) -> dict[str, str]:
        return {FAULT_MARK: injection.id, "FLEETWARDEN_STATE": str(self._journal.directory.resolve())}


class Slices:
    """Stops and continues in short turns."""

    def __init__(self, programs: Programs, journal: FaultJournal) -> None:
        self._programs = programs
        self._journal = journal

    def apply(self, injection: Injection) -> None:
        self._programs.run(injection, slices.command(self._journal.path(injection.id).resolve()), slices.AT_WORK)

    def undo(self, injection: Injection) -> str:
        self._programs.end(injection)
        return Hold().undo(injection)

    def is_over(self, injection: Injection) -> bool:
        return _gone(injection.targets)


class _CollectorWish(BaseModel):
    """What serving.engines.vllm_plugin reads."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    pause_s: float
    every_s: float
    group: int


class Collector:
    """Garbage-collector pauses, by the hook inside vLLM."""

    def __init__(self, engines: LocalEngines) -> None:
        self._engines = engines

    def apply(self, injection: Injection) -> None:
        wish = _CollectorWish(group=injection.targets[0].pid, **injection.parameters)
        write_record(self._engines.gc_stall_file(injection.target), wish)

    def undo(self, injection: Injection) -> str:
        self._engines.gc_stall_file(injection.target).unlink(missing_ok=True)
        return GONE if self.is_over(injection) else "the wish for pauses is taken back; the heap is freed within a second"

    def is_over(self, injection: Injection) -> bool:
        return _gone(injection.targets)


class Simulator:
    """Orders to a simulated engine."""

    def apply(self, injection: Injection) -> None:
        order: dict[str, Any] = {"fault": injection.way.simulator, **_simulated(injection.parameters)}
        _ask("POST", f"{injection.url}/sim/faults", order)

    def undo(self, injection: Injection) -> str:
        if injection.kills or self.is_over(injection):
            return GONE
        try:
            _ask("DELETE", f"{injection.url}/sim/faults/{injection.way.simulator}")
        except FaultError:
            if self.is_over(injection):
                return GONE
            raise
        return "the simulated engine ended it"

    def is_over(self, injection: Injection) -> bool:
        return _gone(injection.targets)


class Load:
    """The load generator with a pattern, run until it ends or is ended."""

    def __init__(self, programs: Programs) -> None:
        self._programs = programs

    def apply(self, injection: Injection) -> None:
        self._programs.run(injection, _load_command(injection), f"{injection.way.load}: ")

    def undo(self, injection: Injection) -> str:
        return "the load was ended" if self._programs.end(injection) else "the load had ended by itself"

    def is_over(self, injection: Injection) -> bool:
        return not self._programs.found(injection)


def _load_command(injection: Injection) -> list[str]:
    """Each parameter of the fault is the option of the same name of `python -m serving.load`."""
    command = [sys.executable, "-m", "serving.load", "--url", injection.url, "--model", injection.model]
    command += ["--pattern", str(injection.way.load)]
    for name, value in injection.parameters.items():
        command += [f"--{name.replace('_', '-')}", f"{value:g}"]
    return command


def _simulated(parameters: Mapping[str, float]) -> dict[str, float]:
    """Parameters as the simulated engine names them: stopped for a part of the time is slower by a factor."""
    if "share" in parameters:
        return {"factor": 1.0 / (1.0 - parameters["share"])}
    return dict(parameters)


def _ask(method: str, url: str, body: Mapping[str, Any] | None = None) -> None:
    try:
        answer = requests.request(method, url, json=body, timeout=SIMULATOR_TIMEOUT_S)
    except requests.RequestException as error:
        raise FaultError(f"the simulated engine does not answer {method} {url}: {type(error).__name__}") from error
    if not answer.ok:
        raise FaultError(f"the simulated engine refused {method} {url}: {answer.text[:500]}")


def _signal(injection: Injection, number: signal.Signals) -> None:
    if not processes.send_all(injection.targets, number):
        raise FaultError(f"{injection.fault}: {_pids(injection.targets)} of {injection.target} ended too soon")


def _gone(targets: Sequence[ProcessMark]) -> bool:
    return not any(processes.is_alive(target) for target in targets)


def _pids(targets: Sequence[ProcessMark]) -> str:
    return "process " + ", ".join(str(target.pid) for target in targets)


def _text(path: Path) -> str:
    return path.read_text(errors="replace")[-2000:] if path.exists() else ""
