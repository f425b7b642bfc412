"""How fast a fleet in virtual time lives: virtual seconds for each CPU second, for fleets of growing size.

    python benchmarks/virtual_fleet.py [--engines 20 --engines 1000 ...] [--tick 1] [--repeats 5] [--json]

Engines get the usual load (1.2 requests a second each, lengths and rhythm of recorded traffic) and are read every 5 s, as a
warden reads them. The first two minutes fill batches and queues and are not measured. The JSON keys are in
docs/benchmarks.md.
"""

import json
import os
import time
from collections.abc import Mapping
from dataclasses import replace
from statistics import median
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from serving.virtual.fleet import VirtualFleet
from serving.virtual.plan import FleetPlan
from serving.virtual.source import VirtualSource

SIZES = (20, 200, 1_000, 5_000)
FILL_S, MEASURED_S, LOOK_S = 120.0, 60.0, 5.0


def measured(engines: int, tick: float, repeats: int) -> dict[str, Any]:
    """One size: how many times as fast as real time it lives alone, and with being read."""
    fleet = VirtualFleet(replace(FleetPlan.of(engines), tick=tick))
    source = VirtualSource(fleet)
    _live(fleet, source, FILL_S)
    alone, read = [], []
    for _ in range(repeats):
        living, reading = _live(fleet, source, MEASURED_S)
        alone.append(MEASURED_S / living)
        read.append(MEASURED_S / (living + reading))
    requests = fleet.door.measures.counters["door.started"].sum() / (FILL_S + repeats * MEASURED_S)
    return {
        "engines": engines,
        "repeats": repeats,
        "requests_per_s": round(float(requests), 1),
        "times_real_time": _spread(alone),
        "times_real_time_read": _spread(read),
    }


def _live(fleet: VirtualFleet, source: VirtualSource, seconds: float) -> tuple[float, float]:
    """CPU seconds of living on for so long, and of being read on the way."""
    living = reading = 0.0
    for _ in range(round(seconds / LOOK_S)):
        began = time.process_time()
        fleet.advance(LOOK_S)
        lived = time.process_time()
        source.read(fleet.topology, fleet.now, LOOK_S)
        living += lived - began
        reading += time.process_time() - lived
    return living, reading


def _spread(values: list[float]) -> dict[str, float]:
    return {"median": round(median(values), 1), "min": round(min(values), 1), "max": round(max(values), 1)}


def table(result: Mapping[str, Any]) -> Table:
    """The rows as a table for people."""
    rows = result["rows"]
    caption = (
        f"virtual seconds for each CPU second of one core, median of {rows[0]['repeats']} minutes (least to most); "
        f"ticks of {result['tick_s']:g} s; load average {result['load_average']:.1f}"
    )
    shown = Table(title="speed of a fleet in virtual time", caption=caption, box=None, header_style="bold dim")
    for column in ("engines", "requests a second", "times real time", "with a reading every 5 s"):
        shown.add_column(column, justify="right")
    for row in rows:
        speeds = (row["times_real_time"], row["times_real_time_read"])
        told = (f"{speed['median']:,.0f} ({speed['min']:,.0f} to {speed['max']:,.0f})" for speed in speeds)
        shown.add_row(f"{row['engines']:,}", f"{row['requests_per_s']:,.0f}", *told)
    return shown


def main(
    *,
    engines: Annotated[list[int] | None, typer.Option(min=1, help="A size; may be repeated.")] = None,
    tick: Annotated[
        float, typer.Option(min=0.1, max=5.0, help="Longest tick in seconds; 1 is what recordings were held to.")
    ] = 1.0,
    repeats: Annotated[int, typer.Option(min=1, help="Measured minutes a size.")] = 5,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programs.")] = False,
) -> None:
    """Measure the speed for each size. Exit code: 0 measured."""
    result = {
        "benchmark": "virtual_fleet",
        "data": "simulated",
        "tick_s": tick,
        "rows": [measured(size, tick, repeats) for size in sorted(engines or SIZES)],
        "load_average": round(os.getloadavg()[0], 2),
    }
    if as_json:
        print(json.dumps(result, indent=2))
    else:
        Console(width=120).print(table(result))


if __name__ == "__main__":
    typer.run(main)
