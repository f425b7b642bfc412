"""Judging: from a tool's answer to whether it was right, by the rules of judgement.yaml and nothing else.

Every tool's answer is brought into one form first: what it says, in its own order, each with the engine it says it of
(where it does) and the advice it gives.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field

RULES = Path(__file__).with_name("judgement.yaml")
OURS = ("fleetwarden warden", "fleetwarden diagnose")
HEALTHY = "healthy"


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Truth(_Strict):
    """What a fault is, and what else may be said of it."""

    cause: str
    also: tuple[str, ...] = ()
    thin: bool = False


class Words(_Strict):
    """Something a tool says, the causes it is taken for, and why."""

    says: str
    means: tuple[str, ...] = ()
    because: str = ""
    alarm: bool = True


class Rules(_Strict):
    """How one tool is judged."""

    first: str
    names: tuple[Words, ...] = ()
    all_clear: tuple[str, ...] = Field(min_length=1)
    harmful: tuple[Words, ...] = ()


class Judgement(_Strict):
    """The whole file."""

    faults: dict[str, Truth]
    blameless: tuple[str, ...]
    tools: dict[str, Rules]


@dataclass(frozen=True, slots=True)
class Said:
    """One thing a tool says.

    `what` in its own words; `engine` when it says of which (another kind of thing as kind/name); `causes` when it names
    them as we do; `enough` is False when it says itself that the evidence does not suffice.
    """

    what: str
    engine: str | None = None
    advice: tuple[str, ...] = ()
    causes: tuple[str, ...] = ()
    enough: bool = True


@dataclass(frozen=True, slots=True)
class Verdict:
    """How one answer was judged. `first` is what the tool said first of what was broken (or at all)."""

    tool: str
    fault: str
    first: str
    right: bool
    engine_named: bool
    alarms: tuple[str, ...]
    all_clear: bool
    harmful: tuple[str, ...]


def load_judgement(path: Path = RULES) -> Judgement:
    """Read the rules. Raises pydantic.ValidationError when they are not as described at the head of the file."""
    return Judgement.model_validate(yaml.safe_load(path.read_text()))


def judged(rules: Judgement, tool: str, fault: str, target: str, said: list[Said]) -> Verdict:
    """Judge what `tool` said, in its order, while `fault` (or `healthy`) was made on the engine `target`."""
    known = rules.tools[_family(tool)]
    mine = [each for each in said if each.engine in (None, target)]
    first = mine[0] if mine else None
    truth = rules.faults.get(fault)
    right = first is not None and truth is not None and _right(known, truth, first)
    if tool in OURS:  # nothing may stand before it, and the engine must be the right one
        right = right and said[0] is first and first is not None and first.engine == target
    alarms = tuple(_line(each) for each in said if _alarms(known, each)) if fault == HEALTHY else ()
    return Verdict(
        tool=tool,
        fault=fault,
        first=_line(first) if first else known.all_clear[0],
        right=right,
        engine_named=right and first is not None and first.engine == target,
        alarms=alarms,
        all_clear=fault != HEALTHY and (first is None or any(words in first.what for words in known.all_clear)),
        harmful=_harmful(rules, tool, fault, target, said),
    )


def _right(rules: Rules, truth: Truth, first: Said) -> bool:
    named = set(first.causes).union(*(words.means for words in rules.names if words.says in first.what))
    if not first.enough:
        return truth.thin and truth.cause in named
    return bool(named & {truth.cause, *truth.also})


def _alarms(rules: Rules, said: Said) -> bool:
    return all(words.alarm for words in rules.names if words.says in said.what)


def _harmful(rules: Judgement, tool: str, fault: str, target: str, said: list[Said]) -> tuple[str, ...]:
    found = []
    if fault != HEALTHY:
        advice = [line for each in said for line in each.advice]
        words = rules.tools[_family(tool)].harmful
        found = [line for line in advice if any(each.says in line for each in words)]
    if tool in OURS:
        found += [_line(each) for each in said if _blames_healthy(rules, each, target, fault)]
    return tuple(dict.fromkeys(found))


def _blames_healthy(rules: Judgement, said: Said, target: str, fault: str) -> bool:
    an_engine = said.engine is not None and "/" not in said.engine
    healthy = fault == HEALTHY or said.engine != target
    return said.enough and an_engine and healthy and not set(said.causes) <= set(rules.blameless)


def _family(tool: str) -> str:
    """The tool without what was added to it for a second run."""
    return tool.partition(" +")[0]


def _line(said: Said) -> str:
    return f"{said.what} ({said.engine})" if said.engine else said.what


# From each tool's own output to what it says.


def of_vllm_doctor(report: dict[str, Any], instances: dict[str, str]) -> list[Said]:
    """The checks that fired. `instances` are engines by their Prometheus instance, to see whom the evidence names."""
    said = []
    for check in report["checks"]:
        finding = check["finding"]
        if finding is not None:
            named = [name for instance, name in instances.items() if any(instance in line for line in finding["evidence"])]
            engine = named[0] if len(named) == 1 else None
            said.append(Said(check["id"], engine, tuple(finding["recommendations"])))
    return said


def of_inference_aiops(engine: str, answer: dict[str, Any]) -> list[Said]:
    """The probable causes for one replica, or that it could not be read."""
    if not answer["health"].get("healthy") or "error" in answer["latency"]:
        return [Said("unreadable", engine)]
    return [Said(each["cause"], engine, (each["action"],)) for each in answer["latency"]["probableCauses"]]


def of_inferpilot(engine: str, reading: dict[str, Any] | None) -> list[Said]:
    """The verdict for one replica; None when it could not be read."""
    if reading is None:
        return [Said("unreadable", engine)]
    return [Said(reading["verdict"], engine, (reading["next_step"],))]


def of_warden(incidents: list[dict[str, Any]]) -> list[Said]:
    """The open incidents, the highest score first."""
    still = [each for each in incidents if each["ended_at"] is None and each["gone_since"] is None]
    return [_ours(each) for each in sorted(still, key=lambda each: (not each["enough"], -each["score"]))]


def of_diagnose(report: dict[str, Any]) -> list[Said]:
    """The causes of `fleetwarden diagnose`, in its order."""
    return [_ours(each) for each in report["causes"]]


def _ours(row: dict[str, Any]) -> Said:
    kind, _, name = str(row["entity"]).partition("/")
    engine = name if kind == "engine" else str(row["entity"])
    return Said(row["cause"], engine, (), (row["cause"],), bool(row["enough"]))
