"""What one step of the loop costs: CPU time and memory of observe, detect, diagnose and decide for fleets of growing size.

    python benchmarks/step.py [--engines 100 --engines 1000 ...] [--ticks 60] [--repeats 5] [--json]

The product's own loop runs over synthetic readings (25 signals). Each size runs in a process of its own on one core, with a
full window behind it; then `repeats` further steps are measured, each with a new tick. Reading the sources and carrying out
actions are left out: the first is the network's, the second a machine's. The JSON keys are in docs/benchmarks.md.
"""

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table
from synthetic_fleet import BEGIN, SyntheticFleet

from actuators.action import Actuator
from actuators.door import DoorActuator
from actuators.engine_http import EngineHttpActuator
from actuators.process import ProcessActuator
from actuators.registry import ActuatorRegistry
from agent.decision.decision import Decision
from agent.decision.policy import Policy
from agent.diagnosis.catalogue import load_catalogue
from agent.diagnosis.rank import diagnose
from agent.incident import Incident, IncidentEvent
from agent.journal.memory import MemoryJournal
from agent.loop import Loop, Minds, StepReport
from agent.memory import keep_freed_memory
from detectors.catalogue import detect_all
from detectors.parameters import load_parameters
from runbooks.loader import load_library
from runbooks.runbook import Autonomy
from serving.clock import FakeClock
from serving.engines.local import LocalEngines
from serving.fleet.topology import Topology
from serving.telemetry.history import History
from serving.telemetry.reading import Reading
from serving.telemetry.window import Window

SIZES = (100, 1_000, 10_000, 40_000)
STAGES = ("observe", "detect", "diagnose", "decide")
STAGE_OF = {"observe": "observe", "detect": "detect", "diagnose": "diagnose", "track": "decide", "act": "decide"}
ILL_FOR = 60.0  # seconds before the first measured step: every fault is then past the hold of its detector
WARM_UP = 3  # steps that open the incidents, load modules and get the memory that later steps use again
TARGET_CPU_S, TARGET_ENGINES = 1.0, 40_000

JsonObject = dict[str, Any]


class CpuClock(FakeClock):
    """A clock whose monotonic hand is the CPU time of this process, so that the loop measures its stages by it."""

    def monotonic(self) -> float:
        return time.process_time()


class Prepared:
    """An observer whose reading was made before: what is measured is taking it in and making the window."""

    def __init__(self, fleet: SyntheticFleet, ticks: int) -> None:
        self._fleet = fleet
        self._history = History(fleet.topology, horizon_seconds=fleet.interval * (ticks - 0.5), tick_capacity=ticks)
        self._reading: Reading | None = None

    def prepare(self, now: float) -> None:
        """Draw the reading of the next tick."""
        self._reading = self._fleet.reading(now)

    def observe(self, topology: Topology, now: float) -> Window:
        assert self._reading is not None  # noqa: S101 - prepare comes first
        return self._history.window(now, topology, (self._reading,))


class NoHands:
    """Takes every action as not begun: a step decides, and nothing is done."""

    def perform(
        self, incident: Incident, decision: Decision, *, attempt: int, runbook: str, now: float
    ) -> tuple[IncidentEvent, ...]:
        del incident, decision, attempt, runbook, now
        return ()

    def finished(self) -> tuple[IncidentEvent, ...]:
        return ()

    def busy(self, incident: str) -> bool:
        del incident
        return False

    def recover(self, now: float) -> tuple[IncidentEvent, ...]:
        del now
        return ()


def measured(engines: int, ticks: int, repeats: int, interval: float) -> JsonObject:
    """Run one size in this process, on one core, and give its row."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    keep_freed_memory()  # as the warden does
    fleet = SyntheticFleet(engines, interval, break_at=BEGIN + max(0.0, ticks * interval - ILL_FOR))
    observer = Prepared(fleet, ticks)
    before = _resident_mib()
    for tick in range(ticks):
        observer.prepare(BEGIN + tick * interval)
        observer.observe(fleet.topology, BEGIN + tick * interval)
    loop = _loop(fleet, observer)
    seconds: list[Mapping[str, float]] = []
    for tick in range(ticks, ticks + WARM_UP + repeats):
        now = BEGIN + tick * interval
        observer.prepare(now)
        last = loop.step(fleet.topology, now)  # as in the loop's runner, no more than the last report is kept
        seconds.append(last.seconds)
    return _row(last, seconds[WARM_UP:], before) | {"ticks": ticks, "repeats": repeats}


def _loop(fleet: SyntheticFleet, observer: Prepared) -> Loop:
    clock, facts = CpuClock(), {engine.name: fleet.topology.facts(engine) for engine in fleet.topology.engines}
    nowhere = LocalEngines(Path("nowhere"), clock)
    families: list[Actuator] = [
        EngineHttpActuator(facts.get),
        ProcessActuator(nowhere, clock),
        DoorActuator("http://127.0.0.1:9"),
    ]
    actuators = ActuatorRegistry(families)
    parameters, catalogue = load_parameters(None), load_catalogue()
    library = load_library(actuators.verbs, catalogue.names)
    minds = Minds(
        detect=lambda window: detect_all(window, parameters),
        diagnose=lambda window, found, repairs: diagnose(window, found.findings, catalogue, repairs),
        runbooks={book.cause: book for book in library.runbooks},
        policy=Policy(cell="cell-0", autonomy=Autonomy.AUTO, max_concurrent_repairs=8),
    )
    return Loop(observer, minds, MemoryJournal(), actuators, NoHands(), clock)


def _row(last: StepReport, steps: list[Mapping[str, float]], before_mib: float) -> JsonObject:
    """The row of one size: `last` step, and the seconds of all measured ones by the loop's names."""
    if last.detection.failed:
        raise RuntimeError(f"a detector failed: {last.detection.failed[0].error}")
    per_stage = {
        stage: [sum(seconds[name] for name, of in STAGE_OF.items() if of == stage) for seconds in steps] for stage in STAGES
    }
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0
    return {
        "engines": last.window.rows,
        "signals": len(last.window.signals) + len(last.window.histograms),
        "stages": {stage: _spread(seconds) for stage, seconds in per_stage.items()},
        "step": _spread([sum(parts) for parts in zip(*per_stage.values(), strict=True)]),
        "peak_rss_mib": round(peak, 1),
        "window_mib": round(peak - before_mib, 1),
        "findings": len(last.detection.findings),
        "incidents": len(last.incidents),
    }


def _spread(seconds: list[float]) -> JsonObject:
    return {
        "median_s": round(median(seconds), 6),
        "min_s": round(min(seconds), 6),
        "max_s": round(max(seconds), 6),
    }


def _resident_mib() -> float:
    with Path("/proc/self/statm").open() as statm:
        return int(statm.read().split()[1]) * resource.getpagesize() / 1024.0**2


def exponent(rows: list[JsonObject]) -> float | None:
    """The slope of log CPU over log engines from the second size on (1 is linear); None with fewer than two such sizes.

    The smallest size is left out where there are more than two: fixed costs rule it.
    """
    used = rows[1:] if len(rows) > 2 else rows  # noqa: PLR2004 - two points make a slope
    if len(used) < 2:  # noqa: PLR2004 - same
        return None
    engines, seconds = (np.log([row["engines"] for row in used]), np.log([row["step"]["median_s"] for row in used]))
    return round(float(np.polyfit(engines, seconds, 1)[0]), 3)


def _in_own_process(engines: int, ticks: int, repeats: int, interval: float) -> JsonObject:
    asked = ("--one", "--engines", engines, "--ticks", ticks, "--repeats", repeats, "--interval", interval)
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    done = subprocess.run(  # noqa: S603 - this very script
        [sys.executable, __file__, *map(str, asked)], check=True, capture_output=True, text=True, env=os.environ | one_thread
    )
    row: JsonObject = json.loads(done.stdout)
    return row


def table(result: Mapping[str, Any]) -> Table:
    """The rows as a table for people."""
    rows = result["rows"]
    caption = (
        f"CPU seconds of one core, median of {rows[0]['repeats']} steps (least to most); {rows[0]['signals']} signals over "
        f"{rows[0]['ticks']} ticks of {result['interval_s']:g} s; load average {result['load_average']:.1f}"
    )
    shown = Table(title="cost of one step (synthetic)", caption=caption, box=None, header_style="bold dim")
    for column in ("engines", *STAGES, "step", "us per engine", "peak RSS", "incidents"):
        shown.add_column(column, justify="right")
    for row in rows:
        step, per_engine = row["step"], row["step"]["median_s"] / row["engines"] * 1e6
        shown.add_row(
            f"{row['engines']:,}",
            *(f"{row['stages'][stage]['median_s']:.3f}" for stage in STAGES),
            f"{step['median_s']:.3f} ({step['min_s']:.3f} to {step['max_s']:.3f})",
            f"{per_engine:.1f}",
            f"{row['peak_rss_mib']:,.0f} MiB",
            str(row["incidents"]),
        )
    return shown


def main(
    *,
    engines: Annotated[list[int] | None, typer.Option(min=6, help="A size; may be repeated.")] = None,
    ticks: Annotated[int, typer.Option(min=2, help="Ticks in the window.")] = 60,
    repeats: Annotated[int, typer.Option(min=1, help="Measured steps a size.")] = 5,
    interval: Annotated[float, typer.Option(min=0.1, help="Seconds from tick to tick.")] = 2.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programs.")] = False,
    one: Annotated[bool, typer.Option("--one", hidden=True)] = False,
) -> None:
    """Measure the step for each size. Exit code: 0 measured, 1 over a second of CPU at 40,000 engines or more."""
    sizes = tuple(engines or SIZES)
    if one:
        print(json.dumps(measured(sizes[0], ticks, repeats, interval)))
        return
    rows = [_in_own_process(size, ticks, repeats, interval) for size in sorted(sizes)]
    late = [row for row in rows if row["engines"] >= TARGET_ENGINES and row["step"]["median_s"] >= TARGET_CPU_S]
    result = {
        "benchmark": "step",
        "data": "synthetic",
        "interval_s": interval,
        "load_average": round(os.getloadavg()[0], 2),
        "exponent": exponent(rows),
        "within_target": not late,
        "rows": rows,
    }
    if as_json:
        print(json.dumps(result, indent=2))
    else:
        console = Console(width=140)
        console.print(table(result))
        console.print(f"cost grows with engines to the power of {result['exponent']} (1 is linear)", highlight=False)
    raise typer.Exit(1 if late else 0)


if __name__ == "__main__":
    typer.run(main)
