"""The summary of a comparison, as JSON with stable keys and as tables."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from judge import HEALTHY, OURS, Judgement, Verdict
from rich.table import Table

JsonObject = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Call:
    """What one call of a tool took."""

    tool: str
    seconds: float
    cpu_seconds: float


def summary(
    verdicts: Sequence[Verdict],
    calls: Iterable[Call],
    rules: Judgement,
    missing: Mapping[str, str],
    *,
    real: bool,
    engines: int,
) -> JsonObject:
    """All that was found, one row a tool, ours first."""
    asked = list(calls)
    names = sorted(dict.fromkeys(verdict.tool for verdict in verdicts), key=lambda name: (name not in OURS, name))
    return {
        "benchmark": "peers",
        "data": "real vLLM" if real else "simulated",
        "engines": engines,
        "faults": list(dict.fromkeys(v.fault for v in verdicts if v.fault != HEALTHY)),
        "missing": {name: why for name, why in missing.items() if why},
        "tools": [
            _row(name, [v for v in verdicts if v.tool == name], [c for c in asked if c.tool == name]) for name in names
        ],
        "rules": {name: tool.first for name, tool in rules.tools.items()},
    }


def _row(name: str, verdicts: list[Verdict], calls: list[Call]) -> JsonObject:
    faults = [verdict for verdict in verdicts if verdict.fault != HEALTHY]
    well = [verdict for verdict in verdicts if verdict.fault == HEALTHY]
    return {
        "tool": name,
        "right_cause_first": sum(verdict.right for verdict in faults),
        "engine_named_too": sum(verdict.engine_named for verdict in faults),
        "of": len(faults),
        "healthy_looks_with_alarm": sum(bool(verdict.alarms) for verdict in well),
        "healthy_looks": len(well),
        "alarms": sorted({alarm for verdict in well for alarm in verdict.alarms}),
        "all_clear_while_broken": sum(verdict.all_clear for verdict in faults),
        "harmful_advice": sum(bool(verdict.harmful) for verdict in verdicts),
        "harmful": sorted({line for verdict in verdicts for line in verdict.harmful}),
        "calls": len(calls),
        "seconds_p50": round(median(call.seconds for call in calls), 2) if calls else None,
        "cpu_seconds_p50": round(median(call.cpu_seconds for call in calls), 2) if calls else None,
        "by_fault": {
            verdict.fault: {
                "first": verdict.first,
                "right": verdict.right,
                "engine_named": verdict.engine_named,
                "all_clear": verdict.all_clear,
                "harmful": list(verdict.harmful),
            }
            for verdict in faults
        },
    }


def table(result: Mapping[str, Any]) -> tuple[Table, Table]:
    """The totals, and what each tool said first under each fault."""
    title = f"{result['engines']} engines, {result['data']}"
    totals = Table(title=f"ours and others ({title})", box=None, header_style="bold dim", title_justify="left")
    columns = ("right cause first", "engine named too", "alarms while healthy", "all-clear while broken", "harmful advice")
    totals.add_column("tool")
    for column in (*columns, "s per call", "CPU s per call"):
        totals.add_column(column, justify="right")
    said = Table(title=f"what was said first ({title}); * right", box=None, header_style="bold dim", title_justify="left")
    said.add_column("tool")
    for fault in result["faults"]:
        said.add_column(fault, overflow="fold")
    for row in result["tools"]:
        totals.add_row(
            row["tool"],
            f"{row['right_cause_first']} of {row['of']}",
            f"{row['engine_named_too']} of {row['of']}",
            f"{row['healthy_looks_with_alarm']} of {row['healthy_looks']}",
            str(row["all_clear_while_broken"]),
            str(row["harmful_advice"]),
            f"{row['seconds_p50']:.1f}",
            f"{row['cpu_seconds_p50']:.1f}",
        )
        first = [row["by_fault"].get(fault) for fault in result["faults"]]
        said.add_row(
            row["tool"], *(f"{'* ' if each['right'] else ''}{each['first'][:60]}" if each else "-" for each in first)
        )
    return totals, said
