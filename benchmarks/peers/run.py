"""Ours beside others: one live fleet, the same faults for all, every tool asked during each.

    python benchmarks/peers/run.py [--real] [--engines 4] [--fault engine-hang ...] [--json]

The fleet is the product's local one with a warden that only observes; `--real` starts vLLM instead of the simulator. The
tools come from PyPI, each into an environment of its own. How their words are judged is in judgement.yaml, with reasons;
their raw outputs are kept beside the summary. The JSON keys are in docs/benchmarks.md.
"""

import json
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from fleet import PROXIES, Fleet, FleetError, fleetwarden, running_fleet
from judge import (
    HEALTHY,
    Judgement,
    Said,
    Verdict,
    judged,
    load_judgement,
    of_diagnose,
    of_inference_aiops,
    of_inferpilot,
    of_vllm_doctor,
    of_warden,
)
from old_names import proxies
from rich.console import Console
from summary import Call, summary, table
from tools import VERSIONS, Answer, Asked, Tool, ask_ours, configure_aiops, install

from serving.clock import Clock, SystemClock

WARM_UP_S, WARM_UP_REAL_S = 150.0, 240.0  # detectors compare with two minutes of past
LOOK_S = 45.0  # inferpilot's own time between its two looks
BEFORE_LOOK_S, BEFORE_LOOK_REAL_S = 20.0, 90.0  # a real engine's clients wait longer before they feel a fault
RECOVERY_S = 100.0  # --since 1m and our own aftermath of a minute are over by then
RECOVERED_WITHIN_S = 240.0
BETWEEN_HEALTHY_S = 30.0


@dataclass(frozen=True, slots=True)
class Course:
    """One run: the fleet, the tools and where results go. `say` tells how far it is."""

    fleet: Fleet
    asked: Asked
    behind_proxies: Asked
    rules: Judgement
    place: Path
    clock: Clock
    say: Callable[[str], None]

    def look(self, fault: str, target: str) -> tuple[list[Verdict], list[Call]]:
        """Ask every tool at this moment, keep what it said, and judge it."""
        verdicts, calls = [], []
        for tool, answers, said in self._answers():
            folder = self.place / "raw" / fault
            folder.mkdir(parents=True, exist_ok=True)
            for engine, answer in answers.items():
                name = f"{tool}-{engine}".replace(" ", "-").replace("+", "with")
                (folder / f"{name}.txt").write_text(f"exit {answer.code}\n{answer.out}\n{answer.err}")
                calls.append(Call(tool, answer.seconds, answer.cpu_seconds))
            verdict = judged(self.rules, tool, fault, target, said)
            verdicts.append(verdict)
            right = f", right: {verdict.right}" if fault != HEALTHY else f", alarms: {len(verdict.alarms)}"
            self.say(f"  {tool}: {verdict.first}{right}")
        return verdicts, calls

    def _answers(self) -> Iterator[tuple[str, dict[str, Answer], list[Said]]]:
        """Each tool's answers by engine (or `fleet`), and what they say."""
        engines = list(self.fleet.engines)
        tools = self.asked.tools
        if (
            tools["inferpilot"].bin is not None
        ):  # first, for it looks twice; all replicas at once, so that the fault is the same
            with ThreadPoolExecutor(len(engines)) as threads:
                found = dict(zip(engines, threads.map(lambda e: self.asked.inferpilot(e, LOOK_S), engines), strict=True))
            yield "inferpilot", found, [said for e, a in found.items() for said in of_inferpilot(e, a.json)]
        warden = ask_ours("incidents", "--json", "--state-dir", str(self.fleet.state))
        yield "fleetwarden warden", {"fleet": warden}, of_warden(warden.json)
        ours = ask_ours("diagnose", self.fleet.prometheus, "--json")
        yield "fleetwarden diagnose", {"fleet": ours}, of_diagnose(ours.json or {"causes": []})
        if tools["vllm-doctor"].bin is not None:
            for name, url in (
                ("vllm-doctor", self.fleet.prometheus),
                ("vllm-doctor + older names", self.fleet.prometheus_old),
            ):
                answer = self.asked.vllm_doctor(url)
                yield name, {"fleet": answer}, of_vllm_doctor(answer.json or {"checks": []}, self.fleet.instances)
        if tools["inference-aiops"].bin is not None:
            for name, asked in (("inference-aiops", self.asked), ("inference-aiops + older names", self.behind_proxies)):
                home = self.place / "homes" / name.replace(" ", "-").replace("+", "with")
                configure_aiops(home, asked.engines)
                found = {engine: asked.inference_aiops(engine, home) for engine in engines}
                yield name, found, [said for e, a in found.items() for said in of_inference_aiops(e, a.json or _unread())]

    def under(self, fault: str, target: str) -> tuple[list[Verdict], list[Call]]:
        """Make `fault` on `target`, look, undo it, and wait until the fleet is well again."""
        self.say(f"{fault} on {target}")
        self.fleet.inject(fault, target)
        try:
            self.clock.sleep(BEFORE_LOOK_REAL_S if self.fleet.real else BEFORE_LOOK_S)
            seen = self.look(fault, target)
        finally:
            self.fleet.clear()
        self._recover()
        return seen

    def _recover(self) -> None:
        self.clock.sleep(RECOVERY_S)
        deadline = self.clock.monotonic() + RECOVERED_WITHIN_S
        while self.clock.monotonic() < deadline:
            open_ones = json.loads(fleetwarden("incidents", "--json", "--state-dir", str(self.fleet.state), codes=(0, 1)))
            if not open_ones and self.fleet.ready():
                return
            self.clock.sleep(5.0)
        self.say("  the fleet has not come to rest; going on")


def _unread() -> dict[str, Any]:
    """For an answer that is no JSON: it could not read the engine."""
    return {"health": {"healthy": False}, "latency": {}}


def main(
    *,
    real: Annotated[bool, typer.Option("--real", help="Real vLLM engines instead of simulated ones.")] = False,
    engines: Annotated[int | None, typer.Option(min=2, max=8, help="How many; 4 simulated or 3 real ones.")] = None,
    fault: Annotated[list[str] | None, typer.Option(help="Only these faults; may be repeated.")] = None,
    healthy: Annotated[int, typer.Option(min=0, help="How often all are asked while nothing is wrong.")] = 3,
    base_port: Annotated[int, typer.Option(help="First port of the range; 0: a free one.")] = 0,
    cache: Annotated[Path | None, typer.Option(help="Where tools and results are kept.")] = None,
    warm_up: Annotated[float | None, typer.Option(min=0, help="Seconds before the first look.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Compare. Exit code: 0 compared (whoever was right), 1 the fleet could not be run, 2 no such fault."""
    clock, console = SystemClock(), Console(stderr=True, width=160)
    rules, home = load_judgement(), cache or _cache()
    wanted = fault or list(rules.faults)
    unknown = sorted(set(wanted) - set(rules.faults))
    if unknown:
        console.print(f"no rules for {', '.join(unknown)}; known: {', '.join(rules.faults)}")
        raise typer.Exit(2)
    place = home / "results" / f"{'real' if real else 'simulated'}-{int(clock.now())}"
    place.mkdir(parents=True)
    tools = {name: install(name, home) for name in VERSIONS}
    for tool in tools.values():
        console.print(f"{tool.name} {tool.version}: {f'missing: {tool.missing}' if tool.bin is None else tool.bin}")
    count = engines or (3 if real else 4)
    warming = warm_up if warm_up is not None else WARM_UP_REAL_S if real else WARM_UP_S
    try:
        verdicts, calls = _run(place, tools, rules, wanted, count, healthy, warming, base_port, clock, console, real=real)
    except FleetError as error:
        console.print(f"[red]{error}[/red]", highlight=False)
        raise typer.Exit(1) from None
    result = summary(verdicts, calls, rules, {name: tool.missing for name, tool in tools.items()}, real=real, engines=count)
    result["load_average"] = round(os.getloadavg()[0], 2)
    (place / "summary.json").write_text(json.dumps(result, indent=2))
    console.print(f"raw outputs and summary.json: {place}", highlight=False)
    if as_json:
        print(json.dumps(result, indent=2))
    else:
        Console(width=170).print(*table(result), sep="\n")


def _run(
    place: Path,
    tools: dict[str, Tool],
    rules: Judgement,
    faults: list[str],
    engines: int,
    healthy: int,
    warming: float,
    base_port: int,
    clock: Clock,
    console: Console,
    *,
    real: bool,
) -> tuple[list[Verdict], list[Call]]:
    verdicts: list[Verdict] = []
    calls: list[Call] = []
    with ExitStack() as running:
        fleet = running.enter_context(running_fleet(place / "fleet", engines, real=real, clock=clock, base_port=base_port))
        renamed = running.enter_context(proxies(fleet.engines, fleet.base_port + PROXIES))
        (place / "homes").mkdir()
        course = Course(
            fleet,
            Asked(fleet.engines, place / "homes", tools),
            Asked(renamed, place / "homes", tools),
            rules,
            place,
            clock,
            lambda line: console.print(line, highlight=False),
        )
        names = list(fleet.engines)
        course.say(f"{engines} engines run; {warming:.0f} s of health first")
        clock.sleep(warming)
        seen = []
        for number in range(healthy):
            course.say(f"healthy, look {number + 1}")
            seen.append(course.look(HEALTHY, names[0]))
            clock.sleep(BETWEEN_HEALTHY_S)
        for number, fault in enumerate(faults):
            seen.append(course.under(fault, names[number % len(names)]))
        for judged_now, asked_now in seen:
            verdicts += judged_now
            calls += asked_now
    return verdicts, calls


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fleetwarden-peers"


if __name__ == "__main__":
    typer.run(main)
